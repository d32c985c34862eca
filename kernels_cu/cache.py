"""Compiled objects on disk, by content: what went into one is hashed into its name, so nothing in it is ever stale."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from .errors import CompileError


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
    absent or whole. Raises CompileError if the folder cannot be written.
    """
    path = cache_folder() / name
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="building-") as folder:
            unfinished = Path(folder) / name
            build(unfinished)
            unfinished.replace(path)
    except OSError as error:
        raise CompileError(
            f"cannot keep compiled kernels in {path.parent}: {error.strerror}; set PAGEWALK_CACHE to a writable folder"
        ) from None
    return path
