"""The one way into a kernel: every launch on every device passes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .constants import Constants
from .host_run import host_run_of
from .kernel import Extent
from .launch_shape import check_shape
from .loader import load
from .parameters import Argument, check_arguments
from .target import Target


def launch_checked(
    target: Target,
    source: str | Path,
    constants: Constants,
    grid: Extent,
    block: Extent,
    arguments: Sequence[Argument],
    *,
    stream: int,
    keepalive: object,
    shared_bytes: int = 0,
    look: Callable[[], None] | None = None,
) -> None:
    """Load a kernel, check ``arguments`` against its table, and launch it on ``stream``, in the target's own order.

    A grid with an extent of 0 launches nothing (CuPy would make 1 of the 0) and needs no compiler. ``keepalive`` is
    held until the kernel has run. ``shared_bytes`` is the dynamic shared memory of a block. ``look`` is called before
    the kernel on the CPU, when all work before it has run, and raises for ids that it must not follow. Raises
    LaunchError for a mismatch and for a shape that a GPU refuses, what ``target.fault`` returns for a fault.
    """
    check_shape(source if isinstance(source, str) else source.stem, target.arch, grid, block, shared_bytes)
    if 0 in grid:
        return
    kernel = load(source, constants, target.arch, host_run_of(target).observed)
    # At once where it can be: not when a queued launch runs. A GPU's table is read where its device is current.
    at_once = target.arch == "host"
    if at_once:
        check_arguments(kernel.name, kernel.parameters, arguments)

    def call() -> None:
        if not at_once:
            check_arguments(kernel.name, kernel.parameters, arguments)
        elif look is not None:
            look()
        kernel.launch(target, grid, block, arguments, stream, shared_bytes)

    target.submit(stream, call, keepalive)
