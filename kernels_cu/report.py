"""What the compiler made of each kernel, read from the cubin that a GPU would load: no GPU is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import catalogue
from .catalogue import Built
from .constants import Constants, define
from .cubin import kernel_parameters
from .errors import CompileError, CompilerMissingError
from .kernel_name import name_fault
from .main_loop import MACHINES, MainLoop, main_loop
from .nvrtc import compile_cubin
from .occupancy import thread_blocks
from .paged_kv import ELEMENT_BYTES
from .parameters import Parameter
from .sass import disassemble, find_nvdisasm
from .source import gpu_source, packaged_source

ARCHS = ("sm_80", "sm_90", "sm_100")
KERNELS = tuple(catalogue.KERNELS)
OWN = Built({}, 256)
"""How a kernel of one's own is built where nothing is said: without constants, for 256 threads a block."""
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
    cubin: bytes = field(repr=False)

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


def resources(source: str | Path, constants: Constants, arch: str) -> Resources:
    """Compile a kernel, of the package by its name or of a file, as CuPy would, and read what it needs.

    Raises CompilerMissingError or CompileError.
    """
    path = source if isinstance(source, Path) else packaged_source(source)
    kernel, text = path.stem, gpu_source(path)
    compiled = compile_cubin(kernel, text, define(constants), arch)
    try:
        parameters = kernel_parameters(compiled.cubin, kernel)
    except CompileError as error:
        raise CompileError(name_fault(path, text) or str(error)) from error
    frames = [tuple(map(int, frame)) for frame in _FRAME.findall(compiled.log)]
    return Resources(
        kernel,
        arch,
        constants,
        registers=max(map(int, _REGISTERS.findall(compiled.log))),
        spills=sum(stores + loads for _, stores, loads in frames),
        stack=max(stack for stack, _, _ in frames),
        shared=max(map(int, _SHARED.findall(compiled.log)), default=0),
        parameters=parameters,
        cubin=compiled.cubin,
    )


@dataclass(frozen=True)
class KernelReport:
    """What a kernel needs, and what follows from it.

    ``shared``: bytes of shared memory of a thread block, with what the launch adds. ``thread_blocks``: that a
    multiprocessor holds. ``loop``: the main loop, if it has one and nvdisasm is there. ``token_bytes``: K and V of one
    token and head.
    """

    needs: Resources
    threads: int
    shared: int
    thread_blocks: int
    loop: MainLoop | None
    token_bytes: int

    @property
    def issue_share(self) -> float | None:
        """Part of the issue slots that the main loop takes; None where the machine's figures are not known."""
        machine = MACHINES.get(self.needs.arch)
        return self.loop.issue_share(machine) if self.loop and machine else None

    def row(self) -> dict[str, object]:
        """The same as plain data; counts of the main loop are those for 16 tokens."""
        loop, tokens = self.loop, self.token_bytes
        return {
            **self.needs.row(),
            "threads": self.threads,
            "shared_bytes": self.shared,
            "thread_blocks": self.thread_blocks,
            "main_loop": loop and {**loop.for_16_tokens(tokens), "issue_share": self.issue_share},
        }


def report(
    dtype: str,
    head_dim: int,
    layout: str,
    archs: Sequence[str] = ARCHS,
    kernels: Sequence[str | Path] = KERNELS,
    own: Built = OWN,
) -> Iterator[KernelReport]:
    """The report of each kernel on each architecture, in turn, but for kernels not made for such a cache.

    A path is a file of one's own, built as ``own``; it has no main loop, which is that of a walk over tokens.
    """
    with_loops = _has_nvdisasm()
    token_bytes = 2 * head_dim * ELEMENT_BYTES[dtype]

    def inspect(kernel: str | Path, arch: str) -> KernelReport | None:
        built = own if isinstance(kernel, Path) else catalogue.built_for(kernel, dtype, head_dim, layout, arch)
        if built is None:
            return None
        needs = resources(kernel, built.constants, arch)
        shared = needs.shared + built.shared_bytes
        blocks = thread_blocks(arch, built.threads, needs.registers, shared)
        loop = main_loop(disassemble(needs.cubin, kernel)) if with_loops and isinstance(kernel, str) else None
        return KernelReport(needs, built.threads, shared, blocks, loop, token_bytes)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wanted = [(kernel, arch) for kernel in kernels for arch in archs]
        for found in pool.map(inspect, *zip(*wanted, strict=True)):
            if found:
                yield found


def _has_nvdisasm() -> bool:
    try:
        return bool(find_nvdisasm())
    except CompilerMissingError:
        return False
