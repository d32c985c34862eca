"""Which remedies a cause has, the cheapest first."""

from __future__ import annotations

from collections.abc import Callable

from .memory_remedies import (
    eight_bit_weights,
    fewer_sequences,
    lower_utilization,
    make_room,
    no_graphs,
    one_piece,
    raise_utilization,
    shorter,
    smaller_steps,
)
from .remedy import Patient, Remedy
from .throughput_remedies import eight_bit_kv, less_overhead, long_ones_apart, longer_batch, second_gpu

MOST = 3
"""Remedies that are told for a cause."""

_BY_CAUSE: dict[str, tuple[Callable[[Patient], Remedy | None], ...]] = {
    "weights": (eight_bit_weights, second_gpu, raise_utilization),
    "activations": (fewer_sequences, smaller_steps, lower_utilization),
    "KV cache": (shorter, raise_utilization, eight_bit_kv, second_gpu),
    "workspace": (lower_utilization, smaller_steps),
    "graph pools": (lower_utilization, no_graphs),
    "other processes": (make_room,),
    "fragmentation": (one_piece, lower_utilization),
    "long requests": (long_ones_apart, eight_bit_kv),
    "batch limit": (longer_batch,),
    "bandwidth": (eight_bit_kv, second_gpu),
    "compute": (second_gpu,),
    "launch and scheduling overhead": (less_overhead,),
    "undecided": (),
}


def remedies(patient: Patient) -> list[Remedy]:
    """The remedies of a finding, the cheapest first, those that are not enough alone last; at most MOST."""
    made = [make(patient) for make in _BY_CAUSE[patient.finding.cause]]
    found = [remedy for remedy in made if remedy is not None]
    return sorted(found, key=lambda remedy: not remedy.enough)[:MOST]
