"""What a compiled kernel is to those who launch it, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .parameters import Argument, Parameter
from .target import Target

Extent = tuple[int, int, int]
"""Blocks of a grid, or threads of a block, in x, y and z."""


class Kernel(Protocol):
    """A compiled kernel: its name, its own parameter table, and the way to start it."""

    name: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's own parameter table."""

    def launch(
        self,
        target: Target,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        stream: int,
        shared_bytes: int = 0,
    ) -> None:
        """Start it with arguments that fit the table, and ``shared_bytes`` of dynamic shared memory a block."""
