"""Source and constants in, kernel out: compiled once a process, for the CPU or by NVRTC for a GPU.

The package's own kernels stay as they are while a process runs. Those of others are edited: each launch looks whether
their files are still the ones that were compiled.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from .constants import Constants
from .errors import CompileError
from .host_kernel import HostKernel
from .kernel import Kernel
from .source import packaged_source, sources_of

Stamp = tuple[int, int, int, int]
"""What tells one state of a file from another: device, inode, time of the last change, size."""


@dataclass(frozen=True)
class _Loaded:
    """A kernel, and the files outside the package that it was compiled from, as they were then."""

    kernel: Kernel
    files: tuple[tuple[str, Stamp], ...] = ()

    def is_current(self) -> bool:
        return all(_stamp(file) == stamp for file, stamp in self.files)


_loaded: dict[tuple[str | Path, tuple[tuple[str, int | str], ...], str, bool], _Loaded] = {}
_lock = threading.Lock()


def load(source: str | Path, constants: Constants, arch: str, observed: bool = False) -> Kernel:
    """The kernel of ``source`` with its -D ``constants``, for ``arch`` ("host", or "sm_90" and the like).

    ``source`` is the name of one of the package's kernels ("append_kv") or the path of a .cu file, which is compiled
    again where it, or what it includes, has changed; the kernel has the file's name. ``observed``: for the CPU, a build
    whose loads and stores can be watched. Raises CompilerMissingError or CompileError.
    """
    if not isinstance(source, str) and not source.is_absolute():
        source = source.absolute()  # it means another file after os.chdir
    key = (source, tuple(sorted(constants.items())), arch, observed)
    with _lock:
        found = _loaded.get(key)
        if found is None or (found.files and not found.is_current()):
            found = _loaded[key] = _load(source, constants, arch, observed)
        return found.kernel


def _load(source: str | Path, constants: Constants, arch: str, observed: bool) -> _Loaded:
    if isinstance(source, str):
        return _Loaded(_compile(packaged_source(source), constants, arch, observed))
    files = tuple((str(file), _stamp(file)) for file in sources_of(source))  # before they are read: none is missed
    return _Loaded(_compile(source, constants, arch, observed), files)


def _stamp(file: str | Path) -> Stamp:
    try:
        found = os.stat(file)  # noqa: PTH116 - a third of the time of Path.stat, at every launch
    except OSError as error:
        raise CompileError(f"kernel source {file} cannot be read: {error.strerror}") from None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _compile(path: Path, constants: Constants, arch: str, observed: bool) -> Kernel:
    if arch == "host":
        return HostKernel(path, constants, observed)
    from .cupy_kernel import CupyKernel  # only here: CuPy is not a base dependency, and slow to import

    return CupyKernel(path, constants, arch)
