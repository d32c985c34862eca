"""A value as an error shows it: quoted, on one line, and never long."""

from __future__ import annotations

_MOST = 60


def shown(value: object) -> str:
    """``value`` as Python writes it, in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
