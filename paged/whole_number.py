"""Whole numbers that callers give: NumPy's small ones overflow when they meet bytes, and 2.5 is none."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from vmm import RangeError


def whole_number(name: str, value: SupportsIndex) -> int:
    """``value`` as Python's int. Raises TypeError, naming it, for what is no whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None


def more_tokens(tokens: SupportsIndex) -> int:
    """A number of tokens to append, as ``whole_number``. Raises RangeError for less than none."""
    count = whole_number("tokens", tokens)
    if count < 0:
        raise RangeError(f"cannot append {count} tokens; append 0 or more")
    return count
