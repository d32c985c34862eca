"""A kernel that runs on the CPU: load the compiled object, read its table, launch it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # mypy has no stub; signal makes an enum of each number, which is slow
import ctypes
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

from .constants import Constants
from .errors import CompileError, KernelError
from .host_build import build_kernel, build_runtime
from .host_run import ORDERS, SCHEDULES, host_run_of
from .kernel import Extent
from .line_table import LineTable
from .memory_meter import MeterRecord
from .parameters import Argument, Parameter, pack_arguments
from .race import RaceError, RacingAccess
from .target import Target

_DONE, _FAULT, _RACE, _INTERRUPTED = 0, 1, 7, 13
_FAILURES = {
    2: "a thread's stack is full; the kernel keeps too much in local arrays",
    3: "a barrier or shuffle waits for threads that never reach it",
    5: "lanes of one warp wait in different barriers, shuffles or matrix operations; all must reach the same one",
    6: "an asynchronous copy or a row of a matrix begins at {address:#x}, which is not a multiple of its size",
    8: "a thread touches byte {address} of dynamic shared memory, of which the launch gave {shared}",
    9: "an asynchronous copy goes to {address:#x}, or a row of a matrix lies there, which is not shared memory",
    10: "an integer is divided by 0, or the least one by -1; the value is undefined on a GPU, so check the divisor",
    11: "a thread comes where the source has no defined meaning: a division by a constant 0, a missing return",
    12: "a thread touches {address:#x}, which is not a multiple of the size of what it reads or writes there; "
    "a GPU stops with CUDA_ERROR_MISALIGNED_ADDRESS (716)",
    14: "a thread writes beside the kernel's shared arrays; check the indices into what is __shared__",
    15: "a thread ends the kernel by __trap()",
    16: "an assert fails in line {address} of the source; a GPU stops with CUDA_ERROR_ASSERT (710)",
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
        ("seed", ctypes.c_uint64),
        ("host_threads", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("eager_copies", ctypes.c_int),
        ("race_check", ctypes.c_int),
        ("meter", ctypes.POINTER(MeterRecord)),
        ("interruptible", ctypes.c_int),
    ]


class _RacingAccess(ctypes.Structure):
    _fields_ = [("at", ctypes.c_uint64), ("thread", ctypes.c_uint), ("kind", ctypes.c_uint)]


class _Result(ctypes.Structure):
    _fields_ = [
        ("write", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("block", ctypes.c_uint * 3),
        ("before", _RacingAccess),
        ("now", _RacingAccess),
        ("code", ctypes.c_uint64),
    ]


class HostKernel:
    """One compiled kernel. Its parameter table comes from the type of its C++ function."""

    def __init__(self, source: Path, constants: Constants, observed: bool = False) -> None:
        self.name = source.stem
        self._path = build_kernel(source, constants, observed)
        self._library = _open(self._path)
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
        """Run the kernel now.

        Raises target.fault(...) for a fault, RaceError for a race that the run checks for, KernelError for threads that
        cannot go on, KeyboardInterrupt for Ctrl-C in the main thread, where Python's own handler is in place.
        """
        run = host_run_of(target)
        record = run.meter.record() if run.meter else None
        options = _Options(
            SCHEDULES.index(run.schedule),
            ORDERS.index(run.order),
            run.seed,
            run.threads,
            shared_bytes,
            run.copies == "eager",
            run.race_check,
            ctypes.pointer(record) if record else None,
            _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler,
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
        if run.meter and record:
            sites = record.sites[: record.site_count]
            run.meter.add([self._line_of(site.at - result.code) for site in sites], record)
        if status == _INTERRUPTED:
            raise KeyboardInterrupt
        if status == _FAULT:
            raise target.fault(result.address, bool(result.write))
        if status == _RACE:
            raise self._race(result)
        if status != _DONE:
            raise KernelError(self._failure(status, result, shared_bytes))

    @cached_property
    def _lines(self) -> LineTable:
        return LineTable(self._path.read_bytes())

    def _line_of(self, at: int) -> str:
        """The source line of a place behind a call, counted from the start of the object."""
        return self._lines.line_of(at - 1)

    def _race(self, result: _Result) -> RaceError:
        before, now = (
            RacingAccess(access.kind, access.thread, self._line_of(access.at)) for access in (result.before, result.now)
        )
        return RaceError(self.name, tuple(result.block), result.address, before, now)

    def _failure(self, status: int, result: _Result, shared: int) -> str:
        if failure := _FAILURES.get(status):
            return f"{self.name}, block {tuple(result.block)}: {failure.format(address=result.address, shared=shared)}"
        return f"{self.name}: the system has no memory for the stacks of its threads; free some, or use fewer threads"


@cache
def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"{path} cannot be loaded: {error}; delete it, and it is compiled again") from None
