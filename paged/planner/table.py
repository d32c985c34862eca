"""A plan for people: where the memory goes, how many sequences fit, what layouts cost, and one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from vmm import format_size

from ..figure_table import FigureTable
from ..serving.driver_costs import SETS
from .binding import POSITIONS
from .plan import Plan


def introduction(plan: Plan) -> Iterator[str]:
    """What is planned: model, GPU, bounds of a batch, notes, and what of the line was not read."""
    setting, spec, pool = plan.setting, plan.setting.model.spec, plan.memory.pool
    kept = "; ".join(str(use.group) for use in pool.uses)
    yield f"{spec.name}: {spec.parameters:,} weights, {spec.dtype}; KV {pool.token_bytes:,} bytes a token ({kept})"
    gpus = f"{setting.gpus} x " if setting.gpus > 1 else ""
    yield (
        f"GPU {gpus}{setting.gpu.name}, {format_size(setting.gpu.memory)}{' each' if gpus else ''}; utilization "
        f"{setting.options.gpu_memory_utilization:g}; a step has up to {setting.max_num_seqs:,} sequences and "
        f"{setting.max_num_batched_tokens:,} tokens; lengths: {plan.lengths.name}"
    )
    for note in plan.notes:
        yield f"note: {note}"
    if plan.ignored:
        yield f"ignored: {', '.join(plan.ignored)}"


def memory_table(plan: Plan) -> FigureTable:
    """One GPU's memory by part."""
    where = f", stage {plan.stage} of {plan.stages}" if plan.stages > 1 else ""
    made = FigureTable(f"one GPU{where}", "bytes", "size", texts=("", "from"))
    for part in plan.parts:
        kind = "estimate" if part.estimate else "exact"
        made.add_row(part.name, f"{part.bytes:,}", format_size(part.bytes, aligned=True), kind, part.formula)
    return made


def memory_legend() -> str:
    """What the table of memory means by exact and estimate."""
    return (
        "exact: counted; estimate: a formula that fits published logs of vLLM on an H100; a real profiling run decides."
    )


def sequence_table(plan: Plan) -> FigureTable:
    """How many sequences run at once at each length."""
    made = FigureTable("sequences", "tokens", "KV pool holds", "run at once", texts=("bound by",))
    for row in plan.sequences:
        made.add_row(row.label, f"{row.tokens:,.0f}", f"{row.held:,}", f"{row.running:,}", row.limit)
    return made


def layout_table(plan: Plan) -> FigureTable:
    """What each layout wastes and calls."""
    made = FigureTable(
        "layout",
        "holds",
        "runs",
        "tail waste",
        "row waste",
        "no row",
        "waste",
        "tokens/step",
        "calls to fill",
        "driver s",
    )
    for row in plan.layouts:
        made.add_row(
            row.changed,
            f"{row.held:,}",
            f"{row.running:,}",
            format_size(row.tail_waste, aligned=True),
            format_size(row.row_waste, aligned=True),
            format_size(row.unusable, aligned=True),
            f"{row.waste_share:.2%}",
            f"{row.tokens_a_step:,.0f}",
            f"{sum(row.calls.values()):,}",
            f"{row.seconds:.2f}",
        )
    return made


def layout_legend(plan: Plan) -> str:
    """What the columns of the layouts mean."""
    chosen, costs = plan.layouts[0], SETS["vattention"]
    return (
        f"The chosen layout: blocks of {chosen.block_size} tokens, chunks of {format_size(chosen.chunk)}, order "
        f"{chosen.order}, {chosen.kv_dtype}; each other row changes one thing. Waste with the sequences that run: free "
        "slots of last blocks, and of committed rows what blocks that lie densely leave (the least; replay finds the "
        "rest). Calls: a pool that grows block by block until the budget is full; seconds by the published costs "
        f"{costs.name!r}."
    )


def conclusion(plan: Plan) -> Iterator[str]:
    """Which limits bind, and what would lift them."""
    asked = plan.setting.asked_len
    if plan.longest_by == POSITIONS and asked > plan.longest:
        yield f"Length is bound by the model's positions: {plan.longest:,}, not {asked:,}."
    else:
        yield f"Length is bound by {plan.longest_by}: {plan.longest:,} tokens."
    verdict = plan.verdict
    what = "Concurrency is bound by" if verdict.starts else "It does not fit:"
    yield f"{what} {verdict.limit}: {verdict.why}." + (f" {verdict.remedy}." if verdict.remedy else "")
    if plan.refusal:
        yield f"vLLM refuses to start: {plan.refusal}."
