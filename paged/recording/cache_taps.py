"""Taps on a prefix cache: which blocks a prompt found, and which the cache knows from when to when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .kinds import Kind
from .taps import Method, Note, Taps

if TYPE_CHECKING:
    from ..prefix.cached_blocks import CachedBlocks


def tap_cache(taps: Taps, prefix: CachedBlocks, note: Note, clock: Callable[[], int]) -> None:
    """Wrap what changes ``prefix``, until ``taps`` are closed."""
    taps.tap(prefix, "hit", lambda inner: _hit(inner, note, clock))
    taps.tap(prefix.cache, "store", lambda inner: _store(inner, note))
    for name in ("evict", "clear"):
        taps.tap(prefix.cache, name, lambda inner: _evict_returned(inner, note))
    for name in ("evict_these", "forget"):
        taps.tap(prefix.cache, name, lambda inner: _evict_given(inner, note))


def _hit(inner: Method, note: Note, clock: Callable[[], int]) -> Method:
    def hit(ids: Any, salt: int) -> Any:
        began = clock()
        found = inner(ids, salt)
        note(Kind.HIT, -1, len(ids), 0, listed(found[0]), began)
        return found

    return hit


def _store(inner: Method, note: Note) -> Method:
    def store(tokens: Any, keys: Any, salt: int, blocks: Any, known: int) -> None:
        inner(tokens, keys, salt, blocks, known)
        note(Kind.CACHE, ids=listed(blocks[1:] if known else blocks))

    return store


def _evict_returned(inner: Method, note: Note) -> Method:
    def evict(*args: Any) -> Any:
        leaving = inner(*args)
        if len(leaving):
            note(Kind.EVICT, ids=listed(leaving))
        return leaving

    return evict


def _evict_given(inner: Method, note: Note) -> Method:
    def evict(blocks: Any) -> None:
        inner(blocks)
        if len(blocks):
            note(Kind.EVICT, ids=listed(blocks))

    return evict


def listed(blocks: Any) -> list[int]:
    """Block ids as a list: an array of them knows a faster way than one by one."""
    return blocks if isinstance(blocks, list) else np.asarray(blocks).tolist()
