"""Retirement: memory that was given up while work may still use it. It is unmapped when that work is done.

A decommit never waits: it leaves its mappings here with a fence, and goes on. ``collect`` looks which fences are open
and unmaps what is behind them; only a lack of memory, a close, or the caller's own wish waits. One per device.

Its lock comes before the locks of supplies and of the driver. The garbage collector may end a range in a thread that
holds any of them; so a dropped range never waits for the lock: who holds it ends that range afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .errors import VmmError
from .finishing import Finishing
from .uninterrupted import uninterrupted

if TYPE_CHECKING:
    from .address_range import Mapping
    from .fence import Fence

_log = logging.getLogger("vmm")
_all: weakref.WeakSet[Retirement] = weakref.WeakSet()


class Owner(Protocol):
    """Whose mappings retire: ``unmap`` takes them away, all or none, and ``give`` then returns their memory."""

    def unmap(self, mappings: list[Mapping]) -> None: ...

    def give(self, mappings: list[Mapping]) -> None: ...


class Leaving:
    """Mappings of ``owner``, by chunk, that go when ``fence`` opens, and the ``older`` ones of earlier decommits."""

    __slots__ = ("fence", "mappings", "older", "owner")

    def __init__(self, owner: Owner, mappings: dict[int, Mapping], fence: Fence, older: Sequence[Fence]) -> None:
        self.owner, self.mappings, self.fence, self.older = owner, mappings, fence, older

    @property
    def done(self) -> bool:
        """Whether no work uses the mappings any more."""
        return self.fence.done and all(fence.done for fence in self.older)

    def wait(self) -> None:
        """Wait until that is so."""
        self.fence.wait()
        for fence in self.older:
            fence.wait()


@dataclass(frozen=True, slots=True)
class Kept:
    """A mapping that was taken back before it went, and where it was."""

    chunk: int
    mapping: Mapping
    entry: Leaving


class Retirement:
    """What leaves a device, the oldest first. May be used by several threads; holds no range alive but by its maps."""

    def __init__(self) -> None:
        self._entries: deque[Leaving] = deque()
        self._lock = threading.RLock()
        self._inside = 0  # how deep its holder is in changes
        self._dropped: deque[Callable[[], None]] = deque()
        _all.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes that are leaving."""
        return sum(mapping.size for entry in list(self._entries) for mapping in list(entry.mappings.values()))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing retires or goes meanwhile in another thread."""
        try:
            with self._lock:
                self._inside += 1
                try:
                    yield
                finally:
                    self._inside -= 1
        finally:
            try:
                self._end_dropped()
            except Exception:  # of somebody else's range: this change is not to blame
                _log.exception("a dropped range could not be ended")

    def drop(self, end: Callable[[], None]) -> None:
        """Run what ends a dropped owner: at once, or if somebody is in the middle of a change, after that."""
        self._dropped.append(end)
        self._end_dropped()

    def add(self, owner: Owner, mappings: dict[int, Mapping], fence: Fence, older: Sequence[Fence] = ()) -> None:
        """Let mappings go when ``fence`` and the ``older`` ones open; ``fence`` is closed then."""
        with self.alone():
            self._entries.append(Leaving(owner, mappings, fence, older))

    @uninterrupted
    def collect(self, owner: Owner | None = None, *, wait: bool = False) -> int:
        """Unmap what no work uses any more, of ``owner`` or of all; with ``wait``, wait until that is everything.

        Returns the bytes given back. Raises DriverError when an unmap is refused: what was to go then stays here.
        """
        freed = 0
        with self.alone():
            entries = list(self._entries) if owner is None else self._of(owner)
        refused: VmmError | None = None
        with Finishing() as rest:
            for entry in entries:
                try:
                    if wait:
                        entry.wait()
                    with self.alone():
                        if wait or entry.done:
                            freed += self._finish(entry, rest)
                except VmmError as error:  # the others can go all the same
                    refused = refused or error
        if refused is not None:
            raise refused
        return freed

    @uninterrupted
    def poll(self) -> None:
        """``collect`` on the way of an operation that is about something else. What is refused stays, for later."""
        try:
            self.collect()
        except VmmError as error:
            _log.warning("memory that retires could not be collected now: %s", error)

    @uninterrupted
    def collect_oldest(self) -> int:
        """Wait for the oldest that holds memory and unmap it; the bytes given back, 0 when nothing is left to wait for.

        Raises DriverError for a fault in the work, and when the unmap is refused.
        """
        refused: VmmError | None = None
        for entry in list(self._entries):
            try:
                with Finishing() as rest:
                    entry.wait()
                    with self.alone():
                        freed = self._finish(entry, rest)
            except VmmError as error:  # the next may go
                refused = refused or error
                continue
            if freed:
                return freed
        if refused is not None:
            raise refused
        return 0

    def take_back(self, owner: Owner, chunks: Iterable[int]) -> list[Kept]:
        """Those ``chunks`` of ``owner`` that retire; they stay mapped, and are the caller's until it puts them back."""
        wanted = set(chunks)
        with self.alone():
            return [
                Kept(chunk, entry.mappings.pop(chunk), entry)
                for entry in self._of(owner)
                for chunk in sorted(wanted & entry.mappings.keys())
            ]

    def put_back(self, kept: Iterable[Kept]) -> None:
        """Undo ``take_back``: they go when the same work is done."""
        with self.alone():
            for one in kept:
                one.entry.mappings[one.chunk] = one.mapping
                if one.entry not in self._entries:  # its fence opened meanwhile
                    self._entries.append(one.entry)

    def forget(self, owner: Owner) -> None:
        """Drop what ``owner``, which has waited, unmaps itself."""
        with self.alone(), Finishing() as rest:
            for entry in self._of(owner):
                self._entries.remove(entry)
                rest.run(entry.fence.close)

    def forked(self) -> None:
        """In a child: no thread of the parent, which may have held the lock, is there to let it go."""
        self._lock, self._inside = threading.RLock(), 0

    def _of(self, owner: Owner) -> list[Leaving]:
        return [entry for entry in self._entries if entry.owner is owner]

    def _finish(self, entry: Leaving, rest: Finishing) -> int:
        """Unmap what lies behind an open fence, unless another thread did. Nobody else sees the entry meanwhile."""
        if entry not in self._entries:
            return 0
        mappings = [entry.mappings[chunk] for chunk in sorted(entry.mappings)]
        with contextlib.ExitStack() as undo:
            undo.callback(self._entries.insert, self._entries.index(entry), entry)
            self._entries.remove(entry)
            entry.owner.unmap(mappings)
            undo.pop_all()
        entry.mappings.clear()  # what somebody took back may still be put back
        rest.run(entry.owner.give, mappings)
        rest.run(entry.fence.close)
        return sum(mapping.size for mapping in mappings)

    def _end_dropped(self) -> None:
        """End what was dropped, unless a change is going on, here or elsewhere: whoever makes it comes here after."""
        while self._dropped and self._lock.acquire(blocking=False):
            try:
                if self._inside:
                    return
                self._inside = 1
                try:
                    self._dropped.popleft()()
                finally:
                    self._inside = 0
            finally:
                self._lock.release()


def _in_child() -> None:
    for found in _all:
        found.forked()


os.register_at_fork(after_in_child=_in_child)
