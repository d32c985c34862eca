"""Block tables as text: block ids in the order of the tokens; or bands of sequences with their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from .colours import colours, hex_of
from .level import NAMED, letter
from .picture import Picture
from .table_bands import TableBands, table_bands
from .text_line import Line, wrapped

_COLUMNS = 20


def table_lines(picture: Picture, width: int) -> Iterator[Line]:
    """Every sequence with every block; runs of ids that follow each other are one entry."""
    tables, styles = picture.tables, [hex_of(colour) for colour in colours(len(picture.tables))]
    yield [(f"Block tables of {len(tables)} sequence{'s' * (len(tables) != 1)}", "bold")]
    names = max((len(str(name)) for name in tables.names.tolist()), default=0)
    for place in range(len(tables)):
        tokens = f"{int(tables.lengths[place]):,}".rjust(6)
        head = f"seq {str(tables.names[place]).ljust(names)} {tokens} tokens  "
        lines = list(wrapped(" ".join(_entries(picture, place)), width - len(head) - 2))
        for at, line in enumerate(lines):
            mark = (letter(place) if not at else " ", f"bold {styles[place]}")
            yield [mark, (f" {head}" if not at else " " * (len(head) + 1), ""), (line[0][0], styles[place])]
    if len(tables):
        text = "id x2: two hold it; id 5/16: slots filled; - dropped; c: the prefix cache has it; cow: the next append "
        yield from wrapped(text + "copies it", width, "dim")


def _entries(picture: Picture, place: int) -> list[str]:
    """The blocks of one table; what is alike and follows each other is joined."""
    tables = picture.tables
    dropped, length = int(tables.dropped[place]), int(tables.lengths[place])
    found = [f"-({dropped} dropped)"] if dropped else []
    runs: list[tuple[int, int, str]] = []
    held = tables.held(place).tolist()
    for at, block in enumerate(held):
        tokens = min(picture.block_size, length - (dropped + at) * picture.block_size)
        marks = _marks(picture, block, tokens, copied=block == held[-1] and picture.copies_next(place))
        if runs and runs[-1][1] == block - 1 and runs[-1][2] == marks:
            runs[-1] = (runs[-1][0], block, marks)
        else:
            runs.append((block, block, marks))
    return found + [(f"{first}-{last}" if last > first else str(first)) + marks for first, last, marks in runs]


def _marks(picture: Picture, block: int, tokens: int, *, copied: bool) -> str:
    count = int(picture.counts[block])
    marks = [f"x{count}"] * (count > 1)
    marks += ["c"] * bool(picture.cached[block])
    marks += [f"{tokens}/{picture.block_size}"] * (tokens < picture.block_size)
    marks += ["cow"] * copied
    return f"({','.join(marks)})" if marks else ""


def band_lines(picture: Picture, width: int) -> Iterator[Line]:
    """Bands of neighbouring sequences: their numbers, and how many of them are how long."""
    bands = table_bands(picture, NAMED, _COLUMNS)
    styles = [hex_of(colour) for colour in colours(len(bands))]
    count = len(picture.tables)
    title = f"Block tables of {count:,} sequence{'s' * (count != 1)} in {len(bands)} bands of {bands.per_band:,}"
    yield from wrapped(title, width, "bold")
    names = [_names(bands, band) for band in range(len(bands))]
    widest = max(len(name) for name in names) if names else 0
    heading = f"  {'seq'.ljust(widest)} {'tokens':>11} {'blocks':>9} {'shared':>8}  tenths that have a block"
    yield [(heading[:width], "dim")]
    for band, name in enumerate(names):
        numbers = f"{bands.tokens[band]:>11,} {bands.blocks[band]:>9,} {bands.shared[band]:>8,}"
        most = int(bands.sequences[band]) * bands.columns_per_bin
        profile = "".join(_tenth(int(entries), most) for entries in bands.entries[band]).rstrip()
        head = f" {name.ljust(widest)} {numbers}  "
        yield [(letter(band), f"bold {styles[band]}"), (head, ""), (profile[: width - len(head) - 1], styles[band])]
    blocks = f"{bands.columns_per_bin:,} logical block{'s' * (bands.columns_per_bin > 1)}"
    text = f"A digit stands for {blocks}: 0 to 9 tenths of the band's sequences hold one there, # all of them"
    dropped = int(bands.dropped.sum())
    yield from wrapped(f"{text}; {dropped:,} blocks are dropped" if dropped else text, width, "dim")


def _names(bands: TableBands, band: int) -> str:
    first, last = int(bands.first[band]), int(bands.last[band])
    return f"{first}" if first == last else f"{first} to {last}"


def _tenth(entries: int, most: int) -> str:
    if not entries:
        return " "
    return "#" if entries == most else str(10 * entries // most)
