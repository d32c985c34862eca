"""A C file of this folder as a library: compiled at its first use in a process, loaded, and gone from the disk."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import DriverMissingError


def compiler() -> list[str]:
    """The command of a C compiler: ``$CC``, cc, gcc or clang, else the one that the ``host`` extra brings.

    Raises DriverMissingError where there is none.
    """
    if given := os.environ.get("CC"):
        return shlex.split(given)
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise DriverMissingError("no C compiler is there: install gcc, or pip install 'pagewalk[host]'")


@contextlib.contextmanager
def compiled(name: str) -> Iterator[Path]:
    """The library of ``name``, a C file beside this one, inside the ``with``; what has loaded it keeps it.

    Raises DriverMissingError, with the compiler's first line, where it cannot be compiled.
    """
    source = Path(__file__).with_name(name)
    with tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
        library = Path(folder) / source.with_suffix(".so").name
        command = [*compiler(), "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise DriverMissingError(f"{command[0]} cannot be run ({error}); set CC to a C compiler") from error
        if done.returncode:
            reason = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[0]
            raise DriverMissingError(f"{command[0]} cannot compile {name}: {reason}; set CC to a C compiler")
        yield library
