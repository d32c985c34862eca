"""Stretches: the rows of a picture that are worth a look, and the long runs of free ones between them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from .picture import Picture

_GAP = 3
"""From so many free rows on a run of them is one mark."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows ``start`` to ``stop`` - 1; ``free`` if they are a gap that has addresses only."""

    start: int
    stop: int
    free: bool

    def __len__(self) -> int:
        return self.stop - self.start


def stretches_of(picture: Picture) -> list[Stretch]:
    """All rows in order: those with memory in any plane, and few free ones beside them, apart from long free runs."""
    used = (picture.states != 0).any(0)
    edges = np.flatnonzero(np.diff(used)) + 1
    bounds = [0, *edges.tolist(), len(used)]
    found: list[Stretch] = []
    for start, stop in itertools.pairwise(bounds):
        free = not used[start] and stop - start >= _GAP
        if found and not found[-1].free and not free:
            found[-1] = Stretch(found[-1].start, stop, False)
        else:
            found.append(Stretch(start, stop, free))
    return found


@dataclass(frozen=True, slots=True)
class HandleRun:
    """Rows ``start`` to ``stop`` - 1 of a plane, whose handles go up by one from ``handle`` on."""

    plane: int
    start: int
    stop: int
    handle: int

    @property
    def last(self) -> int:
        """The last handle."""
        return self.handle + self.stop - self.start - 1


def handle_runs(picture: Picture, plane: int) -> list[HandleRun]:
    """The committed rows of one plane in order, a run for each stretch of handles that follow each other."""
    handles = picture.handles[plane]
    found: list[HandleRun] = []
    for row in np.flatnonzero(handles).tolist():
        handle = int(handles[row])
        if found and found[-1].stop == row and found[-1].last + 1 == handle:
            found[-1] = HandleRun(plane, found[-1].start, row + 1, found[-1].handle)
        else:
            found.append(HandleRun(plane, row, row + 1, handle))
    return found
