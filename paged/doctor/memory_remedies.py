"""Remedies for memory that ran out. What they change is worked out by vLLM's own account of memory:

    KV cache = utilization x total - weights - activations - the rest

Activations of a step grow in proportion to its tokens. Every figure here is an estimate (``account`` has the source).
"""

from __future__ import annotations

import math

from vmm import format_size

from ..spec import ELEMENT_BYTES
from .account import USUAL_UTILIZATION
from .remedy import Patient, Remedy, not_known
from .serving_case import ServingCase

MOST_UTILIZATION = 0.95
"""What is left of a GPU outside must do for contexts, libraries and, before 0.21, graphs."""


def _utilization(patient: Patient) -> float:
    return patient.account.utilization or USUAL_UTILIZATION


def _with_utilization(patient: Patient, wanted: float) -> ServingCase | None:
    """The case with the KV cache that another utilization leaves."""
    case, total = patient.case, patient.account.total
    if case is None or total is None:
        return None
    more = round((wanted - _utilization(patient)) * total) * case.gpus
    return case.changed(kv_bytes=max(0, case.kv_bytes + more))


def raise_utilization(patient: Patient) -> Remedy | None:
    """More of the GPU for the KV cache."""
    now = _utilization(patient)
    if now >= MOST_UTILIZATION or patient.account.total is None:
        return None
    more = round((MOST_UTILIZATION - now) * patient.account.total)
    why = f"{format_size(more)} a GPU more for the KV cache; what is left outside must do for graphs and contexts"
    short = patient.finding.short
    return Remedy(
        f"--gpu-memory-utilization {MOST_UTILIZATION:g}",
        why,
        _with_utilization(patient, MOST_UTILIZATION),
        not_known(patient, memory=True),
        enough=short is None or more > short,
    )


def lower_utilization(patient: Patient) -> Remedy | None:
    """As much less KV cache as was lacking, in hundredths; one of them where the log does not say."""
    total, short = patient.account.total, patient.finding.short
    if total is None:
        return None
    steps = max(1, math.ceil((short or 0) / total * 100))
    wanted = round(_utilization(patient) - steps / 100, 2)
    if wanted <= 0:
        return None
    lacking = f"{format_size(short)} were lacking" if short else "the log does not say how much was lacking"
    why = f"{lacking}; this leaves {format_size(steps / 100 * total)} a GPU more outside the KV cache"
    return Remedy(
        f"--gpu-memory-utilization {wanted:g}", why, _with_utilization(patient, wanted), not_known(patient, memory=True)
    )


def make_room(patient: Patient) -> Remedy | None:
    """Others hold the memory: ask for no more than what they leave."""
    failure = next((found for found in patient.run.failures if found.line == patient.finding.line), None)
    total = patient.account.total
    if failure is None or failure.free is None or total is None:
        return None
    mine = failure.free + (failure.in_use or 0)
    wanted = math.floor(mine / total * 100) / 100
    why = f"others leave {format_size(mine)} of {format_size(total)}; better: end what holds the rest"
    if wanted <= 0:
        return None
    return Remedy(
        f"--gpu-memory-utilization {wanted:g}", why, _with_utilization(patient, wanted), not_known(patient, memory=True)
    )


def eight_bit_weights(patient: Patient) -> Remedy | None:
    """Half the weights, where they have 16 bits."""
    case, spec = patient.case, patient.model.spec
    if patient.run.options.get("quantization") or (spec is not None and ELEMENT_BYTES[spec.dtype] < 2):
        return None
    changed = None
    if case is not None and patient.account.requested is not None:
        beside = sum(patient.account.parts.get(name, 0) for name in ("activations", "non_torch"))
        half = case.weight_bytes // 2
        left = (patient.account.requested - beside) * case.gpus - half
        changed = case.changed(weight_bytes=half, kv_bytes=max(0, left))
    return Remedy(
        "--quantization fp8",
        "weights in 8 bits take half; answers may differ a little",
        changed,
        not_known(patient, memory=True),
    )


