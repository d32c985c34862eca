"""Compile for the CPU: the runtime that runs fibers, once, and each kernel with its constants."""

from __future__ import annotations

from pathlib import Path

from .cache import content_key, fetch
from .compiler import FLAGS, Compiler, find_compiler, write_source
from .constants import Constants, define
from .progress import announced
from .source import HOST, host_source

RUNTIME_SOURCES = ("arena.cpp", "block.cpp", "copies.cpp", "faults.cpp", "launch.cpp", "switch.cpp", "tensor_core.cpp")


def build_runtime() -> Path:
    """The shared object that launches kernels on this CPU.

    Raises CompilerMissingError or CompileError.
    """
    compiler = find_compiler()
    files = [*sorted(HOST.glob("*.h")), *(HOST / name for name in RUNTIME_SOURCES)]
    key = content_key([compiler.identity, *FLAGS, *(file.read_text(encoding="utf-8") for file in files)])

    def build(path: Path) -> None:
        sources = [str(HOST / name) for name in RUNTIME_SOURCES]
        with announced(f"compiling the CPU runtime with {compiler.name}"):
            compiler.run("the CPU runtime", *sources, "-shared", "-pthread", "-lm", "-o", str(path))

    return fetch(f"runtime-{key}.so", build)


def build_kernel(source: Path, constants: Constants) -> Path:
    """The shared object of one kernel with its constants.

    Raises CompilerMissingError or CompileError.
    """
    compiler, options, text = find_compiler(), define(constants), host_source(source)
    key = content_key([compiler.identity, *FLAGS, *options, text])

    def build(path: Path) -> None:
        _compile(compiler, source.stem, options, text, path)

    return fetch(f"{source.stem}-{key}.so", build)


def _compile(compiler: Compiler, name: str, options: tuple[str, ...], text: str, path: Path) -> None:
    written = write_source(path.parent, f"{name}.cpp", text)
    shown = " ".join(option.removeprefix("-D") for option in options)
    with announced(f"compiling {name} ({shown}) with {compiler.name}"):
        compiler.run(name, *options, str(written), "-shared", "-lm", "-o", str(path))
