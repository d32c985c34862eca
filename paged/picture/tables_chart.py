"""Block tables of very many sequences: bands of neighbours, as high at each logical block as they hold blocks there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .colours import FAINT, SHARED, colours, hex_of
from .memory_chart import BANDS
from .picture import Numbers, Picture
from .sheet import WIDTH, Section, label, steps
from .table_bands import TableBands, table_bands
from .tables_lines import round_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 300
_GUTTER, _RIGHT, _AXIS, _TALL = 1.45, 2.9, 0.22, 0.2


def tables_chart(picture: Picture) -> Section:
    """All sequences in at most ``BANDS`` bands."""
    bands = table_bands(picture, BANDS, _COLUMNS)
    shades = [hex_of(colour) for colour in colours(len(bands))]

    def paint(axes: Axes) -> None:
        width = WIDTH - _GUTTER - _RIGHT
        bins = bands.entries.shape[1]
        edges = _GUTTER + np.arange(bins + 1) * width / bins
        for band, color in enumerate(shades):
            _band(axes, bands, band, color, edges)
        longest = bins * bands.columns_per_bin
        for column in range(0, longest + 1, round_step(longest, width)):
            x, bottom = _GUTTER + width * column / longest, len(bands) * _TALL
            axes.plot([x, x], [0, bottom + 0.05], color=FAINT, linewidth=0.3, zorder=0)
            label(axes, x, bottom + 0.07, f"{column:,}", size=6, ha="center")
        label(axes, _GUTTER - 0.1, len(bands) * _TALL + 0.07, "blocks", size=6, ha="right")

    title = f"Block tables of {len(picture.tables):,} sequences in {len(bands)} bands of {bands.per_band:,}"
    note = "height: how many of a band's sequences hold a block there; black of them shared"
    return Section(title, note, max(1, len(bands)) * _TALL + _AXIS, paint)


def _band(axes: Axes, bands: TableBands, band: int, color: str, edges: Numbers) -> None:
    """Its names, its profile and its numbers."""
    bottom = (band + 1) * _TALL
    most = int(bands.sequences[band]) * bands.columns_per_bin
    full = bottom - bands.entries[band] / most * _TALL * 0.92
    shared = bottom - bands.shared_entries[band] / most * _TALL * 0.92
    name = f"sequences-{bands.first[band]}-to-{bands.last[band]}"
    steps(axes, full, edges, bottom, name=name, facecolor=color)
    steps(axes, shared, edges, bottom, name=f"{name}-shared", facecolor=SHARED)
    axes.plot([edges[0], edges[-1]], [bottom, bottom], color=FAINT, linewidth=0.3)
    first, last = int(bands.first[band]), int(bands.last[band])
    names = f"seq {first:,}" if first == last else f"seq {first:,} to {last:,}"
    label(axes, _GUTTER - 0.08, bottom - _TALL / 2, names, size=6.5, ha="right", va="center")
    text = f"{bands.tokens[band]:,} tokens in {bands.blocks[band]:,} blocks, {bands.shared[band]:,} shared"
    if bands.dropped[band]:
        text += f", {bands.dropped[band]:,} dropped"
    label(axes, WIDTH - _RIGHT + 0.08, bottom - _TALL / 2, text, size=6.5, va="center")
