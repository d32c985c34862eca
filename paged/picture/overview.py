"""The two strips at the top of a picture: the virtual range to scale, and what its physical memory is spent on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vmm import format_size

from .colours import BY_ID, EMPTY, FAINT, IDLE, INK, LIVE_ROW, RETIRING
from .overview_cells import range_cells
from .picture import Numbers, Picture
from .row_kinds import RowKind
from .sheet import WIDTH, Section, label, rectangle, steps
from .spending import spending_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 400
_LEAST = 0.3

KIND_STYLES: dict[RowKind, dict[str, Any]] = {
    RowKind.LIVE: {"facecolor": LIVE_ROW},
    RowKind.CACHED: {"facecolor": IDLE, "hatch": "....", "edgecolor": BY_ID},
    RowKind.EMPTY: {"facecolor": EMPTY, "edgecolor": INK},
    RowKind.RETIRING: {"facecolor": RETIRING, "hatch": "\\\\\\\\", "edgecolor": BY_ID},
    RowKind.ASLEEP: {"facecolor": EMPTY, "hatch": "||||", "edgecolor": FAINT},
}
"""How chunks look: greys and hatches, for colours are the sequences'."""


def overview(picture: Picture) -> Section:
    """Every chunk of the reservation, at its address."""
    per_cell = -(-picture.states.size // _BINS)
    note = f"{picture.states.size:,} chunks of {format_size(picture.chunk)}, {per_cell:,} a cell"
    note += ", filled as far as committed (at least a third where any is)" if per_cell > 1 else ""
    title = f"Virtual range: {format_size(picture.reserved)} reserved, {format_size(picture.committed)} committed"
    if picture.asleep:
        title += f", {format_size(picture.asleep)} asleep"

    def paint(axes: Axes) -> None:
        height = 0.34
        rectangle(axes, 0, 0, WIDTH, height, facecolor="#ffffff", linewidth=0.8, edgecolor=INK)
        counts, edges = range_cells(picture, per_cell)
        _stack(axes, counts / np.diff(edges), edges * WIDTH / edges[-1], height)
        _planes(axes, picture, height)
        for place in range(5):
            address = picture.base + picture.reserved * place // 4
            where = f"{address:#x}" if place in (0, 4) else f"+{format_size(picture.reserved * place // 4)}"
            align = {0: "left", 4: "right"}.get(place, "center")
            axes.plot([WIDTH * place / 4] * 2, [height, height + 0.05], color=INK, linewidth=0.8, clip_on=False)
            label(axes, WIDTH * place / 4, height + 0.07, where, ha=align, family="monospace")

    return Section(title, note, 0.56, paint)


def _stack(axes: Axes, parts: Numbers, edges: Numbers, height: float) -> None:
    """Parts of each cell from the bottom up; a cell with any is filled to at least ``_LEAST``."""
    used = parts[1:].sum(0)
    scale = np.where((used > 0) & (used < _LEAST), _LEAST / np.maximum(used, 1e-9), 1.0)
    below = np.full(len(used), height)
    for kind, style in KIND_STYLES.items():
        above = below - parts[kind] * scale * height
        if (above < below).any():
            steps(axes, above, edges, below, linewidth=0.3, **style)
        below = above


def _planes(axes: Axes, picture: Picture, height: float) -> None:
    """Where the planes of an order by layer begin."""
    if picture.planes == 1:
        return
    for plane in range(1, picture.planes):
        x = WIDTH * plane / picture.planes
        axes.plot([x, x], [0, height], color=INK, linewidth=0.4, linestyle=(0, (2, 2)))
    shown = range(picture.planes) if picture.planes <= 12 else (0, 1, picture.planes - 1)
    for plane in shown:
        x = WIDTH * (plane + 0.5) / picture.planes
        label(axes, x, 0.03, f"plane {plane}" if picture.planes <= 12 else f"p{plane}", size=5.5, ha="center")


def spending_bar(picture: Picture) -> Section:
    """One bar: where the committed bytes go."""
    spent = spending_of(picture)
    parts: list[tuple[str, int, dict[str, Any]]] = [
        ("live tokens", spent.live, {"facecolor": LIVE_ROW}),
        ("unfilled slots", spent.unfilled, {"facecolor": "#ffffff", "hatch": "////", "edgecolor": LIVE_ROW}),
        ("held by id", spent.by_id, {"facecolor": BY_ID, "hatch": "xxx", "edgecolor": "#ffffff"}),
        ("cached, idle", spent.idle, KIND_STYLES[RowKind.CACHED]),
        ("free blocks in committed rows", spent.free, {"facecolor": EMPTY, "edgecolor": FAINT}),
        ("retiring", spent.retiring, KIND_STYLES[RowKind.RETIRING]),
    ]
    what = "asleep" if picture.asleep else "committed"
    ratio = f"committed / live {spent.total / spent.live:.2f}" if spent.live and not picture.asleep else ""

    def paint(axes: Axes) -> None:
        x, total = 0.0, max(1, spent.total)
        rectangle(axes, 0, 0, WIDTH, 0.2, facecolor="none", linewidth=0.8, edgecolor=INK)
        legend_x = 0.0
        for name, size, style in parts:
            if not size:
                continue
            width = WIDTH * size / total
            rectangle(axes, x, 0, width, 0.2, **{"linewidth": 0.6, **style})
            x += width
            rectangle(axes, legend_x, 0.29, 0.16, 0.11, **{"linewidth": 0.6, **style})
            text = f"{name} {format_size(size)} ({size / total:.1%})"
            label(axes, legend_x + 0.2, 0.345, text, va="center")
            legend_x += 0.42 + 0.062 * len(text)
        if not spent.total:
            label(axes, WIDTH / 2, 0.1, "nothing is committed", ha="center", va="center", color=BY_ID)

    return Section(f"What the {format_size(spent.total)} {what} are spent on", ratio, 0.44, paint)
