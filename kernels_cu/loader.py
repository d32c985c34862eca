"""Source and constants in, kernel out: compiled once a process, for the CPU or by NVRTC for a GPU."""

from __future__ import annotations

import threading
from pathlib import Path

from .constants import Constants
from .host_kernel import HostKernel
from .kernel import Kernel
from .source import PACKAGE

_loaded: dict[tuple[str | Path, tuple[tuple[str, int | str], ...], str, bool], Kernel] = {}
_lock = threading.Lock()


def load(source: str | Path, constants: Constants, arch: str, observed: bool = False) -> Kernel:
    """The kernel of ``source`` with its -D ``constants``, for ``arch`` ("host", or "sm_90" and the like).

    ``source`` is the name of one of the package's kernels ("append_kv") or the path of a .cu file; the kernel has the
    file's name. ``observed``: for the CPU, a build whose loads and stores can be watched. Raises CompilerMissingError
    or CompileError.
    """
    key = (source, tuple(sorted(constants.items())), arch, observed)
    with _lock:
        if key not in _loaded:
            path = source if isinstance(source, Path) else PACKAGE / f"{source}.cu"
            _loaded[key] = _compile(path, constants, arch, observed)
        return _loaded[key]


def _compile(path: Path, constants: Constants, arch: str, observed: bool) -> Kernel:
    if arch == "host":
        return HostKernel(path, constants, observed)
    from .cupy_kernel import CupyKernel  # only here: CuPy is not a base dependency, and slow to import

    return CupyKernel(path, constants, arch)
