"""Two threads of a block that touch a byte of shared memory, one of them writing, with no barrier between."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import KernelError

_VERBS = {1: "reads", 2: "writes", 3: "copies asynchronously to"}
_COPYING = 3
_WARP = 32


@dataclass(frozen=True)
class RacingAccess:
    """One of the two: its kind as host/race.h numbers it, the thread's index in the block, "file:line"."""

    kind: int
    thread: int
    line: str

    def __str__(self) -> str:
        """The access in words."""
        return f"thread {self.thread} {_VERBS[self.kind]} it at {self.line}"


class RaceError(KernelError):
    """A race of the kernel ``name``: ``offset`` of the word in shared memory (dynamic first), and both accesses."""

    def __init__(self, name: str, block: tuple[int, ...], offset: int, before: RacingAccess, now: RacingAccess) -> None:
        self.name, self.offset, self.before, self.now = name, offset, before, now
        super().__init__(
            f"{name}, block {block}: a race for byte {offset} of shared memory: {before}, then {now}; {self._missing()}"
        )

    def _missing(self) -> str:
        """What would have ordered them."""
        if self.before.kind == _COPYING:
            return "the copy may not have landed: wait for its group, and then at a barrier, before anybody touches it"
        if self.before.thread // _WARP == self.now.thread // _WARP:
            return "a __syncwarp() must stand between"
        return "a __syncthreads() must stand between"
