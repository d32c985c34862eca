"""A checkpoint of llama2.c: seven int32 numbers, then every weight as float32, matrix after matrix.

The header is dim, hidden_dim, layers, heads, kv_heads, vocab and seq_len; a negative vocab says that the classifier is
a matrix of its own and not the embedding. The matrices follow in the order of ``shapes``. The format is that of
llama2.c's first export (github.com/karpathy/llama2.c, export.py, "legacy"), with its two tables of cosines and sines,
which nobody reads any more.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = Any
"""A numpy.ndarray, or a cupy.ndarray where the model runs on a GPU."""
Weights = dict[str, Array]
"""Each matrix by its name in ``shapes``."""

HEADER = np.dtype("<i4")
WEIGHT = np.dtype("<f4")
NUMBERS = 7
LATER = 0x616B3432
"""What the later versions of the format begin with."""


@dataclass(frozen=True)
class Config:
    """The sizes of a model, in the header's order. Raises ValueError for sizes that make no model."""

    dim: int
    hidden_dim: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    seq_len: int
    shared_classifier: bool = True

    def __post_init__(self) -> None:
        """Check that the sizes fit each other."""
        for name in ("dim", "hidden_dim", "layers", "heads", "kv_heads", "vocab", "seq_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly")
        if self.dim % self.heads or self.head_dim % 8 or self.head_dim > 256:
            raise ValueError(
                f"dim {self.dim} over {self.heads} heads is {self.dim / self.heads:g} a head; "
                "the kernels need a multiple of 8 up to 256"
            )

    @property
    def head_dim(self) -> int:
        """Numbers of one head."""
        return self.dim // self.heads

    @property
    def kv_dim(self) -> int:
        """Numbers of K (or of V) of one token in one layer."""
        return self.kv_heads * self.head_dim

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The matrices in the file's order; a matrix [out, in] gives x @ matrix.T."""
        layers, dim, hidden = self.layers, self.dim, self.hidden_dim
        half = (self.seq_len, self.head_dim // 2)
        shapes: dict[str, tuple[int, ...]] = {
            "embedding": (self.vocab, dim),
            "attention_norm": (layers, dim),
            "wq": (layers, dim, dim),
            "wk": (layers, self.kv_dim, dim),
            "wv": (layers, self.kv_dim, dim),
            "wo": (layers, dim, dim),
            "ffn_norm": (layers, dim),
            "w1": (layers, hidden, dim),
            "w2": (layers, dim, hidden),
            "w3": (layers, hidden, dim),
            "final_norm": (dim,),
            "legacy_cosines": half,
            "legacy_sines": half,
        }
        return shapes if self.shared_classifier else {**shapes, "classifier": (self.vocab, dim)}

    @property
    def file_bytes(self) -> int:
        """Bytes of a checkpoint of this size."""
        numbers = sum(math.prod(shape) for shape in self.shapes.values())
        return NUMBERS * HEADER.itemsize + numbers * WEIGHT.itemsize


def read_checkpoint(path: Path) -> tuple[Config, Weights]:
    """The sizes and weights of a file. Raises ValueError that says what is wrong with it, OSError if there is none."""
    with path.open("rb") as file:
        config = _config(path, np.frombuffer(file.read(NUMBERS * HEADER.itemsize), np.uint8))
        size = path.stat().st_size
        if size != config.file_bytes:
            raise ValueError(f"{path} has {size:,} bytes, but its header speaks of {config.file_bytes:,}")
        weights = {
            name: np.fromfile(file, WEIGHT, math.prod(shape)).reshape(shape) for name, shape in config.shapes.items()
        }
    broken = next((name for name, weight in weights.items() if not np.isfinite(weight).all()), None)
    if broken:
        raise ValueError(f"{path} has weights in {broken} that are not finite numbers")
    return config, weights


def write_checkpoint(path: Path, config: Config, weights: Weights) -> None:
    """Write a file that ``read_checkpoint`` reads."""
    header = np.array(astuple(config)[:NUMBERS], HEADER)
    header[5] *= 1 if config.shared_classifier else -1
    matrices = [np.ascontiguousarray(weights[name], WEIGHT).tobytes() for name in config.shapes]
    path.write_bytes(header.tobytes() + b"".join(matrices))


def _config(path: Path, raw: Array) -> Config:
    """The header, checked."""
    if raw.size < NUMBERS * HEADER.itemsize:
        raise ValueError(f"{path} has {raw.size} bytes, less than a header of {NUMBERS} int32 numbers")
    dim, hidden, layers, heads, kv_heads, vocab, seq_len = raw.view(HEADER).tolist()
    if dim == LATER:
        raise ValueError(f"{path} is a later version of the format; export it with llama2.c's --version 0")
    try:
        return Config(dim, hidden, layers, heads, kv_heads, abs(vocab), seq_len, vocab > 0)
    except ValueError as error:
        raise ValueError(f"{path} is no llama2.c checkpoint: {error}") from None
