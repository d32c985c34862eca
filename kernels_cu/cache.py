"""Compiled objects on disk, by content: what went into one is hashed into its name, so nothing in it is ever stale."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .errors import CompileError

_BUILDING = "building-"
STALE_S = 900
"""Seconds after which a folder that nobody holds is one that a killed process left."""


def cache_folder() -> Path:
    """$PAGEWALK_CACHE, else pagewalk in $XDG_CACHE_HOME, else ~/.cache/pagewalk."""
    if chosen := os.environ.get("PAGEWALK_CACHE"):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "pagewalk"
    return Path.home() / ".cache" / "pagewalk"


def content_key(parts: Iterable[str]) -> str:
    """A name for the content of ``parts``, in this order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:32]


def fetch(name: str, build: Callable[[Path], None]) -> Path:
    """The path of the object ``name``; if it is not there, ``build`` writes it to the path that it is given.

    Safe with any number of processes: each builds under a name of its own and then renames, so that an object is either
    absent or whole. What killed processes left is removed before. Raises CompileError if the folder cannot be written.
    """
    path = cache_folder() / name
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_left_behind(path.parent)
        with _own_folder(path.parent) as folder:
            unfinished = folder / name
            build(unfinished)
            _write_through(unfinished)
            unfinished.replace(path)
    except OSError as error:
        raise CompileError(
            f"cannot keep compiled kernels in {path.parent}: {error.strerror}; set PAGEWALK_CACHE to a writable folder"
        ) from None
    return path


def _write_through(path: Path) -> None:
    """Put a file's bytes on the disk: a name must not outlive its content when the machine goes down."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _own_folder(parent: Path) -> Iterator[Path]:
    """A folder to build in, held by a lock that ends with the process, and removed afterwards."""
    with tempfile.TemporaryDirectory(dir=parent, prefix=_BUILDING, ignore_cleanup_errors=True) as folder:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _try_lock(held)
            yield Path(folder)
        finally:
            os.close(held)


def _remove_left_behind(parent: Path) -> None:
    """Remove the folders of processes that were killed: old ones whose lock nobody holds."""
    for folder in parent.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if time.time() - os.fstat(held).st_mtime > STALE_S and _try_lock(held):
                    shutil.rmtree(folder)
            finally:
                os.close(held)


def _try_lock(held: int) -> bool:
    """Whether the lock of an open folder could be had. On a file system without locks nobody has one: False."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
