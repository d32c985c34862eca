"""Which part of memory a failed allocation was for.

Told apart in this order: others hold what was lacking; PyTorch has enough of its own in pieces; the functions of the
traceback; what the server was doing. The KV cache is taken once, at the start: from then on a step of the model asks
for activations and workspace only, so that a failure while serving is never the KV cache's (that shows as preemption).
"""

from __future__ import annotations

import re

from vmm import format_size

from .account import Account
from .finding import Finding
from .server_run import Failure

_BY_FRAME = (
    (
        "graph pools",
        re.compile(r"capture_model|capture_graph|graph_capture|cudagraph|cuda_graph|capture_begin|capture_end"),
    ),
    ("KV cache", re.compile(r"allocate_kv_cache|initialize_kv_cache|init_cache_engine|cache_engine")),
    ("workspace", re.compile(r"workspace|cublas|pynccl|nccl|custom_all_reduce", re.IGNORECASE)),
    ("weights", re.compile(r"load_model|load_weights|create_weights|model_loader|weight_utils|process_weights")),
    ("activations", re.compile(r"profile_run|_dummy_run|execute_model|forward|sampler|logits")),
)
"""Functions and files of vLLM by what they allocate; the first row that a traceback has decides, as a captured graph
runs the model, and the model's layers ask for their workspace."""

_BY_PHASE = {
    "start": "weights",
    "weights": "weights",
    "profile": "activations",
    "cache": "KV cache",
    "graphs": "graph pools",
    "serving": "activations",
}
_DOING = {
    "start": "before the weights were read",
    "weights": "while the weights were read",
    "profile": "while a step was profiled, after the weights",
    "cache": "while the KV cache was taken",
    "graphs": "while graphs were captured, after the KV cache",
    "serving": "while it served",
}
_LOGIT_BYTES = 4
"""vLLM samples in float32."""


def cause_of(failure: Failure, account: Account) -> Finding:
    """The cause of one failure, with its figures."""
    by_kind = {"free memory": _free_memory, "model len": _model_len, "no cache": _no_cache, "sampler": _sampler}
    if failure.kind in by_kind:
        return by_kind[failure.kind](failure, account)
    figures = [f"{_what(failure)} failed {_DOING[failure.phase]}", *_state(failure)]
    cause = _holder(failure, account)
    if cause is None:
        cause, why = _by_frames(failure)
        figures.append(why)
    short = max(0, failure.asked - (failure.free or 0)) if failure.asked is not None else None
    return Finding(cause, "memory", tuple(figures), failure.line, short, estimate=not failure.frames)


def _what(failure: Failure) -> str:
    asked = f" of {format_size(failure.asked)}" if failure.asked is not None else ""
    return f"an allocation{asked}" + (" by a library" if failure.kind == "library" else "")


def _state(failure: Failure) -> list[str]:
    """The numbers of PyTorch's message."""
    parts = []
    if failure.total is not None and failure.free is not None:
        parts.append(f"{format_size(failure.free)} of {format_size(failure.total)} were free")
    if failure.in_use is not None:
        parts.append(f"this process had {format_size(failure.in_use)}")
    if failure.others:
        parts.append(f"other processes had {format_size(failure.others)}")
    if failure.unallocated is not None:
        parts.append(f"PyTorch had {format_size(failure.unallocated)} reserved and not allocated")
    if failure.graph_pools is not None:
        parts.append(f"{format_size(failure.graph_pools)} were in graphs' private pools")
    return ["; ".join(parts)] if parts else []


def _holder(failure: Failure, account: Account) -> str | None:
    """Other processes, or pieces, where they alone had what was lacking."""
    if failure.asked is None or failure.free is None:
        return None
    lacking = failure.asked - failure.free
    allowed = account.requested if account.requested is not None else failure.total
    if (
        failure.others >= lacking > 0
        and failure.in_use is not None
        and allowed is not None
        and failure.in_use <= allowed
    ):
        return "other processes"
    if (failure.unallocated or 0) >= failure.asked:
        return "fragmentation"
    return None


def _by_frames(failure: Failure) -> tuple[str, str]:
    serves = failure.phase == "serving"
    for cause, names in _BY_FRAME[1 if serves else 0 :]:  # captured graphs are replayed then, by functions of that name
        found = next((frame for frame in reversed(failure.frames) if names.search(frame)), None)
        if found:
            return cause, f"its traceback is in {found}"
    if failure.kind == "library":
        return "workspace", "cuBLAS, cuDNN and NCCL take workspaces of their own beside PyTorch"
    return _BY_PHASE[failure.phase], "the log has no traceback of it; this is what a server allocates then"


def _free_memory(failure: Failure, _account: Account) -> Finding:
    free, total, needed = failure.free or 0, failure.total or 0, failure.needed or 0
    figures = (
        f"before the server had taken anything, {format_size(total - free)} of {format_size(total)} were in use",
        f"it wanted {format_size(needed)} and {format_size(free)} were free",
    )
    return Finding("other processes", "memory", figures, failure.line, max(0, needed - free))


def _model_len(failure: Failure, account: Account) -> Finding:
    if failure.needed is not None and failure.available is not None:
        figures = [
            f"one sequence of the longest length needs {format_size(failure.needed)} of KV cache, "
            f"{format_size(failure.available)} are left for it"
        ]
        short: int | None = failure.needed - failure.available
    else:
        figures, short = ["one sequence of the longest length needs more tokens than the KV cache holds"], None
    return Finding("KV cache", "memory", (*figures, *_parts(account)), failure.line, short)


def _no_cache(failure: Failure, account: Account) -> Finding:
    """The greatest of what is not KV cache has taken its room."""
    rest = {name: size for name, size in account.parts.items() if name != "kv"}
    if not rest:
        unknown = ("nothing is left for the KV cache, and the log does not say what took it",)
        return Finding("weights", "memory", unknown, failure.line, estimate=True)
    greatest = max(rest, key=rest.__getitem__)
    cause = {"graphs": "graph pools", "non_torch": "workspace"}.get(greatest, greatest)
    kv = account.parts.get("kv")
    requested = account.requested
    short = max(0, sum(rest.values()) - requested) if requested is not None else None
    figures = ["nothing is left for the KV cache", *_parts(account)]
    if kv is not None and kv <= 0:
        figures[0] += f" ({format_size(-kv)} lacking)" if kv else ""
    return Finding(cause, "memory", tuple(figures), failure.line, short, estimate=greatest in account.estimates)


def _parts(account: Account) -> list[str]:
    names = {"non_torch": "outside PyTorch", "kv": "KV cache"}
    parts = [f"{names.get(name, name)} {format_size(size)}" for name, size in account.parts.items() if size > 0]
    asked = f" of {format_size(account.requested)} requested" if account.requested else ""
    return [", ".join(parts) + asked] if parts else []


def _sampler(failure: Failure, _account: Account) -> Finding:
    """The sampler's first step has every sequence that may run, and each has a number a word of the vocabulary."""
    figures = (
        f"the warm-up of the sampler with {failure.needed:,} sequences found no memory; their logits are "
        f"{failure.needed} x vocabulary x {_LOGIT_BYTES} bytes, several times over while they are sorted",
    )
    return Finding("activations", "memory", figures, failure.line)
