"""Sheet: a matplotlib figure that is filled from the top, section by section. One unit of every section is one inch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .colours import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 12.4
"""Inches of a section."""

_MARGIN, _TITLE, _GAP = 0.3, 0.27, 0.16
DPI = 150


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the sheet: ``height`` inches below its title, drawn by ``paint`` on axes with the origin top left."""

    title: str
    note: str
    height: float
    paint: Callable[[Axes], None]


@dataclass(slots=True)
class Sheet:
    """A headline, a line below it, and sections from the top down."""

    title: str
    lines: list[str]
    sections: list[Section] = field(default_factory=list)

    def figure(self) -> Figure:
        """The sheet, painted."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, whatever backend the user has set
        from matplotlib.figure import Figure

        head = 0.42 + 0.2 * len(self.lines)
        height = 2 * _MARGIN + head + sum(part.height + _TITLE * bool(part.title) + _GAP for part in self.sections)
        figure = Figure(figsize=(WIDTH + 2 * _MARGIN, height), facecolor="white")
        FigureCanvasAgg(figure)
        top = self._header(_axes(figure, _MARGIN, head), head)
        for part in self.sections:
            if part.title:
                axes = _axes(figure, top, _TITLE)
                label(axes, 0, 0.14, part.title, size=9.5, weight="bold", va="center")
                label(axes, WIDTH, 0.14, part.note, size=7.5, color="#555555", ha="right", va="center")
                top += _TITLE
            part.paint(_axes(figure, top, part.height))
            top += part.height + _GAP
        return figure

    def _header(self, axes: Axes, head: float) -> float:
        label(axes, 0, 0.16, self.title, size=13, weight="bold", va="center")
        for at, line in enumerate(self.lines):
            label(axes, 0, 0.46 + 0.2 * at, line, size=9, va="center")
        return _MARGIN + head


def label(axes: Axes, x: float, y: float, text: str, *, size: float = 7, color: str = INK, **how: Any) -> Any:
    """Write a text; dollars in it are only dollars."""
    return axes.text(x, y, text, fontsize=size, color=color, parse_math=False, **{"va": "top", **how})


def rectangle(axes: Axes, x: float, y: float, width: float, height: float, *, name: str = "", **how: Any) -> None:
    """Draw a rectangle from its upper left corner on; ``name`` is its id in an SVG."""
    from matplotlib.patches import Rectangle

    patch = Rectangle((x, y), width, height, **{"linewidth": 0, "edgecolor": FAINT, **how})
    if name:
        patch.set_gid(name)
    axes.add_artist(patch)  # and not add_patch, which looks again at limits that are fixed


def steps(axes: Axes, values: Any, edges: Any, baseline: Any, *, name: str = "", **how: Any) -> None:
    """Fill between steps and a baseline (a number or steps)."""
    from matplotlib.patches import StepPatch

    patch = StepPatch(values, edges, baseline=baseline, fill=True, **{"linewidth": 0, **how})
    if name:
        patch.set_gid(name)
    axes.add_artist(patch)


def boxes(axes: Axes, found: list[tuple[float, float, float, float]], *, name: str = "", **how: Any) -> None:
    """Draw many rectangles (x, y, width, height) as one collection."""
    from matplotlib.collections import PolyCollection

    if found:
        corners = [((x, y), (x + w, y), (x + w, y + h), (x, y + h)) for x, y, w, h in found]
        collection = PolyCollection(corners, **{"linewidths": 0, "antialiaseds": False, **how})
        if name:
            collection.set_gid(name)
        axes.add_artist(collection)


def _axes(figure: Figure, top: float, height: float) -> Axes:
    """Axes over a strip of the figure, in inches from its upper left corner."""
    width, total = figure.get_size_inches()
    axes: Axes = figure.add_axes((_MARGIN / width, 1 - (top + height) / total, WIDTH / width, height / total))
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    return axes
