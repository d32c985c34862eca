"""The KV pool of one GPU: its bytes, its blocks, and how many sequences of a length it holds."""

from __future__ import annotations

import dataclasses

from .kv_cache import BlockUse
from .lengths import Lengths


@dataclasses.dataclass(frozen=True)
class PoolSize:
    """``budget`` bytes for the blocks of all groups of layers; below 0 where not even the rest fits."""

    budget: int
    uses: tuple[BlockUse, ...]

    @property
    def token_bytes(self) -> int:
        """Bytes of K and V of a token that every layer looks at."""
        return sum(use.group.token_bytes for use in self.uses)

    @property
    def blocks(self) -> int | None:
        """Whole blocks: budget // block bytes; None for a model whose layers keep different things."""
        return max(0, self.budget) // self.uses[0].block_bytes if len(self.uses) == 1 else None

    @property
    def tokens(self) -> int | None:
        """Slots of those blocks, what vLLM's log calls the GPU KV cache size."""
        return None if self.blocks is None else self.blocks * self.uses[0].block_size

    def sequence_bytes(self, tokens: int) -> int:
        """Bytes of the blocks of one sequence of so many tokens."""
        return sum(use.blocks(tokens) * use.block_bytes for use in self.uses)

    def holds(self, tokens: int) -> int:
        """How many sequences of so many tokens it holds at once."""
        return self._usable // self.sequence_bytes(tokens)

    def holds_decoding(self, lengths: Lengths) -> int:
        """How many sequences of a trace it holds on average while they decode.

            budget * sum(o) // sum over sequences and over t = 1 to o of the bytes of (p + t) tokens

        p and o are prompt and output: a sequence counts once for each step that it decodes in, which is what a running
        server sees of it if prompts take no time.
        """
        first, last = lengths.prompt + 1, lengths.total
        steps = sum(use.block_steps(first, last) * use.block_bytes for use in self.uses)
        return self._usable * lengths.steps // steps

    def longest(self, most: int) -> int:
        """The longest sequence of up to ``most`` tokens that it holds; 0 if none."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.holds(middle) else (low, middle - 1)
        return low

    @property
    def _usable(self) -> int:
        return max(0, self.budget) if self.blocks is None else self.blocks * self.uses[0].block_bytes
