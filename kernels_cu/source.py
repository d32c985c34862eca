"""Kernel sources with their headers written into them.

One text a kernel has two uses: a compiler's cache that looks at the text sees every header too (CuPy's own does not
look at included files), and no include path has to exist where the text is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .errors import CompileError

PACKAGE = Path(__file__).parent
HOST = PACKAGE / "host"
_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
_ONCE = re.compile(r"\s*#\s*pragma\s+once")

_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\([^)]*\)\s*)?((?:\w+\s+)*\w+)\s+(\w+)\s*\[\s*\]\s*;"
)
"""Dynamic shared memory as CUDA writes it; in C++ two words for where a variable lies do not go together."""
_IN_A_FUNCTION = "do {} while (0); "
"""At the level of the file it would run before there is a thread: a statement is an error there."""


def packaged_source(name: str) -> Path:
    """The file of a kernel of the package. Raises CompileError for a name that is none."""
    path = PACKAGE / f"{name}.cu"
    if path.parent != PACKAGE or not path.is_file():
        raise CompileError(
            f"{name!r} is no kernel of the package, and a string names one of those; "
            f"pass the path of a file of your own: Path({name.removesuffix('.cu') + '.cu'!r})"
        )
    return path


def gpu_source(path: Path) -> str:
    """The text of a kernel for NVRTC."""
    return "".join(_expand(path, set()))


def host_source(path: Path) -> str:
    """The text of a kernel for a C++ compiler: after the host's headers, and followed by its table."""
    seen: set[Path] = set()
    lines = _expand(HOST / "kernel_table.h", seen) + _expand(HOST / "cuda_host.h", seen)
    own = _DYNAMIC.sub(rf"{_IN_A_FUNCTION}\1* const \2 = (\1*)pagewalk_dynamic_shared();", "".join(_expand(path, seen)))
    return "".join(lines) + own + f"PAGEWALK_EXPORT({path.stem})\n"


def sources_of(path: Path) -> Iterable[Path]:
    """The files that the text of a kernel is made of, as far as they lie outside the package."""
    seen: set[Path] = set()
    _expand(path, seen)
    return (file for file in seen if PACKAGE not in file.parents)


def _expand(path: Path, seen: set[Path]) -> list[str]:
    """The lines of ``path`` with each quoted include replaced by its file, the first time; #line keeps the numbers."""
    seen.add(path)
    lines = [f'#line 1 "{path.name}"\n']
    for number, line in enumerate(_read(path).splitlines(keepends=True), start=1):
        include = _INCLUDE.match(line)
        if _ONCE.match(line):
            lines.append("\n")
        elif include is None:
            lines.append(line)
        else:
            header = _find(include[1], path)
            if header not in seen:
                lines += _expand(header, seen)
            lines.append(f'#line {number + 1} "{path.name}"\n')
    return lines


def _find(name: str, includer: Path) -> Path:
    for folder in (includer.parent, PACKAGE):
        if (folder / name).is_file():
            return (folder / name).resolve()
    raise CompileError(
        f"{includer.name} includes {name}, which is neither in {includer.parent.absolute()} nor in {PACKAGE}"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not UTF-8: {error.reason}"
        remedy = "; reinstall pagewalk" if PACKAGE in path.parents else ""
        raise CompileError(f"kernel source {path.absolute()} cannot be read: {reason}{remedy}") from None
