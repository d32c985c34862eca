"""Whole numbers as the kernels take them: 32 bits for tokens and heads, 64 for addresses and strides."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import LaunchError
from .launch_shape import MOST_BLOCKS

MOST_TOKENS = (1 << 31) - (1 << 16)
"""Of a sequence or a batch: kernels count in 32 bits, and a few tiles beyond the end."""
MOST_HEADS = MOST_BLOCKS
"""Each has a place in the y or the z extent of a grid."""
ADDRESSES = 1 << 64


def whole_number(name: str, number: Any, least: int, most: int) -> int:
    """``number`` as Python's int, which does not overflow. Raises LaunchError unless it is one in these bounds."""
    try:
        found = operator.index(number)
    except TypeError:
        raise LaunchError(f"{name} must be a whole number, not {number!r}") from None
    if found < least:
        raise LaunchError(f"{name} must be at least {least}, not {found}")
    if found > most:
        raise LaunchError(f"{name} must be at most {most}, not {found}")
    return found


def token_counts(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Numbers of tokens [B] on the host. Raises LaunchError unless they are whole, and no more than kernels count."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise LaunchError(f"{name} must be whole numbers [B] on the host, not {array.dtype} {list(array.shape)}")
    if array.size and int(array.max()) > MOST_TOKENS:
        raise LaunchError(f"{name} has {array.max()} tokens, kernels count up to {MOST_TOKENS}")
    return array.astype(np.int64)


def check_heads(query_heads: Any, kv_heads: Any) -> None:
    """Raise LaunchError unless query heads are a multiple of the KV heads that they share."""
    heads = whole_number("query_heads", query_heads, 0, MOST_HEADS)
    if heads < 1 or heads % whole_number("kv_heads", kv_heads, 1, MOST_HEADS):
        raise LaunchError(f"query has {query_heads} heads, which is not a multiple of the {kv_heads} KV heads")
