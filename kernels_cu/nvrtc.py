"""Compile for a GPU without one: NVRTC as CuPy uses it, with the options that CuPy sends, through cuda.bindings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from .errors import CompileError, CompilerMissingError

REMEDY = "run: python -m pip install 'pagewalk[test]'"


@dataclass(frozen=True)
class Compiled:
    """A cubin, and what the compiler had to say about it (with its resource figures)."""

    cubin: bytes
    log: str


def cupy_options(options: Sequence[str], arch: str) -> tuple[str, ...]:
    """The options that reach NVRTC when a CuPy RawModule is compiled with ``options``, but for include folders.

    A kernel is one text without includes, so the folders that CuPy adds have no effect on it. CuPy appends -ftz=true
    after ours, and the last one wins.
    """
    return (*options, "--std=c++17", "-ftz=true", f"-arch={arch}", "--device-as-default-execution-space")


@cache
def compile_cubin(name: str, text: str, options: tuple[str, ...], arch: str) -> Compiled:
    """Compile ``text`` to a cubin for ``arch`` ("sm_90" and the like), with ``options`` and CuPy's own, once a process.

    Raises CompilerMissingError if the NVRTC library is not there, CompileError with its first error line otherwise.
    """
    nvrtc = _load()
    flags = [option.encode() for option in (*cupy_options(options, arch), "--ptxas-options=-v")]
    program = _call(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0]
        log = _log(nvrtc, program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC could not compile {name} for {arch}: {_first_error(log) or status.name}")
        cubin = bytes(_call(nvrtc.nvrtcGetCUBINSize(program)))
        _call(nvrtc.nvrtcGetCUBIN(program, cubin))
        return Compiled(cubin, log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def nvrtc_version() -> str:
    """The version of the NVRTC library, "13.5". Raises CompilerMissingError if it is not there."""
    _, major, minor = _load().nvrtcVersion()
    return f"{major}.{minor}"


def _load() -> Any:
    """cuda.bindings.nvrtc, once its library is found: the first call of it fails with an exception otherwise."""
    from cuda.bindings import nvrtc

    try:
        status = nvrtc.nvrtcVersion()[0]
    except Exception as error:  # the binding raises its loader's own error class, or RuntimeError
        raise CompilerMissingError(f"the NVRTC library was not found ({type(error).__name__}); {REMEDY}") from None
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompilerMissingError(f"NVRTC does not answer: {status.name}; {REMEDY}")
    return nvrtc


def _call(result: tuple[Any, ...]) -> Any:
    """What a call of NVRTC gave besides its status."""
    if int(result[0]) != 0:
        raise CompileError(f"NVRTC failed: {result[0].name}")
    return result[1] if len(result) > 1 else None


def _log(nvrtc: Any, program: Any) -> str:
    log = bytes(_call(nvrtc.nvrtcGetProgramLogSize(program)))
    _call(nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0").decode(errors="replace")


def _first_error(log: str) -> str:
    return next((line for line in log.splitlines() if "error" in line), "")
