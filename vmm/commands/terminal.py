"""Where a command's text goes: as wide as the terminal, of one width in a pipe, and no blanks at the ends of lines.

Any standard stream may be None: what Python has for one that was closed before the command began (``>&-``).
"""

from __future__ import annotations

import io
import re
from typing import IO, cast

from rich.console import Console

_BLANKS = re.compile(r"[ \t]+(?=\n)")


class _Trimmed:
    """A stream that leaves out blanks before the end of a line; everything else is the stream's own."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Whole lines, as Rich writes them."""
        return self._stream.write(_BLANKS.sub("", text))


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person sees what is printed."""
    return stream is not None and stream.isatty()


def console(stream: IO[str] | None, pipe_width: int) -> Console:
    """A console on ``stream``, ``pipe_width`` wide where that is no terminal. What goes to None is lost, as in echo."""
    if stream is None:
        return Console(file=io.StringIO())
    terminal = is_terminal(stream)
    file = stream if terminal else cast("IO[str]", _Trimmed(stream))
    return Console(file=file, highlight=False, markup=False, width=None if terminal else pipe_width)
