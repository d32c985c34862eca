"""The legend: what the greys, hatches, borders and letters of a picture mean; only what its level shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .colours import BY_ID, EMPTY, FAINT, IDLE, INK, SHARED, on_scale
from .level import NAMED, Level
from .overview import KIND_STYLES
from .picture import Picture
from .row_kinds import RowKind
from .sheet import WIDTH, Section, label, rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Entry = tuple[str, dict[str, Any]]
"""A text and the style of its sample."""

_SAMPLE = "#56b4e9"
_DOTTED: dict[str, Any] = {"facecolor": "none", "edgecolor": FAINT, "linestyle": (0, (1, 2))}


def legend(picture: Picture, level: Level) -> Section:
    """Samples with a few words each, in lines."""
    entries = _entries(level)
    many = len(picture.tables) > NAMED
    lines = _flow(entries, WIDTH - (3.4 if many else 0))

    def paint(axes: Axes) -> None:
        for x, y, text, style in lines:
            rectangle(axes, x, y + 0.02, 0.26, 0.15, **{"linewidth": 0.7, "edgecolor": INK, **style})
            label(axes, x + 0.32, y + 0.095, text, va="center")
        if many:
            _scale(axes, len(picture.tables))

    return Section("", "", 0.24 * (1 + round(lines[-1][1] / 0.24)), paint)


def _entries(level: Level) -> list[Entry]:
    idle = {"facecolor": IDLE, "hatch": "....", "edgecolor": BY_ID}
    by_id = {"facecolor": BY_ID, "hatch": "xxx", "edgecolor": "#ffffff"}
    states: list[Entry] = [
        ("idle: only the prefix cache has it", idle),
        ("held by its id only", by_id),
        ("committed, no block held", {"facecolor": EMPTY, "edgecolor": FAINT}),
        ("retiring: given back, mapped until work is done", KIND_STYLES[RowKind.RETIRING]),
        ("free: addresses only", _DOTTED),
    ]
    if level == Level.BLOCKS:
        named: list[Entry] = [
            ("shared: split by holders, ×count", {"facecolor": _SAMPLE, "linewidth": 1.8}),
            ("shared tail: an append copies it", {"facecolor": _SAMPLE, "linewidth": 1.8, "linestyle": (0, (2, 1))}),
            ("slots without a token", {"facecolor": "#ddf0fb", "hatch": "/////", "edgecolor": _SAMPLE}),
        ]
        rest: list[Entry] = [
            ("dropped (×): left its window", _DOTTED),
            ("c: the prefix cache has it too", {"linewidth": 0, "facecolor": "none"}),
        ]
        return named + states + rest
    own: list[Entry] = [("shared by several holders (in a table: the lower part)", {"facecolor": SHARED})]
    if level == Level.LINES:
        own += [("dropped: left its window", {"facecolor": "#e3e3e3", "edgecolor": FAINT})]
    return own + states


def _flow(entries: list[Entry], width: float) -> list[tuple[float, float, str, dict[str, Any]]]:
    """Entries behind each other, in lines: (x, y, text, style)."""
    found, x, y = [], 0.0, 0.0
    for text, style in entries:
        size = 0.55 + 0.054 * len(text)
        if x and x + size > width:
            x, y = 0.0, y + 0.24
        found.append((x, y, text, style))
        x += size
    return found


def _scale(axes: Axes, count: int) -> None:
    """The colours of many sequences, from the first to the last."""
    steps, left, width = 60, WIDTH - 3.2, 2.2
    for at in range(steps):
        colour = on_scale(at / (steps - 1))
        rectangle(axes, left + width * at / steps, 0.02, width / steps + 0.01, 0.15, facecolor=colour)
    label(axes, left - 0.06, 0.095, "first", ha="right", va="center")
    label(axes, left + width + 0.06, 0.095, f"last of {count:,}", va="center")
