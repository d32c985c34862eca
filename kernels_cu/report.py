"""What the compiler made of each kernel, read from the cubin that a GPU would load: no GPU is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from . import catalogue
from .constants import Constants, define
from .cubin import kernel_parameters
from .nvrtc import compile_cubin
from .parameters import Parameter
from .source import PACKAGE, gpu_source

ARCHS = ("sm_80", "sm_90")
KERNELS = tuple(catalogue.KERNELS)
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Resources:
    """One kernel, with its constants, on one architecture. Sizes in bytes; spills are stores and loads together."""

    kernel: str
    arch: str
    constants: Constants
    registers: int
    spills: int
    stack: int
    shared: int
    parameters: tuple[Parameter, ...]

    def row(self) -> dict[str, object]:
        """The same as plain data."""
        return {
            "kernel": self.kernel,
            "arch": self.arch,
            "constants": dict(self.constants),
            "registers": self.registers,
            "spill_bytes": self.spills,
            "stack_bytes": self.stack,
            "shared_bytes": self.shared,
            "parameters": [{"offset": p.offset, "size": p.size} for p in self.parameters],
        }


def resources(kernel: str, constants: Constants, arch: str) -> Resources:
    """Compile ``kernel`` as CuPy would and read what it needs. Raises CompilerMissingError or CompileError."""
    compiled = compile_cubin(kernel, gpu_source(PACKAGE / f"{kernel}.cu"), define(constants), arch)
    frames = [tuple(map(int, frame)) for frame in _FRAME.findall(compiled.log)]
    return Resources(
        kernel,
        arch,
        constants,
        registers=max(map(int, _REGISTERS.findall(compiled.log))),
        spills=sum(stores + loads for _, stores, loads in frames),
        stack=max(stack for stack, _, _ in frames),
        shared=max(map(int, _SHARED.findall(compiled.log)), default=0),
        parameters=kernel_parameters(compiled.cubin, kernel),
    )


def report(
    dtype: str, head_dim: int, layout: str, archs: Sequence[str] = ARCHS, kernels: Sequence[str] = KERNELS
) -> Iterator[Resources]:
    """The resources of each kernel on each architecture, in turn, but for kernels not made for such a cache."""
    for kernel in kernels:
        for arch in archs:
            if built := catalogue.built_for(kernel, dtype, head_dim, layout, arch):
                yield resources(kernel, built.constants, arch)
