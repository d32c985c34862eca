"""The forms by name, and how each is written to a file."""

from __future__ import annotations

import gzip
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..atomic_file import write_atomically
from ..recording import Recording

Writer = Callable[[Recording, BinaryIO], None]

FORMATS = {
    "chrome": "trace events as JSON, for Perfetto and chrome://tracing",
    "snapshot": "the pickle that PyTorch's memory viewer opens",
    "prometheus": "metrics at the end of the recording, as text",
    "csv": "one line an event and a driver call, with what was in use then",
}
"""Name -> what it is."""

_MODULES = {"chrome": "chrome_trace", "snapshot": "memory_snapshot", "prometheus": "metrics", "csv": "csv_lines"}


def writer_of(form: str) -> Writer:
    """What writes a form to an open file. Raises ValueError for an unknown form."""
    if form not in FORMATS:
        raise ValueError(f"unknown form {form!r}; use {', '.join(FORMATS)}")
    found: Writer = importlib.import_module(f".{_MODULES[form]}", __package__).write
    return found


def export(recording: Recording, form: str, path: str | Path) -> None:
    """Write ``recording`` to ``path``, whole or not at all; a name that ends in .gz is compressed.

    Raises ValueError for an unknown form, OSError naming ``path``.
    """
    write, target = writer_of(form), Path(path)

    def fill(out: BinaryIO) -> None:
        if target.suffix != ".gz":
            write(recording, out)
            return
        with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=5, mtime=0) as packed:
            write(recording, packed)  # type: ignore[arg-type]  # it is written to only

    write_atomically(target, fill)
