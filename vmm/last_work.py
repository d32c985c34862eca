"""LastWork: what to wait for before a part of a range goes whose pieces were given back at different times.

A chunk may hold pieces of several owners, who each name the work that may still use theirs. The chunk goes with the
last of them; its fence must then cover the work of all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from .fence import After, handles_of

_ALL = object()  # work on any stream
_FRESH = object()  # no piece was given back yet


class LastWork:
    """Remembers for each part (a number: a chunk, a row) which streams its pieces were given back after.

    ``note`` every time that pieces come back, ``forget`` parts whose memory is gone. Costs nothing while nobody names
    any work.
    """

    def __init__(self) -> None:
        self._marks: dict[int, Any] = {}
        self._unmarked: Any = _FRESH
        self._named = False
        self._noted: tuple[Any, Any] = (None, None)  # what the last note was of, until it is asked about

    def note(self, parts: Iterable[int], after: After) -> None:
        """Pieces of ``parts`` were given back, to go when the work ``after`` is done."""
        if after is None and not self._named:
            self._unmarked = _ALL
            return
        self._named = True
        mark = _mark(after)
        self._noted = after, mark
        for part in parts:
            known = self._marks.get(part, self._unmarked)
            self._marks[part] = mark if known is _FRESH or known == mark else _ALL

    def before(self, parts: Iterable[int], after: After) -> After:
        """What must be done before the memory of ``parts`` goes: ``after``, or where that is not enough everything."""
        if after is None or not self._named:
            return None if self._unmarked is _ALL else after
        noted, self._noted = self._noted, (None, None)
        mark = noted[1] if noted[0] is after else _mark(after)  # an event of this very call is the same
        known = (self._marks.get(part, self._unmarked) for part in parts)
        return after if all(one is _FRESH or one == mark for one in known) else None

    def forget(self, parts: Collection[int]) -> None:
        """The memory of ``parts`` is gone, or is going behind its fence."""
        if self._named:
            self._marks.update(dict.fromkeys(parts, _FRESH))


def _mark(after: After) -> object:
    """The streams that ``after`` names. An event may be recorded again, so it is never known to be the same."""
    if after is None:
        return _ALL
    handles: Sequence[tuple[bool, int]] = handles_of(after)
    return object() if any(event for event, _handle in handles) else frozenset(handle for _event, handle in handles)
