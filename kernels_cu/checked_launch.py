"""The one way into a kernel: every launch on every device passes here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .parameters import Argument, Parameter, check_arguments
from .target import Target

Extent = tuple[int, int, int]


class Kernel(Protocol):
    """A compiled kernel, for a CPU or a GPU."""

    name: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's own parameter table."""

    def launch(self, target: Target, grid: Extent, block: Extent, arguments: Sequence[Argument], stream: int) -> None:
        """Start it with arguments that fit the table."""


def launch_checked(
    target: Target,
    kernel: Kernel,
    grid: Extent,
    block: Extent,
    arguments: Sequence[Argument],
    *,
    stream: int,
    keepalive: object,
) -> None:
    """Check ``arguments`` against the kernel's table and launch it on ``stream``, in the target's own order.

    A grid with an extent of 0 launches nothing (CuPy would make 1 of the 0). ``keepalive`` is held until the kernel has
    run. Raises LaunchError for a mismatch, and what ``target.fault`` returns for a fault.
    """
    if 0 in grid:
        return

    def call() -> None:
        check_arguments(kernel.name, kernel.parameters, arguments)
        kernel.launch(target, grid, block, arguments, stream)

    target.submit(stream, call, keepalive)
