"""One block as a cell: colour of its sequence, filled as far as it has tokens, id, holders and marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .colours import BY_ID, FAINT, IDLE, INK, Colour, ink_on, mix
from .level import letter
from .picture import BlockKind, Holders, Picture
from .sheet import label, rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SPLITS = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """A rectangle for the part from ``first`` to ``last`` (0 to 1) of a block."""

    x: float
    y: float
    width: float
    height: float
    first: float = 0.0
    last: float = 1.0


@dataclass(frozen=True, slots=True)
class Painter:
    """Paints the blocks of one picture; the same colour for a sequence everywhere."""

    picture: Picture
    holders: Holders
    colours: list[Colour]

    def in_memory(self, axes: Axes, block: int, cell: Cell) -> None:
        """A block as memory has it: split by its holders."""
        kind, places = BlockKind(self.picture.kinds[block]), self.holders.of(block)
        name = f"memory-block-{block}" + (f"-from-{cell.first:.3f}" if cell.first else "")
        if kind in (BlockKind.FREE, BlockKind.IDLE) or not places:
            self._plain(axes, block, cell, kind, name)
            return
        self._fill(axes, block, cell, places[:_MOST_SPLITS], name)
        who = " ".join(letter(place) for place in places[:_MOST_SPLITS])
        who += "+" if len(places) > _MOST_SPLITS else ""
        self._write(axes, block, cell, who, self.colours[places[0]])

    def in_table(self, axes: Axes, block: int, cell: Cell, place: int, note: str) -> None:
        """A block as the table of one of its sequences has it."""
        name = f"sequence-{self.picture.tables.names[place]}-block-{block}"
        self._fill(axes, block, cell, [place], name)
        self._write(axes, block, cell, note, self.colours[place])

    def _plain(self, axes: Axes, block: int, cell: Cell, kind: BlockKind, name: str) -> None:
        """A block that no sequence has."""
        styles = {
            BlockKind.FREE: {"facecolor": "#ffffff", "edgecolor": "#cccccc"},
            BlockKind.IDLE: {"facecolor": IDLE, "hatch": "....", "edgecolor": BY_ID},
        }
        style = styles.get(kind, {"facecolor": BY_ID, "hatch": "xxx", "edgecolor": "#ffffff"})
        rectangle(axes, cell.x, cell.y, cell.width, cell.height, name=name, **{"linewidth": 0.5, **style})
        if cell.first:
            return
        color = FAINT if kind == BlockKind.FREE else INK
        boxed: dict[str, Any] = (
            {} if kind == BlockKind.FREE else {"bbox": {"facecolor": "#ffffff", "linewidth": 0, "pad": 0.6}}
        )
        middle = cell.x + cell.width / 2, cell.y + cell.height * 0.42
        label(axes, *middle, str(block), size=self._size(cell, block), color=color, ha="center", va="center", **boxed)

    def _fill(self, axes: Axes, block: int, cell: Cell, places: list[int], name: str) -> None:
        """Colours from the top down, as far to the right as the block has tokens; the rest is hatched."""
        part = float(self.picture.filled[block]) / self.picture.block_size
        reach = min(max((part - cell.first) / (cell.last - cell.first), 0.0), 1.0) * cell.width
        step = cell.height / len(places)
        for at, place in enumerate(places):
            colour, y = self.colours[place], cell.y + at * step
            of = f"{name}-filled-by-{self.picture.tables.names[place]}"
            rectangle(axes, cell.x, y, reach, step, name=of, facecolor=colour)
            if reach < cell.width:
                width, pale = cell.width - reach, mix(colour, (1, 1, 1), 0.8)
                rectangle(axes, cell.x + reach, y, width, step, facecolor=pale, hatch="/////", edgecolor=colour)
        shared = self.picture.counts[block] > 1
        copied = shared and part < 1
        rectangle(
            axes,
            cell.x + 0.012,
            cell.y + 0.012,
            cell.width - 0.024,
            cell.height - 0.024,
            name=name,
            facecolor="none",
            edgecolor=INK,
            linewidth=1.8 if shared else 0.5,
            linestyle=(0, (2, 1)) if copied else "solid",
        )

    def _write(self, axes: Axes, block: int, cell: Cell, note: str, colour: Colour) -> None:
        """Id, who or how full, how many hold it, and whether the prefix cache has it."""
        if cell.first:
            return
        part = float(self.picture.filled[block]) / self.picture.block_size
        boxed: dict[str, Any] = (
            {} if part == 1 else {"bbox": {"facecolor": "#ffffff", "alpha": 0.75, "linewidth": 0, "pad": 0.3}}
        )
        color = ink_on(colour) if part == 1 else INK
        x, size = cell.x + cell.width / 2, self._size(cell, block)
        count = int(self.picture.counts[block])
        text = f"{block}×{count}" if count > 1 else str(block)
        label(
            axes,
            x,
            cell.y + cell.height * 0.36,
            text,
            size=size,
            color=color,
            ha="center",
            va="center",
            weight="bold",
            **boxed,
        )
        mark = "c" if self.picture.cached[block] else ""
        below = f"{note} {mark}".strip() if cell.width > 0.25 else note
        if below:
            middle = cell.y + cell.height * 0.75
            label(axes, x, middle, below, size=size - 1, color=color, ha="center", va="center", **boxed)

    def _size(self, cell: Cell, block: int) -> float:
        """A font size at which the id fits."""
        letters = len(str(block)) + (2 if self.picture.counts[block] > 1 else 0)
        whole = cell.width / (cell.last - cell.first) if cell.last > cell.first else cell.width
        return float(min(7.5, max(3.0, min(cell.width, whole) * 0.92 / max(letters, 2) / 0.62 * 72)))
