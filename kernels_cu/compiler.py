"""Find a C++ compiler for the kernels on a CPU, and run it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import CompileError, CompilerMissingError

FLAGS = (
    "-std=gnu++17",  # gnu: with strict ISO rules gcc joins no multiplication with an addition
    "-O2",
    "-mcpu=native" if platform.machine() == "aarch64" else "-march=native",  # the spelling that both compilers know
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",  # kernels read elements as vectors
    "-fvisibility=hidden",
    "-fstack-clash-protection",  # a large frame touches the guard of its fiber's stack instead of reaching over it
)
OLDEST = {"__clang_major__": 15, "__GNUC__": 12}
"""The first versions with _Float16 in C++."""
_NAMES = {"__clang_major__": "clang", "__GNUC__": "g++"}


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C++. ``identity`` is every macro it defines: its version, and the CPU's features."""

    command: tuple[str, ...]
    identity: str

    @property
    def name(self) -> str:
        """How to speak of it in a line of text."""
        return "zig c++" if "ziglang" in self.command else shlex.join(self.command)

    def run(self, what: str, *arguments: str) -> None:
        """Compile. Raises CompileError with the first line that the compiler has to say about ``what``."""
        done = _run([*self.command, *FLAGS, *arguments])
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise CompileError(f"{self.name} could not compile {what}: {lines[0] if lines else 'it gave no reason'}")


def find_compiler() -> Compiler:
    """$CXX, else c++, g++ or clang++ on the PATH, else the ziglang package.

    Raises CompilerMissingError, with what to install, when none of them is there and new enough.
    """
    return _find_compiler(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@cache
def _find_compiler(chosen: str, path: str) -> Compiler:  # noqa: ARG001 - a part of the cache's key
    refused: list[str] = []
    for command in _candidates(chosen):
        identity = _identify(command)
        if reason := _too_old(identity):
            refused.append(f"{shlex.join(command)} is {reason}")
        else:
            return Compiler(command, identity)
    raise CompilerMissingError(_missing(chosen, refused))


def _candidates(chosen: str) -> Iterator[tuple[str, ...]]:
    if chosen.strip():
        words = tuple(shlex.split(chosen))
        if shutil.which(words[0]):
            yield words
        return  # who names a compiler does not want another
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            yield (found,)
    if importlib.util.find_spec("ziglang"):
        yield zig_command()


def zig_command() -> tuple[str, ...]:
    """The compiler of the ziglang package, run by this Python.

    Without -nostdlib++ its first run builds the C++ library, which takes a minute, and nothing here uses it.
    """
    return (sys.executable, "-m", "ziglang", "c++", "-nostdlib++")


def _identify(command: Sequence[str]) -> str:
    """Every macro that the compiler defines with our flags; empty if it does not run."""
    done = _run([*command, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])
    return done.stdout if done.returncode == 0 else ""


def _too_old(identity: str) -> str:
    for macro, oldest in OLDEST.items():
        if found := re.search(rf"^#define {macro} (\d+)$", identity, re.MULTILINE):
            version = int(found[1])
            return f"{_NAMES[macro]} {version}, {oldest} is needed" if version < oldest else ""
    return "not a C++ compiler that runs"


def _missing(chosen: str, refused: Sequence[str]) -> str:
    remedy = "install g++ 12 or clang 15 or newer, or run: python -m pip install ziglang"
    if chosen.strip() and not refused:
        return f"CXX names {chosen!r}, which is not on the PATH; unset it, or {remedy}"
    reason = "; ".join(refused) if refused else "there is no C++ compiler on the PATH"
    return f"kernels on the CPU need a C++ compiler: {reason}; {remedy}"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)


def write_source(folder: Path, name: str, text: str) -> Path:
    """Put a source where a compiler can read it."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
