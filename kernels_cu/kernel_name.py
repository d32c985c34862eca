"""A kernel is found by its file's name: what to say where it is not."""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BOUNDS = re.compile(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)")
_KERNEL = re.compile(r"__global__\s+[\w\s:<>,*&]*?\b(\w+)\s*\(")
_IN_C = re.compile(r'extern\s+"C"[^;{}]*__global__|extern\s+"C"\s*\{')


def kernel_names(text: str) -> list[str]:
    """The kernels that a source text writes out; one whose name a macro makes is not among them."""
    return _KERNEL.findall(_BOUNDS.sub("", _COMMENT.sub("", text)))


def name_fault(source: Path, text: str) -> str:
    """Why no kernel of the name of the file ``source`` is found in its ``text``; empty where one is."""
    name, names = source.stem, kernel_names(text)
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return f"{source.name}: a kernel has its file's name, and {name!r} is no name in C; rename the file"
    if name not in names:
        has = f"its kernels are {', '.join(names)}" if names else "it has no __global__ function"
        return f"{source.name} has no kernel {name}: {has}; a kernel has its file's name"
    if not _IN_C.search(_COMMENT.sub("", text)):
        return (
            f'{source.name}: kernel {name} has a C++ name that no launch finds; write extern "C" __global__ void {name}'
        )
    return ""
