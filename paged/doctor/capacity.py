"""Capacity: how many tokens a server's KV cache holds, in how many bytes of one GPU."""

from __future__ import annotations

import dataclasses

from .server_model import ServerModel
from .server_run import ServerRun

USUAL_BLOCK = 16
"""Tokens a block on a GPU where the log does not say: vLLM's default (CacheConfig.block_size)."""


@dataclasses.dataclass(frozen=True)
class Capacity:
    """``tokens`` of one engine, ``size`` in bytes of one GPU; None is unknown. ``source`` says where they are from."""

    tokens: int | None
    size: int | None
    block_size: int
    source: str

    def per_sequence(self, usage: float, running: int) -> float | None:
        """Tokens' room that each of ``running`` sequences has on average: usage x capacity / running."""
        return usage * self.tokens / running if self.tokens and running else None


def capacity(run: ServerRun, model: ServerModel) -> Capacity:
    """Find both: the log's line of tokens, else blocks x block size, else concurrency x the longest sequence.

    The size is the log's line of memory, else tokens x bytes of K and V a token / GPUs. Where tokens come from a line
    that is rounded, or the block size is assumed, ``source`` calls them an estimate.
    """
    named = run.number("block_size")
    block_size = named or USUAL_BLOCK
    tokens, source = _tokens(run, block_size, named is not None)
    engines = run.value("engines") or 1
    tokens = None if tokens is None else round(tokens * engines)
    found = run.value("kv")
    if found is not None:
        size: int | None = max(0, int(found))
    elif tokens is not None and model.spec is not None:
        size = tokens * model.spec.token_bytes // model.gpus
        source += "; bytes from the model's"
    else:
        size = None
    return Capacity(tokens, size, block_size, source)


def _tokens(run: ServerRun, block_size: int, named: bool) -> tuple[int | None, str]:
    tokens, blocks = run.value("kv_tokens"), run.value("kv_blocks")
    if tokens is not None:
        return int(tokens), "the log"
    if blocks is not None:
        return int(blocks) * block_size, "blocks of the log" + ("" if named else f", estimate: blocks of {block_size}")
    times, length = run.value("concurrency"), run.value("concurrency_tokens")
    if times is not None and length is not None:
        return round(times * length), "estimate: concurrency x longest sequence"
    return None, "not in the log"
