"""The picture of a replay: reserved, committed and live bytes over time, the policies side by side."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vmm import format_size

from ..atomic_file import write_atomically
from ..serving.timeline import Series
from .report import PolicyResult, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Edges = npt.NDArray[np.float64]

_STYLES: dict[str, dict[str, Any]] = {
    "reserved": {"color": "#999999", "linewidth": 3.0},
    "committed": {"color": "#0072b2", "linewidth": 1.2},
    "live": {"color": "#e69f00", "linewidth": 1.2},
    "measured": {"color": "#000000", "linewidth": 1.0, "linestyle": (0, (1, 2))},
}
"""Okabe and Ito's palette, told apart with any colour vision; what is reserved lies broad under what is committed."""

_GIB = 1 << 30
_PANEL_INCHES, _HEIGHT_INCHES = 3.1, 4.6
_BUCKETS = 160
"""As many buckets of time as a panel can show."""


def plot(report: Report, path: str | Path) -> None:
    """Write the picture to ``path`` (png, svg or pdf), whole or not at all.

    Lines are means weighted by time; a shaded band reaches from the least to the greatest value in each bucket of time.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, whatever backend the user has set
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    target = Path(path)
    width = max(3, len(report.policies)) * _PANEL_INCHES
    figure = Figure(figsize=(width, _HEIGHT_INCHES), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(report.policies), sharex=True, sharey=True, squeeze=False)[0]
    floor = _floor(report)
    for axes, (name, result) in zip(panels, report.policies.items(), strict=True):
        _panel(axes, name, result, report, floor)
    _shared_axes(panels[0], floor, max(result.duration_s for result in report.policies.values()))
    handles, _ = panels[0].get_legend_handles_labels()
    handles.append(Patch(color="#000000", alpha=0.2, label="least to greatest (lines: means over time)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6 if width > 12 else 3, frameon=False, fontsize=9)
    title = (
        f"{report.model}, {_short(report.trace)}: {report.requests:,} requests, "
        f"order {report.options['order']}, chunk {format_size(report.options['chunk'])}, "
        f"rate scale {report.options['rate_scale']:g}; driver {report.driver}, backing {report.backing}"
    )
    figure.suptitle(textwrap.fill(title, round(12 * width)), fontsize=10, parse_math=False)
    write_atomically(target, lambda out: figure.savefig(out, format=target.suffix[1:].lower(), dpi=150))


def _short(trace: str) -> str:
    """A file's name without its folders; any other text as it is."""
    return Path(trace).name if Path(trace).exists() else trace


def _floor(report: Report) -> float:
    """The lower end of the axis in GiB: a third of what usually lives."""
    means = [result.live.mean for result in report.policies.values() if result.live.mean]
    return min(means) / 3 / _GIB if means else 1 / 1024


def _shared_axes(axes: Axes, floor: float, duration: float) -> None:
    """A logarithmic axis of bytes: addresses have room on it, and equal waste is an equal distance."""
    axes.set_xlim(0, duration or 1)
    axes.set_yscale("log", base=4)
    axes.set_ylim(bottom=floor)
    axes.yaxis.set_major_formatter(lambda value, _position: format_size(round(value * _GIB)))
    axes.yaxis.set_minor_formatter(lambda _value, _position: "")
    axes.set_ylabel("bytes, logarithmic")


def _panel(axes: Axes, name: str, result: PolicyResult, report: Report, floor: float) -> None:
    timeline = result.timeline.coarser(_BUCKETS)
    edges = timeline.edges()
    for series, style in _STYLES.items():
        values = timeline.series(series)
        if np.isfinite(values.mean).any():
            who = "driver" if report.driver != "host" else "operating system"
            _line(axes, edges, values, f"measured by the {who}" if series == "measured" else series, style, floor)
    axes.axhline(report.budget / _GIB, color="#d55e00", linewidth=0.9, linestyle=":", label="budget")
    ratio = result.committed_over_live
    axes.set_title(f"{name}\n" + (f"committed / live {ratio:.2f}" if ratio else "nothing served"), fontsize=10)
    axes.set_xlabel("simulated time (s)")
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", linewidth=0.3)


def _line(axes: Axes, edges: Edges, values: Series, label: str, style: dict[str, Any], floor: float) -> None:
    """A stepped line of means with a band of extremes; what is below the floor is drawn on it."""
    mean, low, high = (np.maximum(of / _GIB, floor) for of in (values.mean, values.low, values.high))
    axes.stairs(mean, edges, baseline=None, label=label, **style)
    low, high = np.append(low, low[-1:]), np.append(high, high[-1:])
    axes.fill_between(edges, low, high, step="post", color=style["color"], alpha=0.25, linewidth=0)
