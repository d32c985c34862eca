"""Whether a person sees what is printed: on a terminal yes, in a pipe no, and not where the stream was closed."""

from __future__ import annotations

from typing import IO


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether ``stream`` is a terminal; None is what Python has for a standard stream that was closed (``>&-``)."""
    return stream is not None and stream.isatty()
