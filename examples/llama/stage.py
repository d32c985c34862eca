"""Stage: a model with its tokenizer and the device that it runs on; pools for it, and plain arrays to compare with."""

from __future__ import annotations

from pathlib import Path

import paged
import vmm

from .checkpoint import Array, read_checkpoint
from .contiguous_cache import ContiguousCache
from .model import Llama
from .paged_cache import PagedCache, kv_layout
from .tokenizer import read_tokenizer


class Stage:
    """What ``checkpoint`` and ``tokenizer`` hold, on ``device``.

    Without a tokenizer the one beside the checkpoint is taken: tok512.bin for 512 tokens, else tokenizer.bin. Raises
    ValueError for bad files, OSError for files that are not there.
    """

    def __init__(self, device: vmm.Device, checkpoint: Path, tokenizer: Path | None = None) -> None:
        self.device = device
        self.config, weights = read_checkpoint(checkpoint)
        self.tokenizer = read_tokenizer(tokenizer or beside(checkpoint, self.config.vocab), self.config.vocab)
        self.side = _side_of(device)
        self.model = Llama(self.config, weights, self.side)
        self.contiguous = ContiguousCache(self.config, self.side)

    def pool(
        self, block_size: int = 16, order: str = "block", *, texts: int = 8, prefix_cache: bool = False
    ) -> paged.KVPool:
        """A pool with blocks for ``texts`` texts of full length, and one more for each while it is copied."""
        blocks = texts * (1 + -(-self.config.seq_len // block_size))
        layout = kv_layout(self.config, self.device, block_size, order)
        return paged.KVPool(self.device, layout, blocks=blocks, prefix_cache=prefix_cache)

    def cache(self, pool: paged.KVPool) -> PagedCache:
        """The pool as the model sees it."""
        return PagedCache(pool)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the one that begins it."""
        return self.tokenizer.encode(text)

    def decode(self, tokens: list[int]) -> str:
        """The text of token ids."""
        return self.tokenizer.decode(tokens)


def beside(checkpoint: Path, vocab: int) -> Path:
    """The tokenizer in a checkpoint's folder."""
    named = checkpoint.with_name(f"tok{vocab}.bin")
    return named if named.exists() else checkpoint.with_name("tokenizer.bin")


def _side_of(device: vmm.Device) -> Array:
    """An array without numbers on the side where kernels run: NumPy's, or CuPy's on a GPU."""
    with vmm.GrowableRange(device, device.granularity, name="side") as nothing:
        return nothing.array("float32", 0).copy()
