"""A log as lines of text, one at a time: however large the file, only one line is in memory."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

STDIN = "-"
LONGEST = 4 << 20
"""Bytes of a line that are looked at; a request's prompt can make it long. The rest of the line is passed over."""

_COLOURS = re.compile(r"(?:\x1b|\\x1b|\\033|#033)\[[0-9;]*[A-Za-z]")
_GZIP = b"\x1f\x8b"


class LogError(ValueError):
    """A log that cannot be used; the message names the file, what is wrong, and the remedy."""


@contextlib.contextmanager
def open_log(path: str | Path) -> Iterator[BinaryIO]:
    """Open the log at ``path`` for reading bytes; "-" is standard input. Raises LogError, in one line."""
    if str(path) == STDIN:
        if sys.stdin is None:  # it was closed before the command began
            raise LogError("-: standard input is closed; give the log of a vLLM server")
        yield sys.stdin.buffer
        return
    file = Path(path)
    if not file.is_file():
        what = "is no regular file" if file.exists() else "there is no such file"
        raise LogError(f"{path}: {what}; give the log of a vLLM server, or - for standard input")
    try:
        with file.open("rb") as stream:
            if stream.read(2) == _GZIP:
                raise LogError(f"{path}: is compressed with gzip; unpack it first (gunzip)")
            stream.seek(0)
            yield stream
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror}; give a file that can be read") from None


def text_lines(stream: BinaryIO) -> Iterator[tuple[str, bool]]:
    """Each line without its end and its colours, and whether it is whole.

    A line is not whole when it is longer than LONGEST, or when bytes in it are not UTF-8 (they are replaced) or zero.
    Progress bars write many states into one line, with carriage returns between: the last one counts.
    """
    while data := stream.readline(LONGEST):
        whole = data.endswith(b"\n") or len(data) < LONGEST
        while not data.endswith(b"\n") and (rest := stream.readline(LONGEST)):  # pass over the rest of a long line
            if rest.endswith(b"\n"):
                break
        yield _text(data, whole)


def _text(data: bytes, whole: bool) -> tuple[str, bool]:
    data = data.rstrip(b"\r\n").rpartition(b"\r")[2]
    if b"\0" in data:
        whole = False
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text, whole = data.decode("utf-8", "replace"), False
    return (_COLOURS.sub("", text) if "[" in text else text), whole
