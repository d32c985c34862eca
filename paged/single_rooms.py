"""SingleRooms: Rooms for the common case that a block is a row, as 16 tokens of an 8B model are one chunk of 2 MiB.

A row has room when it is empty, and no row is fuller than another, so that a stack is all there is. Integers only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .committed_rows import CommittedRows
from .rows import Rows


class SingleRooms(Collection[int]):
    """The committed rows that are empty, as a collection and in the order of their use: the same as ``Rooms`` offers.

    ``counts`` says how many hold each block. A row that leaves from the middle of the stack stays there as ``gone``.
    """

    def __init__(self, rows: Rows, counts: list[int], committed: CommittedRows) -> None:
        self.rows = rows
        self._counts, self._committed = counts, committed
        self.available = 0  # how many blocks can be taken
        self._stack: list[int] = []
        self._gone: set[int] = set()

    def __len__(self) -> int:
        return self.available

    def __contains__(self, row: object) -> bool:
        return isinstance(row, int) and not self._counts[row] and row in self._committed

    def __iter__(self) -> Iterator[int]:
        return (row for row in self._stack if row not in self._gone)

    @property
    def empty(self) -> Collection[int]:
        """The committed rows in which nothing is live."""
        return self

    def fill(self, row: int) -> int:
        """Live blocks in a row."""
        return int(self._counts[row] > 0)

    def room(self, row: int) -> list[int]:
        """The blocks of a row that can be taken."""
        return [row] if row in self else []

    def take(self, blocks: int) -> list[int]:
        """Take ``blocks`` of the available blocks, the last that came first."""
        stack, gone = self._stack, self._gone
        self.available -= blocks
        if not gone:
            taken = stack[: -blocks - 1 : -1]
            del stack[len(stack) - blocks :]
            return taken
        taken = []
        while len(taken) < blocks:
            row = stack.pop()
            if row in gone:
                gone.remove(row)
            else:
                taken.append(row)
        return taken

    def take_one(self) -> int:
        """As ``take`` of one."""
        if self._gone:
            return self.take(1)[0]
        self.available -= 1
        return self._stack.pop()

    def put_one(self, block: int) -> list[int]:
        """As ``put`` of one."""
        if self._gone:
            return self.put([block])
        self.available += 1
        self._stack.append(block)
        return [block]

    def put(self, dead: list[int]) -> list[int]:
        """Put blocks that came free back; return the rows that came empty."""
        self._enter(dead)
        return list(dead)

    def remove(self, block: int) -> None:
        """Take one available block by its id."""
        self.available -= 1
        if self._stack[-1] == block:
            self._stack.pop()
        else:
            self._gone.add(block)

    def open(self, rows: list[int], committed: CommittedRows) -> None:  # noqa: ARG002  the same as Rooms
        """Rows, ascending, have got memory. The lowest is the first to be used."""
        self._enter(rows[::-1])

    def shut(self, row: int, committed: CommittedRows) -> None:  # noqa: ARG002  the same as Rooms
        """An empty row is about to lose its memory."""
        self.remove(row)

    def _enter(self, rows: list[int]) -> None:
        """Push rows; one that had gone is on the stack still."""
        self.available += len(rows)
        if not self._gone:
            self._stack += rows
            return
        for row in rows:
            if row in self._gone:
                self._gone.remove(row)
            else:
                self._stack.append(row)
