"""What a prefix cache tells whoever asks: blocks were stored, hit, removed, or all cleared. Integers only.

``record`` gives an event in the form of vLLM's KV cache events, which routers read: a list that begins with its name,
then its fields in their order; a hit has no such form. A hash stands for a block's tokens and all before it: it is
stored with the first block of these tokens, and removed with the last.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Record = list[Any]


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks that follow each other can be found from now on; ``parent_block_hash`` is None for the first of a prompt.

    ``token_ids`` are those of all blocks, ``block_size`` each.
    """

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    salt: int

    def record(self) -> Record:
        """As routers read it; no adapter (lora_id), memory of a GPU."""
        return ["BlockStored", self.block_hashes, self.parent_block_hash, self.token_ids, self.block_size, None, "GPU"]


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks can be found no more."""

    block_hashes: list[int]

    def record(self) -> Record:
        """As routers read it."""
        return ["BlockRemoved", self.block_hashes, "GPU"]


@dataclass(frozen=True, slots=True)
class BlocksHit:
    """A prompt of ``asked`` tokens found these blocks."""

    block_hashes: list[int]
    asked: int


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing can be found any more, because the bytes are gone."""

    def record(self) -> Record:
        """As routers read it."""
        return ["AllBlocksCleared"]


CacheEvent = BlocksStored | BlocksRemoved | BlocksHit | AllBlocksCleared
Listener = Callable[[CacheEvent], None]


class Telling:
    """Calls a listener in the middle of a change, which ends well whatever it raises: ``error`` is the last of that."""

    def __init__(self, listener: Listener) -> None:
        self.error: BaseException | None = None
        self._listener = listener

    def __call__(self, event: CacheEvent) -> None:
        """Tell of one event."""
        try:
            self._listener(event)
        except BaseException as error:  # SystemExit too would leave books behind that contradict each other
            first, self.error = self.error is None, error
            if first:
                text = f"the listener of cache events raised {error!r} for {type(event).__name__} and has missed that"
                with contextlib.suppress(RuntimeWarning):  # raised as an error it would stop the change after all
                    warnings.warn(text, RuntimeWarning, stacklevel=2)
