"""Idle options: what was asked for and can change nothing here, each in a line that says why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmm import format_size

from ..serving.workload import Workload
from .options import Options
from .setup import Setup

_PAGED = ("paged-prealloc", "paged-vmm")


def idle_options(setup: Setup, workloads: Sequence[Workload]) -> Iterator[str]:
    """A line for each option that is not at its default and has no effect on these policies and workloads."""
    options = setup.options
    yield from _without_a_policy(options)
    if options.compact is not None and "paged-vmm" in options.policies:
        yield from _nothing_to_move(setup)
    if options.compact is None and options.compact_blocks != Options.compact_blocks:
        yield "--compact-blocks does nothing without --compact"
    if options.scheduling == "priority" and all(load.priority is None for load in workloads):
        yield "--scheduling priority does nothing: no trace has a column priority, so it is first come first served"
    for name in ("swap_space", "pcie_bandwidth"):
        if options.preemption != "swap" and getattr(options, name) != getattr(Options, name):
            yield f"--{name.replace('_', '-')} does nothing without --preemption swap"


def _without_a_policy(options: Options) -> Iterator[str]:
    """Options of policies that do not run."""
    for name in ("compact", "reserve"):
        if getattr(options, name) != getattr(Options, name) and "paged-vmm" not in options.policies:
            yield f"--{name} does nothing: it is paged-vmm's, which is not among the policies"
    if options.prefix_cache and not any(name in _PAGED for name in options.policies):
        yield f"--prefix-cache does nothing: only {' and '.join(_PAGED)} share blocks, and neither runs"


def _nothing_to_move(setup: Setup) -> Iterator[str]:
    """Where each row is of one block alone, a row that is in use is full."""
    if all(member.layout.block_stride % member.layout.chunk == 0 for member in setup.members):
        layout = setup.layout
        other = "--order layer or a larger --chunk" if layout.order == "block" else "a larger --chunk"
        yield (
            f"--compact does nothing: a block of {format_size(layout.block_bytes)} has its rows of "
            f"{format_size(layout.row_bytes)} for itself, so that none is ever sparse; {other} changes that"
        )
