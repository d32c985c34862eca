"""Rooms: the free blocks of committed rows, by row, and the order in which rows are used. Integers only.

A row's room is the list of free blocks that start in it and lie wholly in committed rows. Rows that have room are kept
by their fill, the number of live blocks that touch them, so that the fullest is found at once. Here a block may lie in
more than one row; EvenRooms and SingleRooms are the same for rows that hold whole blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain

from .block_ids import Ids
from .committed_rows import CommittedRows
from .rows import Rows


class Rooms:
    """``available`` is how many blocks are in rooms; ``empty`` holds the committed rows in which nothing is live."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.available = 0
        self.fills = [0] * rows.count
        self.rooms: list[list[int]] = [[] for _ in range(rows.count)]
        most = -(-rows.chunk // rows.block_stride) + 1
        self.by_fill: list[dict[int, None]] = [{} for _ in range(most + 1)]  # the rows that have room
        self.top = 0  # no row with room is fuller
        common = math.gcd(rows.block_stride, rows.chunk)  # small numbers divide faster
        self._stride, self._chunk = rows.block_stride // common, rows.chunk // common
        self.empty: dict[int, None] = {}

    def fill(self, row: int) -> int:
        """Live blocks that touch a row."""
        return self.fills[row]

    def room(self, row: int) -> list[int]:
        """The blocks that start in a row and can be taken."""
        return list(self.rooms[row])

    def listed(self) -> list[int]:
        """The blocks that can be taken, ascending."""
        return sorted(chain.from_iterable(self.rooms))

    def with_room(self) -> list[int]:
        """The rows that have room."""
        return [row for row, room in enumerate(self.rooms) if room]

    # -- blocks -------------------------------------------------------------------------------------------------

    def take(self, blocks: int) -> list[int]:
        """Take ``blocks`` of the available blocks, from the fullest rows down."""
        by_fill, rooms, fills = self.by_fill, self.rooms, self.fills
        taken: list[int] = []
        left, top = blocks, self.top
        while left:
            if not by_fill[top]:
                top -= 1
                continue
            row, _ = by_fill[top].popitem()
            if not top:
                del self.empty[row]
            room = rooms[row]
            if left < len(room):
                taken += room[: -left - 1 : -1]
                del room[-left:]
                fills[row] = top = top + left
                by_fill[top][row] = None
                break
            fills[row] = top + len(room)
            left -= len(room)
            room.reverse()
            taken += room
            room.clear()
        self.top = top
        self.available -= blocks
        self._touch_further_rows(taken, 1)
        return taken

    def put(self, dead: Ids) -> list[int]:
        """Put blocks that came free into the rooms of their rows; return the rows that came empty."""
        return self.put_few(dead.tolist())

    def put_few(self, dead: list[int]) -> list[int]:
        """As ``put``, for blocks in a list."""
        stride, chunk = self._stride, self._chunk
        by_fill, rooms, fills = self.by_fill, self.rooms, self.fills
        emptied: list[int] = []
        row, fill, top = -1, 0, self.top
        room: list[int] = []
        for block in chain(dead, (-1,)):
            next_row = block * stride // chunk
            if next_row != row:  # done with a run of blocks of one row
                if row >= 0:
                    fills[row] = fill
                    by_fill[fill][row] = None
                    if fill > top:
                        top = fill
                    if not fill:
                        emptied.append(row)
                row = next_row
                if row < 0:
                    break
                room, fill = rooms[row], fills[row]
                if room:
                    del by_fill[fill][row]
            room.append(block)
            fill -= 1
        self.top = top
        self.available += len(dead)
        self.empty.update(dict.fromkeys(emptied))
        return emptied + self._touch_further_rows(dead, -1)

    def remove(self, block: int) -> None:
        """Take one available block by its id."""
        self._withdraw(block)
        for row in self.rows.of(block):
            self._refill(row, 1)

    # -- rows ---------------------------------------------------------------------------------------------------

    def open(self, rows: list[int], committed: CommittedRows) -> None:
        """Rows, ascending, have got memory: the blocks that lie wholly in committed rows now come available."""
        fresh: dict[int, list[int]] = {}
        last = -1
        for row in rows:
            self.empty[row] = None
            fresh[row] = []
            for block in self.rows.touching(row):
                if block > last and committed.holds(block):
                    fresh.setdefault(self.rows.first(block), []).append(block)
                    last = block
        for row, blocks in reversed(fresh.items()):  # the lowest row last: it is then the first to be used
            if blocks:
                self.rooms[row] += reversed(blocks)
                self.by_fill[self.fills[row]][row] = None
                self.top = max(self.top, self.fills[row])
                self.available += len(blocks)

    def shut(self, row: int, committed: CommittedRows) -> None:
        """An empty row, which is still marked, is about to lose its memory: its blocks are available no longer."""
        for block in self.rows.touching(row)[:1]:  # at most one starts in a lower row
            if self.rows.first(block) < row and committed.holds(block):
                self._withdraw(block)
        room = self.rooms[row]
        if room:
            self.available -= len(room)
            room.clear()
            del self.by_fill[0][row]
        self.empty.pop(row, None)

    # -- one block ----------------------------------------------------------------------------------------------

    def take_one(self) -> int:
        """As ``take`` of one."""
        return self.take(1)[0]

    def put_one(self, block: int) -> list[int]:
        """As ``put`` of one."""
        return self.put_few([block])

    # -- steps --------------------------------------------------------------------------------------------------

    def _withdraw(self, block: int) -> None:
        """Strike a block off its row's room; no row's fill changes."""
        row = self.rows.first(block)
        self.rooms[row].remove(block)
        self.available -= 1
        if not self.rooms[row]:
            del self.by_fill[self.fills[row]][row]

    def _refill(self, row: int, change: int) -> None:
        """Count ``change`` more live blocks in a row, wherever it is."""
        before = self.fills[row]
        self.fills[row] = fill = before + change
        if self.rooms[row]:
            del self.by_fill[before][row]
            self.by_fill[fill][row] = None
            self.top = max(self.top, fill)
        if not before:
            del self.empty[row]
        if not fill:
            self.empty[row] = None

    def _touch_further_rows(self, blocks: Iterable[int], change: int) -> list[int]:
        """Count blocks in the rows after the one they start in; return the rows that came empty."""
        stride, chunk = self._stride, self._chunk
        emptied: list[int] = []
        for block in blocks:
            first, last = block * stride // chunk, ((block + 1) * stride - 1) // chunk
            for row in range(first + 1, last + 1) if last > first else ():
                self._refill(row, change)
                if not self.fills[row]:
                    emptied.append(row)
        return emptied