def shorter(patient: Patient) -> Remedy | None:
    """Promise no longer sequences than one of which the KV cache holds."""
    failure = next((found for found in patient.run.failures if found.line == patient.finding.line), None)
    named = patient.run.number("max_model_len")
    if failure is None or named is None:
        return None
    if failure.needed and failure.available and failure.available > 0:
        fits = int(named * failure.available / failure.needed)
    else:
        fits = int(patient.run.value("kv_tokens") or 0)
    fits = fits // 16 * 16
    if fits < 16:
        return None
    case = patient.case
    if case is not None and failure.available:
        case = case.changed(kv_bytes=failure.available * case.gpus)
    changed = case.changed(max_model_len=min(fits, case.max_model_len)) if case else None
    return Remedy(
        f"--max-model-len {fits}",
        "one sequence of that length fits (estimate: in proportion)",
        changed,
        not_known(patient),
    )


def smaller_steps(patient: Patient) -> Remedy | None:
    """Half the tokens a step: about half the activations.

    vLLM profiles a step and gives the KV cache the rest, what is saved too. Where the cache was taken already when
    memory ran out, its size must stay as it was to leave room; V1 has an option for that.
    """
    case = patient.case
    if case is None:
        text = "activations grow with the tokens of a step"
        return Remedy("--max-num-batched-tokens, half of what it is", text, None, not_known(patient))
    half = max(case.max_num_batched_tokens // 2, 1)
    seqs = min(case.max_num_seqs, half)
    saved, short = patient.account.parts.get("activations", 0) // 2, patient.finding.short
    options = f"--max-num-batched-tokens {half}" + (f" --max-num-seqs {seqs}" if seqs < case.max_num_seqs else "")
    known = f"saves {format_size(saved)} a GPU" if saved else "saves what the log does not say"
    enough = not saved or short is None or saved >= short
    why = f"activations grow with the tokens of a step: half {known} (estimate)"
    if not enough:
        why += f"; alone not enough, {format_size(short or 0)} were lacking"
    more = saved * case.gpus
    if _cache_was_taken(patient):
        more = 0
        if patient.run.generation == "V1":
            options += f" --kv-cache-memory-bytes {case.kv_bytes // case.gpus}"
        else:
            enough, why = False, f"{why}; V0 gives it to the KV cache: lower the utilization too"
    changed = case.changed(max_num_batched_tokens=half, max_num_seqs=seqs, kv_bytes=case.kv_bytes + more)
    return Remedy(options, why, changed, enough=enough)


def _cache_was_taken(patient: Patient) -> bool:
    failure = next((found for found in patient.run.failures if found.line == patient.finding.line), None)
    return failure is not None and failure.phase in ("graphs", "serving")


def fewer_sequences(patient: Patient) -> Remedy | None:
    """Half the sequences that the sampler is warmed up with."""
    failure = next((found for found in patient.run.failures if found.line == patient.finding.line), None)
    if failure is None or failure.kind != "sampler" or not failure.needed or failure.needed < 2:
        return None
    half = failure.needed // 2
    changed = patient.case.changed(max_num_seqs=min(half, patient.case.max_num_seqs)) if patient.case else None
    return Remedy(f"--max-num-seqs {half}", "half the sequences, half the logits", changed, not_known(patient))


def one_piece(_patient: Patient) -> Remedy | None:
    """Let PyTorch grow its pieces."""
    text = "PyTorch's pieces grow in place instead of lying between others; the log's own message says so"
    return Remedy(
        "PYTORCH_ALLOC_CONF=expandable_segments:True (before torch 2.9: PYTORCH_CUDA_ALLOC_CONF)",
        text,
        None,
        "a replay has no pieces of PyTorch's",
    )


def no_graphs(_patient: Patient) -> Remedy | None:
    """No graphs, no pools for them."""
    text = "without graphs their pools are not needed; every launch is then paid for in every step"
    return Remedy("--enforce-eager", text, None, "the log does not say how long a step takes without graphs")
