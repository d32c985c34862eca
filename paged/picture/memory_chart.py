"""Memory of very many sequences: what each stretch of the range is spent on, as a stack that fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vmm import format_size

from .colours import BY_ID, EMPTY, IDLE, INK, RETIRING, SHARED, colours, hex_of
from .memory_bins import MemoryBins, Part, memory_bins
from .memory_title import memory_note
from .picture import Numbers, Picture
from .sheet import WIDTH, Section, label, rectangle, steps
from .table_bands import table_bands

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BANDS, _BINS = 40, 300
_GUTTER, _HEIGHT = 0.6, 2.6

_STYLES: tuple[tuple[Part, dict[str, Any]], ...] = (
    (Part.BY_ID, {"facecolor": BY_ID, "hatch": "xxx", "edgecolor": "#ffffff"}),
    (Part.IDLE, {"facecolor": IDLE, "hatch": "....", "edgecolor": BY_ID}),
    (Part.EMPTY, {"facecolor": EMPTY}),
    (Part.RETIRING, {"facecolor": RETIRING, "hatch": "\\\\\\\\", "edgecolor": BY_ID}),
)


def memory_chart(picture: Picture) -> Section:
    """The first plane from row 0 to the last that is not free."""
    bands = table_bands(picture, BANDS, 1)
    bins = memory_bins(picture, _BINS, bands.per_band)

    def paint(axes: Axes) -> None:
        edges = _GUTTER + np.concatenate(([0], np.cumsum(bins.sizes))) * (WIDTH - _GUTTER) / bins.sizes.sum()
        _stack(axes, bins, edges)
        width = WIDTH - _GUTTER
        rectangle(axes, _GUTTER, 0, width, _HEIGHT, facecolor="none", linewidth=0.8, edgecolor=INK)
        for part in range(5):
            y = _HEIGHT * (1 - part / 4)
            label(axes, _GUTTER - 0.07, y, f"{part * 25} %", size=6.5, ha="right", va="center")
        for quarter in range(5):
            at = int(bins.sizes.sum()) * quarter // 4
            text = f"row {at // picture.chunk:,}"
            align = {0: "left", 4: "right"}.get(quarter, "center")
            label(axes, _GUTTER + width * quarter / 4, _HEIGHT + 0.04, text, size=6.5, ha=align)

    size = format_size(bins.rows_per_bin * picture.chunk * picture.planes)
    rows = f"{bins.rows_per_bin:,} row{'s' * (bins.rows_per_bin != 1)}"
    where = "the range" if picture.planes == 1 else f"plane 0 of {picture.planes}"
    title = f"Physical memory under {where}: {len(bins.sizes):,} bins of {rows} ({size})"
    if not picture.planes_alike:
        title += "; planes are NOT alike"
    return Section(title, f"{memory_note(picture)}; height: share of each bin's bytes", _HEIGHT + 0.2, paint)


def _stack(axes: Axes, bins: MemoryBins, edges: Numbers) -> None:
    """From the bottom up: shared blocks, bands of sequences, what nobody runs with. What is left is not committed."""
    below = np.full(len(bins.sizes), _HEIGHT)

    def layer(amount: Numbers, name: str, **style: Any) -> None:
        nonlocal below
        above = below - amount / bins.sizes * _HEIGHT
        if amount.any():
            steps(axes, above, edges, below, name=f"memory-{name}", antialiased=False, **style)
        below = above

    layer(bins.parts[Part.SHARED], "shared", facecolor=SHARED)
    for band, colour in enumerate(colours(len(bins.bands))):
        layer(bins.bands[band], f"band-{band}", facecolor=hex_of(colour))
    for part, style in _STYLES:
        layer(bins.parts[part], part.name.lower().replace("_", "-"), **style)
