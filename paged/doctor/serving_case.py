"""ServingCase: what a replay of a log's server needs, all GPUs of one model together, as it was or with a remedy."""

from __future__ import annotations

import dataclasses

from ..serving.roofline import STEP_OVERHEAD_S
from .account import Account
from .capacity import Capacity
from .plateau import Step
from .server_model import ServerModel
from .server_run import ServerRun

_SMALL_GPU = 70 << 30
"""Bytes of a GPU below which vLLM's V1 takes the smaller defaults (engine/arg_utils.py)."""


@dataclasses.dataclass(frozen=True)
class ServingCase:
    """Sizes in bytes, ``step_overhead`` in seconds, rates a second, all GPUs together; names are vLLM's.

    ``longest_share`` of the requests, by prompt and output together, go elsewhere. ``assumed`` names what neither the
    log nor an option says: vLLM's defaults then.
    """

    model: str
    kv_dtype: str
    kv_bytes: int
    weight_bytes: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    step_overhead: float
    flops: float
    bandwidth: float
    gpus: int
    longest_share: float = 0.0
    assumed: tuple[str, ...] = ()

    def changed(self, **changes: object) -> ServingCase:
        """The same with other values."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]  # the names are those above


def serving_case(
    run: ServerRun,
    model: ServerModel,
    cache: Capacity,
    account: Account,
    step: Step | None,
    *,
    flops: float,
    bandwidth: float,
) -> ServingCase | None:
    """The server as the log has it; None where its model is not known.

    The overhead of a step is what the log's steps of decode took beside the roofline's time, if it has any; the KV
    cache is the log's in bytes, or its tokens'; weights are the log's.
    """
    if model.spec is None or model.name is None:
        return None
    assumed: list[str] = []
    small = account.total is not None and account.total < _SMALL_GPU
    seqs = _count(run, "max_num_seqs", 256 if run.generation == "V0" or small else 1024, assumed)
    length = min(_count(run, "max_model_len", model.spec.max_positions, assumed), model.spec.max_positions)
    usual = max(length, 2048) if run.generation == "V0" else 2048 if small else 8192
    tokens = _count(run, "max_num_batched_tokens", usual, assumed)
    size = cache.tokens * model.spec.token_bytes if cache.tokens else (cache.size or 0) * model.gpus
    if not size and "kv" in account.parts:
        size = account.parts["kv"] * model.gpus
    weights = account.parts.get("weights")
    measured = step.overhead_s if step is not None else None
    if measured is None:
        assumed.append(f"step overhead {STEP_OVERHEAD_S * 1e3:g} ms")
    return ServingCase(
        model=model.name,
        kv_dtype=model.kv_dtype,
        kv_bytes=size,
        weight_bytes=model.spec.weight_bytes if weights is None else weights * model.gpus,
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=max(tokens, seqs),
        block_size=cache.block_size,
        step_overhead=STEP_OVERHEAD_S if measured is None else measured,
        flops=flops * model.gpus,
        bandwidth=bandwidth * model.gpus,
        gpus=model.gpus,
        assumed=tuple(assumed),
    )


def _count(run: ServerRun, name: str, usual: int, assumed: list[str]) -> int:
    """An option of the log, or vLLM's default, which is then written down."""
    named = run.number(name)
    if named is None:
        assumed.append(f"{name} {usual}")
    return named or usual
