"""KnownTokens: the ids of a sequence's first tokens, as far as they are known, and the keys of its whole blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vmm.shown import shown

from .chain_hash import Keys, Tokens

TokenIds = Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]]
"""Token ids as a user has them: a list, or an array [n] of any integers. int32 is taken as it is."""

_INT32 = np.dtype(np.int32)
_NO_KEYS: Keys = np.zeros(0, np.uint64)


class KnownTokens:
    """``ids`` of the first ``count`` tokens; ``keys`` of the first whole blocks; ``stored`` blocks are in the cache.

    ``keys`` is never changed in place, so that forks share it.

    ``salt`` tells tenants apart. Tokens that are appended by their number only, and were not known before, end what is
    known: no later block can be told from another.
    """

    __slots__ = ("_ids", "count", "keys", "salt", "stored")

    def __init__(self, ids: Tokens, salt: int, keys: Keys = _NO_KEYS, stored: int = 0) -> None:
        self._ids = np.array(ids, np.int32)
        self.count = len(ids)
        self.keys, self.stored, self.salt = keys, stored, salt

    @property
    def ids(self) -> Tokens:
        """int32 [count]."""
        return self._ids[: self.count]

    def put(self, start: int, ids: Tokens, block_size: int) -> None:
        """Tokens ``start`` and on are ``ids``; after a gap they are of no use. What was known otherwise is dropped."""
        stop = start + len(ids)
        if start > self.count:
            return
        if stop > len(self._ids):
            longer = np.zeros(max(stop, 2 * len(self._ids), 64), np.int32)
            longer[: self.count] = self.ids
            self._ids = longer
        same = stop <= self.count and bool((self._ids[start:stop] == ids).all())
        self._ids[start:stop] = ids
        if not same:
            self.count = stop
            self.keys = self.keys[: start // block_size]

    def copy(self) -> KnownTokens:
        """The same for a fork."""
        return KnownTokens(self.ids, self.salt, self.keys, self.stored)


def as_ids(tokens: Any) -> Tokens | None:
    """Token ids as int32 [n], or None for a mere number of tokens. Raises ValueError for what is neither."""
    usual = type(tokens) is np.ndarray and tokens.dtype is _INT32 and tokens.ndim == 1
    if usual and np.minimum.reduce(tokens, initial=0) >= 0:
        return tokens  # type: ignore[no-any-return]  # it was looked at
    if not isinstance(tokens, (np.ndarray, list, tuple, range)):  # in half the time of a union
        return None
    try:
        found = np.asarray(tokens)
    except ValueError:  # rows of different lengths
        raise ValueError("token ids must be one list of whole numbers, not lists of different lengths") from None
    if found.ndim != 1:
        raise ValueError(f"token ids must be one list of whole numbers [n], not of shape {list(found.shape)}")
    if found.size and found.dtype.kind not in "iu":
        raise ValueError(f"token ids must be whole numbers from 0 to 2**31 - 1, not {_first_wrong(tokens)}")
    if found.size and (found.min() < 0 or found.max() >= 1 << 31):
        raise ValueError(f"token ids must be 0 to 2**31 - 1, not {found.min()} to {found.max()}")
    return found.astype(np.int32)


def _first_wrong(tokens: Any) -> str:
    """The first of some tokens that is no id: NumPy makes floats or objects of all when one is 2**64 or 1.5."""
    wrong = [token for token in tokens if not _is_id(token)]
    return shown(wrong[0]) if wrong else f"an array of {np.asarray(tokens).dtype}"


def _is_id(token: Any) -> bool:
    return isinstance(token, (int, np.integer)) and not isinstance(token, bool) and 0 <= int(token) < 1 << 31
