"""The picture of a plan: where a GPU's memory goes, how many sequences run, what layouts waste and call."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from vmm import format_size

from ..atomic_file import write_atomically
from .plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    "weights": "#0072b2",
    "activations": "#e69f00",
    "workspace": "#cc79a7",
    "CUDA graphs": "#f0e442",
    "KV pool": "#009e73",
    "left free": "#dddddd",
}
"""Okabe and Ito's palette, told apart with any colour vision; the hatch says estimate without colour."""

_GIB = 1 << 30
_INCHES = (15.0, 5.2)
_ROOM = 1.06
"""So much wider than its longest bar is a panel: a bar that ends at the edge looks cut off."""


def plot(plan: Plan, path: str | Path) -> None:
    """Write the picture to ``path`` (png, svg or pdf), whole or not at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, whatever backend the user has set
    from matplotlib.figure import Figure

    target = Path(path)
    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    if plan.holds_nothing:  # the other panels would be empty
        _memory(figure.subplots(1, 1), plan)
    else:
        memory, sequences, waste, calls = figure.subplots(1, 4, width_ratios=(1.1, 1.3, 1.0, 1.0))
        _memory(memory, plan)
        _sequences(sequences, plan)
        _waste(waste, plan)
        _calls(calls, plan)
    figure.suptitle(textwrap.fill(_title(plan), 160), fontsize=10, parse_math=False)
    write_atomically(target, lambda out: figure.savefig(out, format=target.suffix[1:].lower(), dpi=150))


def _title(plan: Plan) -> str:
    setting, verdict = plan.setting, plan.verdict
    what = f"{verdict.limit} binds" if verdict.starts else f"it does not fit: {verdict.why}"
    refused = "; vLLM refuses to start" if plan.refusal else ""
    return (
        f"{setting.model.spec.name} on {setting.gpus} x {setting.gpu.name}, utilization "
        f"{setting.options.gpu_memory_utilization:g}: {what}{refused}. {plan.lengths.name}"
    )


def _memory(axes: Axes, plan: Plan) -> None:
    """One bar a part, at its place in the GPU's memory; what is hatched is an estimate."""
    start, end = 0.0, plan.setting.gpu.memory / _GIB
    for place, part in enumerate(plan.parts):
        size = part.bytes / _GIB
        hatch = "//" if part.estimate else ""
        axes.barh(place, size, left=start, color=_COLOURS[part.name], edgecolor="#333333", hatch=hatch, linewidth=0.5)
        start += max(size, 0.0)
        end = max(end, start)
    labels = [f"{part.name}\n{format_size(part.bytes)}" for part in plan.parts]
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.axvline(plan.setting.utilized / _GIB, color="#d55e00", linestyle=":", linewidth=1)
    axes.set_xlim(0, end * _ROOM)
    axes.invert_yaxis()
    axes.set_xlabel("GiB of one GPU (hatched: estimate; dotted: utilization)", fontsize=8)
    axes.set_title("memory", fontsize=10)


def _sequences(axes: Axes, plan: Plan) -> None:
    """Sequences held by the pool, and those that run, by length."""
    for place, row in enumerate(plan.sequences):
        axes.barh(place, row.held, color="#009e73", alpha=0.35)
        axes.barh(place, row.running, color="#009e73", height=0.45)
    labels = [f"{row.label}\n{row.tokens:,.0f} tokens: {row.running:,}" for row in plan.sequences]
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.axvline(plan.setting.max_num_seqs, color="#d55e00", linestyle=":", linewidth=1)
    axes.set_xlim(0, max(plan.setting.max_num_seqs, *(row.held for row in plan.sequences)) * _ROOM)
    axes.invert_yaxis()
    axes.set_xlabel("sequences at once (pale: the pool holds; dotted: max_num_seqs)", fontsize=8)
    axes.set_title("sequences", fontsize=10)


def _waste(axes: Axes, plan: Plan) -> None:
    places = range(len(plan.layouts))
    tails = [row.tail_waste / _GIB for row in plan.layouts]
    axes.barh(places, tails, color="#e69f00", label="free slots of last blocks")
    axes.barh(
        places, [row.row_waste / _GIB for row in plan.layouts], left=tails, color="#0072b2", label="rows, at least"
    )
    axes.set_yticks(places, [row.changed for row in plan.layouts], fontsize=8)
    most = max((row.tail_waste + row.row_waste for row in plan.layouts), default=0) / _GIB
    axes.set_xlim(0, most * _ROOM or 1)
    axes.invert_yaxis()
    axes.set_xlabel("GiB wasted with what runs", fontsize=8)
    axes.legend(fontsize=7, frameon=False)
    axes.set_title("waste by layout", fontsize=10)


def _calls(axes: Axes, plan: Plan) -> None:
    places = range(len(plan.layouts))
    calls = [sum(row.calls.values()) for row in plan.layouts]
    axes.barh(places, calls, color="#56b4e9")
    axes.set_yticks(places, [row.changed for row in plan.layouts], fontsize=8)
    axes.set_xscale("log", nonpositive="clip")
    axes.set_xlim(1, max(10.0, max(calls) * 1.5))
    axes.invert_yaxis()
    axes.set_xlabel("driver calls to fill the pool", fontsize=8)
    axes.set_title("calls by layout", fontsize=10)
