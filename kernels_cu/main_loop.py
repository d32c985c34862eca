"""The loop in which a decode kernel spends its time, measured against the memory that it must keep busy.

A multiprocessor starts at most 4 instructions a clock. While the memory delivers K and V of 16 tokens it has so many
slots for instructions, and the loop may need only a part of them: what it needs beyond is time in which the memory
waits. The figures of bandwidth are 90 % of the data sheets', which is what a copy reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

from .sass import Code

TILE = 16
"""Tokens."""
WARP_COPY_BYTES = 32 * 16
"""What one asynchronous copy of 16 bytes a lane moves."""
ISSUES_PER_CLOCK = 4


@dataclass(frozen=True)
class Machine:
    """A GPU: bytes a second that a copy reaches, multiprocessors, clocks a second."""

    name: str
    bandwidth: float
    multiprocessors: int
    clock: float

    def issue_slots(self, size: int) -> float:
        """Instructions that a multiprocessor can start while its share of the memory delivers ``size`` bytes."""
        return size / (self.bandwidth / self.multiprocessors) * self.clock * ISSUES_PER_CLOCK


MACHINES = {
    "sm_80": Machine("A100 80 GB", 1.83e12, 108, 1.41e9),
    "sm_90": Machine("H200", 4.3e12, 132, 1.98e9),
    "sm_100": Machine("B200", 7.2e12, 148, 1.965e9),
}


@dataclass(frozen=True)
class MainLoop:
    """One turn of the loop, which moves ``bytes`` of K and V a warp; all counts are of one turn.

    ``copies``: asynchronous copies, ``wide_copies`` those of 16 bytes a lane; ``barriers``: of the whole block.
    """

    instructions: int
    bytes: int
    copies: int
    wide_copies: int
    products: int
    matrix_loads: int
    transposes: int
    barriers: int

    def for_tokens(self, count: int, token_bytes: int) -> float:
        """A count of one turn as one for 16 tokens, whose K and V of one head have ``token_bytes`` a token."""
        return count * TILE * token_bytes / self.bytes

    def for_16_tokens(self, token_bytes: int) -> dict[str, float]:
        """All counts of one turn as counts for 16 tokens."""
        counts = ("instructions", "copies", "wide_copies", "products", "matrix_loads", "transposes", "barriers")
        return {name: self.for_tokens(getattr(self, name), token_bytes) for name in counts}

    def issue_share(self, machine: Machine) -> float:
        """The part of the issue slots that the loop takes on a machine whose memory is never idle."""
        return self.instructions / machine.issue_slots(self.bytes)


def main_loop(code: Code) -> MainLoop | None:
    """The shortest loop that copies asynchronously and multiplies on tensor cores; None if there is none."""
    found = [loop for loop in code.loops() if loop.count(r"LDGSTS\b.*") and loop.count(r"HMMA\b.*")]
    if not found:
        return None
    loop = min(found, key=lambda candidate: len(candidate.lines))
    copies = loop.count(r"LDGSTS\b.*")
    return MainLoop(
        instructions=len(loop.instructions),
        bytes=copies * WARP_COPY_BYTES,
        copies=copies,
        wide_copies=loop.count(r"LDGSTS\b.*\.128"),
        products=loop.count(r"HMMA\b.*"),
        matrix_loads=loop.count(r"LDSM\b.*"),
        transposes=loop.count(r"MOVM\b.*"),
        barriers=loop.count(r"BAR\b.*"),
    )
