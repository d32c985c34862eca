"""FigureTable: a table whose figures and names are never broken, however narrow the terminal is.

Where the columns have no room side by side, they stand below each other in parts, each with the first column again.
Headers break between words, texts too; a figure never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

_GAP = 2
_TEXT = 24
"""The least width of a column of text."""


class FigureTable:
    """``head`` is the first column's, then those of figures; ``texts`` are columns of text after these."""

    def __init__(self, first: str, *figures: str, texts: Sequence[str] = ()) -> None:
        self.head = [first, *figures, *texts]
        self._first_text = 1 + len(figures)
        self.rows: list[list[str]] = []

    def add_row(self, *cells: str) -> None:
        """A row; without cells it is empty."""
        self.rows.append([cell for cell, _ in zip_longest(cells, self.head, fillvalue="")])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The parts, an empty line between two."""
        for number, part in enumerate(self._parts(options.max_width)):
            if number:
                yield ""
            yield self._table(part, options.max_width)

    def _least(self, column: int) -> int:
        """The width below which something in a column would break that must not."""
        cells = [row[column] for row in self.rows]
        if column >= self._first_text:
            return min(max(map(len, [self.head[column], *cells])), _TEXT)
        return max(map(len, [*(self.head[column].split() if column else [self.head[0]]), *cells]), default=0)

    def _parts(self, width: int) -> list[list[int]]:
        """The columns of each part: as many as have room beside the first, at least one."""
        parts: list[list[int]] = []
        room = 0
        for column in range(1, len(self.head)):
            needed = _GAP + self._least(column)
            if not parts or needed > room:
                parts.append([])
                room = width - self._least(0)
            parts[-1].append(column)
            room -= needed
        return parts

    def _table(self, part: list[int], width: int) -> Table:
        """One part: what room is left goes to headers that would break, from the left, and then to texts."""
        columns = [0, *part]
        widths = {column: self._least(column) for column in columns}
        room = width - sum(widths.values()) - _GAP * len(part)
        for column in columns:
            wanted = max(map(len, [self.head[column], *(row[column] for row in self.rows)]))
            widths[column] += (more := max(0, min(room, wanted - widths[column])))
            room -= more
        made = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            left = column == 0 or column >= self._first_text
            made.add_column(self.head[column], justify="left" if left else "right", width=widths[column])
        for row in self.rows:
            made.add_row(*(row[column] for column in columns))
        return made
