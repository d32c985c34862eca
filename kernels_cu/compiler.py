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

from .cache import cache_folder
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
LONGEST_RUN_S = 300
"""Seconds after which a compiler is given up; the slowest seen took one minute, when zig built its C++ library."""
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

    @property
    def is_clang(self) -> bool:
        """Whether it is clang, zig's too, and takes its options."""
        return "#define __clang_major__ " in self.identity

    def run(self, what: str, *arguments: str) -> None:
        """Compile. Raises CompileError with the first line that the compiler has to say about ``what``."""
        done = _run([*self.command, *FLAGS, *arguments])
        if done.returncode:
            raise CompileError(f"{self.name} could not compile {what}: {first_error(done)}")


def find_compiler() -> Compiler:
    """$CXX, else c++, g++ or clang++ on the PATH, else the ziglang package.

    Raises CompilerMissingError, with what to install, when none of them is there and new enough.
    """
    return _find_compiler(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@cache
def _find_compiler(chosen: str, path: str) -> Compiler:  # noqa: ARG001 - a part of the cache's key
    refused: list[str] = []
    for command in _candidates(chosen):
        probe = _run([*command, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull])
        if probe.returncode:
            refused.append(f"{shlex.join(command)} did not run: {first_error(probe)}")
        elif reason := _too_old(probe.stdout):
            refused.append(f"{shlex.join(command)} is {reason}")
        else:
            return Compiler(command, probe.stdout)  # every macro that it defines with our flags
    raise CompilerMissingError(_missing(chosen, refused))


def _candidates(chosen: str) -> Iterator[tuple[str, ...]]:
    if chosen.strip():
        words = _words(chosen)
        if words and shutil.which(words[0]):
            yield words
        return  # who names a compiler does not want another
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            yield (found,)
    if importlib.util.find_spec("ziglang"):
        yield zig_command()


def _words(command: str) -> tuple[str, ...]:
    """The words of a command line; none if its quotes do not end."""
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return ()


def zig_command() -> tuple[str, ...]:
    """The compiler of the ziglang package, run by this Python.

    Without -nostdlib++ its first run builds the C++ library, which takes a minute, and nothing here uses it.
    """
    return (sys.executable, "-m", "ziglang", "c++", "-nostdlib++")


def first_error(done: subprocess.CompletedProcess[str]) -> str:
    """The first line that a compiler which failed has to say about it."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if "failed: " in line or ("error" in line and not line.startswith("collect2"))]
    return (telling or lines or [f"it gave no reason (exit status {done.returncode})"])[0]


def _too_old(identity: str) -> str:
    for macro, oldest in OLDEST.items():
        if found := re.search(rf"^#define {macro} (\d+)$", identity, re.MULTILINE):
            version = int(found[1])
            return f"{_NAMES[macro]} {version}, {oldest} is needed" if version < oldest else ""
    return "not a C++ compiler that runs"


def _missing(chosen: str, refused: Sequence[str]) -> str:
    remedy = "install g++ 12 or clang 15 or newer, or run: python -m pip install 'pagewalk[host]'"
    if chosen.strip() and not refused:
        return f"CXX names {chosen!r}, which is not on the PATH; unset it, or {remedy}"
    reason = "; ".join(refused) if refused else "there is no C++ compiler on the PATH"
    return f"kernels on the CPU need a C++ compiler: {reason}; {remedy}"


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache_folder() / "zig"))  # zig finds none where HOME is not set
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environment,
            timeout=LONGEST_RUN_S,
        )
    except subprocess.TimeoutExpired:
        remedy = "set PAGEWALK_CACHE to a writable folder, or CXX to another compiler"
        reason = f"error: no answer in {LONGEST_RUN_S} s; {remedy}"
        return subprocess.CompletedProcess(command, 1, "", reason)


def write_source(folder: Path, name: str, text: str) -> Path:
    """Put a source where a compiler can read it."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
