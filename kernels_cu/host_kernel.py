"""A kernel that runs on the CPU: load the compiled object, read its table, launch it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .constants import Constants
from .errors import CompileError, KernelError
from .host_build import build_kernel, build_runtime
from .host_run import ORDERS, SCHEDULES, host_run_of
from .kernel import Extent
from .parameters import Argument, Parameter, pack_arguments
from .target import Target

_DONE, _FAULT = range(2)
_FAILURES = {
    2: "a thread's stack is full; the kernel keeps too much in local arrays",
    3: "a barrier or shuffle waits for threads that never reach it",
    5: "lanes of one warp wait in different barriers, shuffles or matrix operations; all must reach the same one",
    6: "an asynchronous copy or a row of a matrix begins at {address:#x}, which is not a multiple of its size",
}
"""What a Status of fiber.h means."""


class _Parameter(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint32), ("size", ctypes.c_uint32), ("kind", ctypes.c_uint32)]


class _Kernel(ctypes.Structure):
    _fields_ = [("parameter_count", ctypes.c_uint32), ("parameters", ctypes.POINTER(_Parameter))]


class _Options(ctypes.Structure):
    _fields_ = [
        ("schedule", ctypes.c_int),
        ("order", ctypes.c_int),
        ("host_threads", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("eager_copies", ctypes.c_int),
    ]


class _Result(ctypes.Structure):
    _fields_ = [("write", ctypes.c_int), ("address", ctypes.c_uint64), ("block", ctypes.c_uint * 3)]


class HostKernel:
    """One compiled kernel. Its parameter table comes from the type of its C++ function."""

    def __init__(self, source: Path, constants: Constants) -> None:
        self.name = source.stem
        self._library = _open(build_kernel(source, constants))
        self._kernel = _Kernel.in_dll(self._library, "pagewalk_kernel")
        table = self._kernel.parameters[: self._kernel.parameter_count]
        self.parameters = tuple(Parameter(p.offset, p.size, chr(p.kind)) for p in table)
        self._launch = _open(build_runtime()).pagewalk_launch

    def launch(
        self,
        target: Target,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        stream: int,  # noqa: ARG002
        shared_bytes: int = 0,
    ) -> None:
        """Run the kernel now. Raises target.fault(...) for a fault, KernelError for threads that cannot go on."""
        run = host_run_of(target)
        options = _Options(
            SCHEDULES.index(run.schedule), ORDERS.index(run.order), run.threads, shared_bytes, run.copies == "eager"
        )
        extents, result = ctypes.c_uint * 3, _Result()
        status = self._launch(
            ctypes.byref(self._kernel),
            extents(*grid),
            extents(*block),
            pack_arguments(self.parameters, arguments),
            ctypes.byref(options),
            ctypes.byref(result),
        )
        if status == _FAULT:
            raise target.fault(result.address, bool(result.write))
        if status != _DONE:
            raise KernelError(self._failure(status, result))

    def _failure(self, status: int, result: _Result) -> str:
        if failure := _FAILURES.get(status):
            return f"{self.name}, block {tuple(result.block)}: {failure.format(address=result.address)}"
        return f"{self.name}: the system has no memory for the stacks of its threads; free some, or use fewer threads"


@cache
def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"{path} cannot be loaded: {error}; delete it, and it is compiled again") from None
