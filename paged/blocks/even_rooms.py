"""EvenRooms: Rooms for rows that hold several blocks of which none straddles. Integers only.

A row that comes empty has all of its blocks again, so that its room need not be listed until a part of it is taken:
whole rows come and go without a step for each block.
"""

from __future__ import annotations

import numpy as np

from .block_ids import Ids
from .committed_rows import CommittedRows
from .rows import Rows

_FEW = 3  # whole rows that are faster as a list


class EvenRooms:
    """``available`` is how many blocks can be taken; ``by_fill[n]`` are the rows that have room and ``n`` live blocks.

    An empty row has room and a full row none: ``empty``, the committed rows without a live block, is ``by_fill[0]``.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.available = 0
        self._per_row = rows.chunk // rows.block_stride
        self._sizes = [self._per_row] * rows.count
        self._sizes[-1] = rows.blocks - (rows.count - 1) * self._per_row
        self.fills = [0] * rows.count
        self.rooms: list[list[int]] = [[] for _ in range(rows.count)]  # of the rows that hold something
        self.by_fill: list[dict[int, None]] = [{} for _ in range(self._per_row + 1)]
        self.top = 0  # no row with room is fuller
        self._ids = np.arange(rows.count * self._per_row).reshape(rows.count, self._per_row)  # of whole rows

    @property
    def empty(self) -> dict[int, None]:
        """The committed rows in which nothing is live."""
        return self.by_fill[0]

    def fill(self, row: int) -> int:
        """Live blocks in a row."""
        return self.fills[row]

    def room(self, row: int) -> list[int]:
        """The blocks of a row that can be taken."""
        return list(self._all(row)) if row in self.empty else list(self.rooms[row])

    def listed(self) -> list[int]:
        """The blocks that can be taken, ascending."""
        return sorted(block for row in range(self.rows.count) for block in self.room(row))

    def with_room(self) -> list[int]:
        """The rows that have room."""
        return [row for row, room in enumerate(self.rooms) if room or row in self.empty]

    # -- blocks -------------------------------------------------------------------------------------------------

    def take(self, blocks: int) -> list[int] | Ids:
        """Take ``blocks`` of the available blocks, from the fullest rows down: a few as a list, many as an array."""
        by_fill, fills, sizes, per_row = self.by_fill, self.fills, self._sizes, self._per_row
        before: list[int] = []
        whole: list[int] = []
        after: list[int] = []
        left, top = blocks, self.top
        while left:
            bucket = by_fill[top]
            if not bucket:
                top -= 1
                continue
            row = bucket.popitem()[0]
            if left >= per_row and sizes[row] - top == per_row:
                whole.append(row)
                fills[row] = per_row
                left -= per_row
                continue
            number = min(left, sizes[row] - top)
            room = self.rooms[row] if top else self._list(row)
            (after if whole else before).extend(room[: -number - 1 : -1])
            del room[-number:]
            left -= number
            fills[row] = fill = top + number
            if fill < sizes[row]:  # then nothing is left to take
                by_fill[fill][row] = None
                top = fill
        self.top = top
        self.available -= blocks
        return self._join(before, whole, after)

    def take_one(self) -> int:
        """As ``take`` of one: what a decode step asks for."""
        by_fill, top = self.by_fill, self.top
        while not by_fill[top]:
            top -= 1
        row = by_fill[top].popitem()[0]
        room = self.rooms[row] if top else self._list(row)
        block = room.pop()
        self.fills[row] = top + 1
        if room:
            top += 1
            by_fill[top][row] = None
        self.top = top
        self.available -= 1
        return block

    def put(self, dead: Ids) -> list[int]:
        """Put blocks that came free back into the rooms of their rows; return the rows that came empty."""
        rows, starts = self._runs(dead)
        if 2 * len(starts) > len(dead):  # in no order: to visit each row once is worth a sort
            dead = np.sort(dead)
            rows, starts = self._runs(dead)
        emptied: list[int] = []
        stop = len(dead)
        for row, start in zip(rows[starts[::-1]].tolist(), starts[::-1].tolist(), strict=True):
            if self._refill(row, start - stop):
                self.rooms[row] += dead[start:stop].tolist()
            else:
                emptied.append(row)
            stop = start
        self.available += len(dead)
        return emptied

    def put_few(self, dead: list[int]) -> list[int]:
        """As ``put``, for a few blocks in a list."""
        emptied: list[int] = []
        start, row = 0, dead[0] // self._per_row
        for stop, block in enumerate((*dead, -1)):
            if block // self._per_row == row:
                continue
            if self._refill(row, start - stop):  # a run of blocks of one row ends here
                self.rooms[row] += dead[start:stop]
            else:
                emptied.append(row)
            start, row = stop, block // self._per_row
        self.available += len(dead)
        return emptied

    def put_one(self, block: int) -> list[int]:
        """As ``put`` of one."""
        row = block // self._per_row
        room, fill = self.rooms[row], self.fills[row]
        if room:
            del self.by_fill[fill][row]
        room.append(block)
        fill -= 1
        self.fills[row] = fill
        self.by_fill[fill][row] = None
        if fill > self.top:
            self.top = fill
        self.available += 1
        if fill:
            return []
        room.clear()
        return [row]

    def remove(self, block: int) -> None:
        """Take one available block by its id."""
        row = block // self._per_row
        room = self.rooms[row] if self.fills[row] else self._list(row)
        self._refill(row, 1)
        room.remove(block)
        self.available -= 1

    # -- rows ---------------------------------------------------------------------------------------------------

    def open(self, rows: list[int], committed: CommittedRows) -> None:  # noqa: ARG002  the same as Rooms
        """Rows, ascending, have got memory. The lowest is the first to be used."""
        self.empty.update(dict.fromkeys(reversed(rows)))
        self.available += sum(self._sizes[row] for row in rows)

    def shut(self, row: int, committed: CommittedRows) -> None:  # noqa: ARG002  the same as Rooms
        """An empty row is about to lose its memory: its blocks are available no longer."""
        del self.empty[row]
        self.available -= self._sizes[row]

    # -- steps --------------------------------------------------------------------------------------------------

    def _all(self, row: int) -> range:
        start = row * self._per_row
        return range(start, start + self._sizes[row])

    def _join(self, before: list[int], whole: list[int], after: list[int]) -> list[int] | Ids:
        """Some blocks, those of whole rows, and some more."""
        if len(whole) <= _FEW:
            for row in whole:
                before += self._all(row)
            return before + after
        inside: Ids = self._ids.take(whole, axis=0).reshape(-1)
        if not before and not after:
            return inside
        return np.concatenate((np.array(before, np.int64), inside, np.array(after, np.int64)))

    def _list(self, row: int) -> list[int]:
        """List the room of an empty row, of which a part is about to be taken: the lowest block last, to go first."""
        self.rooms[row] = room = list(reversed(self._all(row)))
        return room

    def _refill(self, row: int, change: int) -> int:
        """Count ``change`` more live blocks in a row, wherever it is, and return how many there are."""
        before, size = self.fills[row], self._sizes[row]
        self.fills[row] = fill = before + change
        if before < size:
            del self.by_fill[before][row]
        if fill < size:
            self.by_fill[fill][row] = None
            if fill > self.top:
                self.top = fill
        if not fill:
            self.rooms[row].clear()
        return fill

    def _runs(self, blocks: Ids) -> tuple[Ids, Ids]:
        """The row of each block, and where in ``blocks`` a row begins that is not that of the block before."""
        rows = blocks // self._per_row
        begins = np.empty(len(rows), np.bool_)
        begins[:1] = True
        np.not_equal(rows[1:], rows[:-1], out=begins[1:])
        return rows, begins.nonzero()[0]
