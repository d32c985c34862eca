"""draw and show: a picture of a pool as a PNG or SVG file, and as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic_file import write_atomically
from .colours import colours
from .headline import describe, headline
from .level import Level, level_of
from .picture import Picture
from .sheet import DPI, Section, Sheet
from .snapshot import picture_of
from .text import LEAST_WIDTH, text_lines

if TYPE_CHECKING:
    from rich.console import Console

    from ..pool import KVPool

FORMATS = ("png", "svg")
"""File name endings that a picture can have."""


def draw(what: KVPool | Picture, path: str | Path) -> None:
    """Write the picture of a pool, or one taken before, to ``path`` (.png or .svg), whole or not at all.

    One picture gives the same bytes each time. Raises ValueError for another ending, ClosedError for a closed pool,
    OSError naming a ``path`` that cannot be written.
    """
    target = Path(path)
    ending = check_ending(target)
    picture = what if isinstance(what, Picture) else picture_of(what)
    import matplotlib

    fixed = {"svg.hashsalt": "pagewalk", "svg.fonttype": "none", "hatch.linewidth": 0.6, "path.simplify": False}
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "backend": "agg", **fixed}):
        sheet = sheet_of(picture)
        figure, title = sheet.figure(), {"Title": sheet.title}
        metadata = {**title, "Date": None} if ending == "svg" else {**title, "Software": "Pagewalk"}
        write_atomically(target, lambda out: figure.savefig(out, format=ending, dpi=DPI, metadata=metadata))


def check_ending(path: Path) -> str:
    """The format that a file's name asks for."""
    ending = path.suffix[1:].lower()
    if ending not in FORMATS:
        raise ValueError(f"{path}: a picture is written as png or svg; end the name with one of them")
    return ending


def sheet_of(picture: Picture) -> Sheet:
    """The picture as a sheet, as fine as it can be read."""
    from .legend import legend
    from .overview import overview, spending_bar

    level = level_of(picture)
    parts = {Level.BLOCKS: _blocks, Level.LINES: _lines, Level.BINS: _bins}[level](picture)
    sheet = Sheet(f"KV pool {picture.name!r}: {headline(picture)}", [describe(picture)])
    sheet.sections = [overview(picture), spending_bar(picture), *parts, legend(picture, level)]
    return sheet


def _blocks(picture: Picture) -> list[Section]:
    from .block_cell import Painter
    from .memory_blocks import memory_blocks
    from .tables_blocks import tables_blocks

    painter = Painter(picture, picture.holders(), colours(len(picture.tables)))
    return [memory_blocks(picture, painter), tables_blocks(picture, painter)]


def _lines(picture: Picture) -> list[Section]:
    from .memory_lines import memory_lines
    from .tables_lines import tables_lines

    return [memory_lines(picture), tables_lines(picture)]


def _bins(picture: Picture) -> list[Section]:
    from .memory_chart import memory_chart
    from .tables_chart import tables_chart

    return [memory_chart(picture), tables_chart(picture)]


def show(what: KVPool | Picture, *, console: Console | None = None) -> None:
    """Print the picture of a pool, or one taken before: on a terminal in colour, in a pipe without, 80 columns wide.

    ``console`` is rich's, by default one on standard output. Raises ClosedError for a closed pool.
    """
    from rich.console import Console
    from rich.text import Text

    picture = what if isinstance(what, Picture) else picture_of(what)
    out = console or Console(highlight=False)
    width = max(LEAST_WIDTH, out.width) if out.is_terminal or console else 80
    for line in text_lines(picture, width):
        out.print(Text.assemble(*line), soft_wrap=True)
