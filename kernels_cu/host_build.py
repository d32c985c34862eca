"""Compile for the CPU: the runtime that runs fibers, once, and each kernel with its constants."""

from __future__ import annotations

from pathlib import Path

from .cache import content_key, fetch
from .compiler import FLAGS, Compiler, find_compiler, write_source
from .constants import Constants, define
from .errors import CompileError
from .kernel_name import name_fault
from .progress import announced
from .source import HOST, host_source

RUNTIME_SOURCES = (
    "arena.cpp",
    "block.cpp",
    "copies.cpp",
    "faults.cpp",
    "interrupt.cpp",
    "launch.cpp",
    "meter.cpp",
    "observer.cpp",
    "operand.cpp",
    "race.cpp",
    "switch.cpp",
    "tensor_core.cpp",
    "workplace.cpp",
)


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


OBSERVED = ("-fsanitize=thread", "-DPAGEWALK_OBSERVED=1", "-g1", "-gdwarf-4")
"""How a kernel is compiled whose loads and stores are seen: the compiler writes a call before each, and its line."""
WHOLE_VECTORS = "-fno-tree-sra"
"""gcc would load the members of a vector one by one, where a GPU loads it whole."""


def build_kernel(source: Path, constants: Constants, observed: bool = False) -> Path:
    """The shared object of one kernel with its constants, ``observed``: one that tells of each load and store.

    Raises CompilerMissingError or CompileError.
    """
    compiler, options, text = find_compiler(), define(constants), host_source(source)
    before, behind = _build_part(compiler, "before_shared"), _build_part(compiler, "behind_shared")
    observing = () if not observed else OBSERVED if compiler.is_clang else (*OBSERVED, WHOLE_VECTORS)
    witness = (_build_part(compiler, "instrumented"),) if observed else ()
    parts = (before, *witness, behind)
    key = content_key([compiler.identity, *FLAGS, *observing, *(part.name for part in parts), *options, text])

    def build(path: Path) -> None:
        # Linked without the option: no library of the compiler comes in, and the calls go to our own functions. In this
        # order, which compilers do not keep between sources and objects: shared arrays lie between their edges.
        objects = path.with_suffix(".o")
        try:
            _compile(compiler, source.stem, (*options, *observing), text, objects)
        except CompileError as error:
            raise CompileError(name_fault(source, source.read_text(encoding="utf-8")) or str(error)) from error
        linked = map(str, (before, objects, *witness, behind))
        compiler.run(source.stem, *linked, "-shared", "-lm", "-o", str(path))

    return fetch(f"{source.stem}-{key}.so", build)


def _build_part(compiler: Compiler, name: str) -> Path:
    """An object file that is linked into kernels: the edges of shared memory, and what an observed kernel calls."""
    source = HOST / f"{name}.cpp"
    files = (source, *sorted(HOST.glob("*.h")))
    key = content_key([compiler.identity, *FLAGS, *(file.read_text(encoding="utf-8") for file in files)])
    return fetch(f"{name}-{key}.o", lambda path: compiler.run(name, "-c", str(source), "-o", str(path)))


def _compile(compiler: Compiler, name: str, options: tuple[str, ...], text: str, path: Path) -> None:
    written = write_source(path.parent, f"{name}.cpp", text)
    shown = " ".join(option.removeprefix("-D") for option in options if option.startswith("-D"))
    with announced(f"compiling {name} ({shown}) with {compiler.name}"):
        compiler.run(name, *options, "-c", str(written), "-o", str(path))
