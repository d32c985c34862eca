"""What a sequence of n tokens takes in the KV cache, in whole blocks; exact, and exact sums over every n."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from ..serving.workload import Integers
from ..spec import KVSpec


@dataclasses.dataclass(frozen=True)
class BlockUse:
    """Blocks of ``block_size`` tokens of one group of layers on one GPU."""

    group: KVSpec
    block_size: int

    @property
    def block_bytes(self) -> int:
        """Bytes of a block: block_size * layers * (K and V, or 1) * KV heads * head_dim * bytes of the type."""
        return self.block_size * self.group.token_bytes

    @property
    def most_blocks(self) -> int | None:
        """Blocks that a decoding sequence keeps at most, None without a window.

        A window of w tokens lies in at most ceil(w / block_size) + 1 blocks; what lies before is given back. (vLLM
        keeps max_num_batched_tokens more while a prompt is computed: ``SlidingWindowSpec.max_memory_usage_bytes``.)
        """
        window = self.group.window
        return None if window is None else -(-window // self.block_size) + 1

    def blocks(self, tokens: int) -> int:
        """Blocks of a sequence of so many tokens."""
        needed = -(-tokens // self.block_size)
        return needed if self.most_blocks is None else min(needed, self.most_blocks)

    def live_tokens(self, tokens: int) -> int:
        """Tokens of it that the layers still look at."""
        return tokens if self.group.window is None else min(tokens, self.group.window)

    def block_steps(self, first: Integers, last: Integers) -> int:
        """The sum of ``blocks(n)`` over each n from ``first`` to ``last`` of every sequence (int64 [n] each)."""
        return _between(first, last, self.block_size, self.most_blocks)

    def live_steps(self, first: Integers, last: Integers) -> int:
        """The same sum of ``live_tokens(n)``."""
        return _between(first, last, 1, self.group.window)


def _between(first: Integers, last: Integers, size: int, most: int | None) -> int:
    return int(_up_to(last, size, most).sum() - _up_to(first - 1, size, most).sum())


def _up_to(tokens: Integers, size: int, most: int | None) -> npt.NDArray[np.int64]:
    """The sum over n = 1 to N of min(ceil(n / size), most), for each N of ``tokens``.

    Without ``most``: with q, r = divmod(N, size), q whole blocks give size * (1 + ... + q) and the rest r * (q + 1).
    """
    grown = tokens if most is None else np.minimum(tokens, most * size)
    whole, rest = np.divmod(grown, size)
    sums: npt.NDArray[np.int64] = size * whole * (whole + 1) // 2 + rest * (whole + 1)
    return sums if most is None else sums + (tokens - grown) * most
