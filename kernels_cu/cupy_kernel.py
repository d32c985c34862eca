"""A kernel that runs on a GPU: a CuPy RawModule, compiled by NVRTC at its first launch on a device.

What CuPy leaves to its caller, and where it is taken care of:
  - arguments are neither counted nor measured: checked_launch.py compares them with the driver's own table;
  - a Python float is 8 bytes to CuPy, so every argument is a NumPy scalar of its width, an address a uint64;
  - a grid extent of 0 would run one block: checked_launch.py returns before;
  - included files are not in the key of its cache: source.py writes them into the text;
  - the device is the thread's current one at the call: nothing here touches it before ``Target.submit`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .constants import Constants, define
from .cubin import kernel_parameters
from .errors import CompileError, CompilerMissingError
from .kernel import Extent
from .kernel_name import name_fault
from .nvrtc import compile_cubin
from .parameters import Argument, Parameter
from .source import gpu_source
from .target import Target

ILLEGAL_ADDRESS = 700
"""The driver's code CUDA_ERROR_ILLEGAL_ADDRESS. It may come from any launch before this one."""

NOT_FOUND = 500
"""The driver's code CUDA_ERROR_NOT_FOUND: the compiled module has no function of that name."""

SHARED_WITHOUT_ASKING = 48 * 1024
"""Bytes of shared memory that a block may have unless the kernel is allowed more, on the current device."""

_REMEDY = "run: python -m pip install 'pagewalk[cuda13]' (or [cuda12])"


class CupyKernel:
    """One kernel with its constants. CuPy keeps one compiled copy a device."""

    def __init__(self, source: Path, constants: Constants, arch: str) -> None:
        self.name, self.arch, self._source = source.stem, arch, source
        self._text, self._options = gpu_source(source), define(constants)
        self._cupy = _import_cupy()

    @cached_property
    def _kernel(self) -> Any:
        """The RawKernel; CuPy compiles here, so the device must be current."""
        try:
            return self._cupy.RawModule(code=self._text, options=self._options).get_function(self.name)
        except self._cupy.cuda.compiler.CompileException as error:
            lines = [line for line in str(error).splitlines() if "error" in line]
            raise CompileError(f"NVRTC could not compile {self.name}: {lines[0] if lines else error}") from error
        except self._cupy.cuda.driver.CUDADriverError as error:
            if error.status != NOT_FOUND:
                raise
            raise CompileError(name_fault(self._source, self._text) or f"no kernel {self.name}: {error}") from error
        except RuntimeError as error:
            if "CUDA headers" not in str(error):
                raise
            raise CompilerMissingError(f"CuPy compiles nothing without CUDA's headers; {_REMEDY}") from None

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The driver's own table, or where the driver is too old to give it, that of the same cubin compiled again."""
        if table := _driver_parameters(self._kernel.kernel.ptr):
            return table
        compiled = compile_cubin(self.name, self._text, self._options, self.arch)
        return kernel_parameters(compiled.cubin, self.name)

    def launch(
        self,
        target: Target,
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        stream: int,
        shared_bytes: int = 0,
    ) -> None:
        """Queue the kernel on ``stream``. Raises target.fault(...) for a fault, of this kernel or one before it."""
        try:
            if shared_bytes > SHARED_WITHOUT_ASKING:
                self._kernel.max_dynamic_shared_size_bytes = shared_bytes
            self._kernel(grid, block, tuple(arguments), shared_mem=shared_bytes, stream=_Stream(stream))
        except self._cupy.cuda.driver.CUDADriverError as error:
            if error.status != ILLEGAL_ADDRESS:
                raise
            raise target.fault(0, False) from error


class _Stream:
    """A stream as CuPy takes it at a launch: anything with its handle as ``ptr``."""

    def __init__(self, handle: int) -> None:
        self.ptr = handle


def _import_cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise CompilerMissingError(f"kernels on a GPU need CuPy ({error}); {_REMEDY}") from None
    return cupy


def _driver_parameters(function: int) -> tuple[Parameter, ...] | None:
    """What the driver says of a function's parameters: offset and size of each; None if it has no such call."""
    from cuda.bindings import driver

    found: list[Parameter] = []
    try:
        while True:
            status, offset, size = driver.cuFuncGetParamInfo(driver.CUfunction(function), len(found))
            if status != driver.CUresult.CUDA_SUCCESS:  # an index past the last is an invalid value
                break
            found.append(Parameter(int(offset), int(size)))
    except (AttributeError, RuntimeError):
        return None
    return tuple(found) or None
