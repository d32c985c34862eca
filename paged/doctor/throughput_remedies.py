"""Remedies for throughput that stopped growing, and those that change what a step reads. Figures are estimates."""

from __future__ import annotations

from ..serving.roofline import STEP_OVERHEAD_S
from .remedy import Patient, Remedy, not_known

LONGEST_SHARE = 0.05
"""Of the requests, those that are sent elsewhere."""


def eight_bit_kv(patient: Patient) -> Remedy | None:
    """Half the bytes a token, so twice the tokens in the same memory, and half the bytes that attention reads."""
    if patient.model.kv_dtype in ("e4m3", "int8"):
        return None
    why = (
        "K and V in 8 bits: twice the tokens in the same bytes, half the bytes read a step; answers may differ a little"
    )
    case = patient.case.changed(kv_dtype="e4m3") if patient.case else None
    return Remedy("--kv-cache-dtype fp8", why, case, not_known(patient))


def second_gpu(patient: Patient) -> Remedy | None:
    """Twice the GPUs: each holds half the weights."""
    case, account = patient.case, patient.account
    gpus = patient.model.gpus * 2
    why = f"each of {gpus} GPUs holds half of what each of {patient.model.gpus} had to (estimate: parts divide evenly)"
    changed = None
    if case is not None and account.requested is not None:
        beside = sum(account.parts.get(name, 0) for name in ("activations", "non_torch"))
        left = (account.requested - beside) * gpus - case.weight_bytes
        changed = case.changed(kv_bytes=max(0, left), gpus=gpus, flops=case.flops * 2, bandwidth=case.bandwidth * 2)
    return Remedy(f"--tensor-parallel-size {gpus}", why, changed, not_known(patient, memory=True))


def less_overhead(patient: Patient) -> Remedy | None:
    """At best nothing but the assumed least overhead is left."""
    eager = patient.run.options.get("enforce_eager") == "True"
    newer = "--async-scheduling" if patient.run.generation == "V1" else "--num-scheduler-steps 8"
    options = "leave out --enforce-eager" if eager else newer
    what = "graphs launch a whole step at once" if eager else "the next step is scheduled while this one runs"
    case = patient.case
    changed = case.changed(step_overhead=min(case.step_overhead, STEP_OVERHEAD_S)) if case else None
    why = f"{what}; replayed at its best, with {STEP_OVERHEAD_S * 1e3:g} ms left of the overhead (assumption)"
    return Remedy(options, why, changed, not_known(patient))


def longer_batch(patient: Patient) -> Remedy | None:
    """Twice the sequences at once."""
    case = patient.case
    if case is None:
        return None
    seqs = case.max_num_seqs * 2
    changed = case.changed(max_num_seqs=seqs, max_num_batched_tokens=max(case.max_num_batched_tokens, seqs))
    return Remedy(f"--max-num-seqs {seqs}", "the KV cache has room for more sequences", changed)


def long_ones_apart(patient: Patient) -> Remedy | None:
    """A server of their own for the longest."""
    changed = patient.case.changed(longest_share=LONGEST_SHARE) if patient.case else None
    return Remedy(
        f"send the longest {LONGEST_SHARE:.0%} of the requests to a server of their own",
        "what is left is replayed here without them",
        changed,
        not_known(patient),
    )
