"""Rotary: how far the keys and queries of new tokens turn, and the table of cosines and sines for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Array, ArrayView, view
from .errors import LaunchError
from .ids import check_positions

STYLES = ("halves", "pairs")
"""Which elements are a pair: d and d + R / 2 (GPT-NeoX, Llama), or 2 i and 2 i + 1 (GPT-J)."""


@dataclass(frozen=True)
class Rotary:
    """The turn of each of T tokens: ``turns`` float32 [P, R], cosines then sines, at ``positions`` int32 [T] of it.

    R, a multiple of 16, is how many of the D elements turn; ``style`` is one of STYLES. Both arrays are where the
    kernels run. A position beyond the table is memory that is not there, and refused where it can be seen, on the CPU.
    Raises LaunchError for another style.
    """

    turns: Array
    positions: Array
    style: str = "halves"

    def __post_init__(self) -> None:
        """Check the style."""
        if self.style not in STYLES:
            raise LaunchError(f"style must be one of {', '.join(STYLES)}, not {self.style!r}")

    @property
    def constant(self) -> int:
        """What the kernels are compiled for: 1 or 2; 0 is none."""
        return STYLES.index(self.style) + 1

    def views(self, tokens: int, head_dim: int, arch: str) -> tuple[ArrayView, ArrayView]:
        """The two arrays, checked for T tokens of D elements."""
        turns = view("turns", self.turns, arch, "float32", (None, None), packed=True)
        if turns.shape[1] % 16 or not 16 <= turns.shape[1] <= head_dim:
            raise LaunchError(f"turns has rows of {turns.shape[1]}; a multiple of 16 up to {head_dim} is needed")
        return turns, view("positions", self.positions, arch, "int32", (tokens,))

    def check_positions(self) -> None:
        """Raise LaunchError for a position that the table does not have, where it can be seen."""
        check_positions(self.positions, len(self.turns))


def rotary_table(positions: int, elements: int, base: float = 10000.0) -> NDArray[np.float32]:
    """Cosines and sines of the first ``positions`` positions: float32 [positions, elements].

    Pair i turns by position / base^(2 i / elements), as in the paper of RoFormer (arXiv 2104.09864).
    """
    angles = np.arange(positions)[:, None] * base ** (-np.arange(0, elements, 2) / elements)
    table: NDArray[Any] = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return table.astype(np.float32)
