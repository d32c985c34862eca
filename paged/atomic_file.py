"""Write a file whole or not at all: into a temporary one beside it, which then takes its place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file in the same folder, then put it at ``path``. Raises OSError naming ``path``.

    A link is followed. What is there and is no regular file (a device, a pipe) is never replaced: it is written to.
    """
    try:
        if _is_special(path):
            with path.open("wb") as out:
                write(out)
        else:
            _replace(path.resolve(), write)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def _is_special(path: Path) -> bool:
    """Whether ``path`` is there and no file to replace. /dev/stdout may lead to a file that a shell has open."""
    return path.exists() and (not path.is_file() or path.absolute().parts[1] in ("dev", "proc"))


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside ``path`` and rename."""
    descriptor, name = _temporary(path)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            write(out)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary(path: Path) -> tuple[int, str]:
    """A new file beside ``path``: its descriptor and its name."""
    return tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")


def check_writable(path: Path, *sources: Path) -> None:
    """Raise ValueError now if ``path`` cannot be written later, or is one of the ``sources``."""
    try:
        _check_writable(path, sources)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror}); name another file") from None


def _check_writable(path: Path, sources: tuple[Path, ...]) -> None:
    if path.name == "-" and path.parent == Path():
        raise ValueError("-: this is not written to standard output; name a file")
    for source in sources:
        if path.resolve() == source.resolve():
            raise ValueError(f"{path} is the trace itself; name another file for the output")
    if _is_special(path) and not path.is_dir():
        return  # a device or a pipe takes what is written, as a shell's redirection would
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} is not there; make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{path}: cannot be written; check its permissions")
    descriptor, name = _temporary(path.resolve())  # permissions do not say that a file system takes no files
    os.close(descriptor)
    Path(name).unlink()


def _umask() -> int:
    """The permissions that new files do not get; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
