"""The picture of a replay: reserved, committed and live bytes over time, the policies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vmm import format_size

from .atomic_file import write_atomically
from .replay_report import PolicyResult, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")
"""File name endings that a plot can have."""

_COLORS = {"reserved": "#7f7f7f", "committed": "#0072b2", "live": "#e69f00", "measured": "#000000"}
"""Okabe and Ito's palette: told apart with any colour vision."""

_GIB = 1 << 30
_PANEL_INCHES, _HEIGHT_INCHES = 3.1, 4.4


def plot(report: Report, path: str | Path) -> None:
    """Write the picture to ``path`` (png, svg or pdf), whole or not at all.

    Lines are means weighted by time; a shaded band reaches from the least to the greatest value in each bucket of time.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, whatever backend the user has set
    from matplotlib.figure import Figure

    target = Path(path)
    figure = Figure(figsize=(max(2, len(report.policies)) * _PANEL_INCHES, _HEIGHT_INCHES), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(report.policies), sharex=True, sharey=True, squeeze=False)[0]
    top = _top(report)
    for axes, (name, result) in zip(panels, report.policies.items(), strict=True):
        _panel(axes, name, result, report, top)
    panels[0].set_ylabel("GiB")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    figure.suptitle(
        f"{report.model}, {_short(report.trace)}: {report.requests:,} requests, "
        f"driver {report.driver}, backing {report.backing}",
        fontsize=10,
    )
    write_atomically(target, lambda out: figure.savefig(out, format=target.suffix[1:].lower(), dpi=150))


def _short(trace: str) -> str:
    """A file's name without its folders; any other text as it is."""
    return Path(trace).name if Path(trace).exists() else trace


def _top(report: Report) -> float:
    """The upper end of the axis in GiB: by what is committed, so that bytes of addresses do not hide the rest."""
    peak = max(result.committed.peak for result in report.policies.values())
    return 1.15 * max(peak, report.budget if report.budget < 2.5 * peak else 1) / _GIB


def _panel(axes: Axes, name: str, result: PolicyResult, report: Report, top: float) -> None:
    timeline = result.timeline
    edges = timeline.edges()
    for series in ("committed", "reserved", "live", "measured"):  # what is reserved may lie on what is committed
        values = timeline.series(series)
        if np.isfinite(values.mean).any():
            label = {"measured": f"measured by the {'driver' if report.driver != 'host' else 'operating system'}"}
            _line(axes, edges, values, label.get(series, series), _COLORS[series])
    axes.axhline(report.budget / _GIB, color="#d55e00", linewidth=0.8, linestyle=":", label="budget")
    axes.set_ylim(0, top)
    if len(edges):
        axes.set_xlim(0, edges[-1])
    ratio = result.committed_over_live
    axes.set_title(f"{name}\n" + (f"committed / live {ratio:.2f}" if ratio else "nothing served"), fontsize=10)
    axes.set_xlabel("simulated time (s)")
    axes.tick_params(labelsize=8)
    if result.reserved.peak / _GIB > top:
        text = f"reserved up to {format_size(result.reserved.peak)} \N{UPWARDS ARROW}"
        axes.text(0.98, 0.985, text, transform=axes.transAxes, ha="right", va="top", fontsize=8, color="#4d4d4d")


def _line(axes: Axes, edges: Any, values: Any, label: str, color: str) -> None:
    """A stepped line of means with a band of extremes."""
    dashed = {"reserved": (0, (4, 2)), "measured": (0, (1, 2))}.get(label.split()[0], "solid")
    axes.stairs(values.mean / _GIB, edges, baseline=None, color=color, label=label, linewidth=1.2, linestyle=dashed)
    axes.fill_between(
        edges,
        np.append(values.low, values.low[-1:]) / _GIB,
        np.append(values.high, values.high[-1:]) / _GIB,
        step="post",
        color=color,
        alpha=0.25,
        linewidth=0,
    )
