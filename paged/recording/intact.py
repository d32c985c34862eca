"""Whether what a file says can be a recording at all: a checksum tells that its bytes are whole, not that they fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .kinds import Kind

Numbers = npt.NDArray[np.int64]

_WORDS = ("driver", "device", "backing", "range", "order", "layout", "spec")
_COUNTS = ("base", "budget", "origin", "end", "dropped", "base_events", "calls_dropped", "token_bytes")
_SIZES = (
    *("reserved", "blocks", "rows", "chunk", "planes", "row_bytes", "capacity"),
    *("block_size", "block_bytes", "block_stride", "plane_stride"),
)
_CLOCKS = ("simulated", "perf_counter")
_MOST = 1 << 61
"""Bytes, addresses and nanoseconds (70 years of them): two still add up in int64."""

_OF_ROWS = (Kind.COMMIT, Kind.DECOMMIT)
_OF_BLOCKS = (Kind.PUT, Kind.MOVE, Kind.HIT, Kind.CACHE, Kind.EVICT)
_COUNTED = (Kind.DROP, Kind.COMMIT, Kind.DECOMMIT, Kind.COLLECT)
_NOT_NEGATIVE = ("moment", "b", "time", "duration", "live", "named")


def wrong_about(about: Mapping[str, Any]) -> str | None:
    """What of the geometry and the clock is missing or no possible value; None if nothing is."""
    for name in _WORDS:
        if type(about.get(name)) is not str:
            return f"{name!r} is {about.get(name)!r:.40}, not a word"
    for names, least in ((_COUNTS, 0), (_SIZES, 1)):
        for name in names:
            value = about.get(name)
            if type(value) is not int or not least <= value < _MOST:
                return f"{name!r} is {value!r:.40}, not a whole number of at least {least}"
    if about.get("clock") not in _CLOCKS:
        return f"'clock' is {about.get('clock')!r:.40}, not one of {', '.join(_CLOCKS)}"
    rows, chunk = -(-about["blocks"] * about["block_stride"] // about["chunk"]), about["chunk"]
    expected = (rows, rows * chunk, about["planes"] * chunk)
    if (about["rows"], about["plane_stride"], about["row_bytes"]) != expected:
        return f"its {about['blocks']} blocks, {about['rows']} rows and chunks of {chunk} bytes do not fit together"
    return None


def wrong_events(columns: Mapping[str, Numbers], ids: npt.NDArray[np.int32], about: Mapping[str, Any]) -> str | None:
    """What of the events cannot be in a pool of this geometry; None if all can."""
    kinds, named = columns["kind"], columns["named"]
    if (number := _first(~np.isin(kinds, [int(kind) for kind in Kind]))) is not None:
        return f"event {number} is of kind {kinds[number]}, which there is not"
    for name in _NOT_NEGATIVE:
        if (number := _first((columns[name] < 0) | (columns[name] >= _MOST))) is not None:
            return f"event {number} has a {name} of {columns[name][number]}"
    if (number := _first(np.isin(kinds, _COUNTED) & (columns["a"] < 0))) is not None:
        return f"event {number} has a count of {columns['a'][number]}"
    if int(named.sum()) != len(ids):
        return "its events name another number of ids than it has"
    if about["base_events"] > len(kinds):
        return f"of its {len(kinds)} events {about['base_events']} stand for others"
    parts = np.where(kinds == Kind.PUT_EACH, 3, np.where(kinds == Kind.MOVE, 2, 1))
    if (number := _first(named % parts != 0)) is not None:
        return f"event {number} names {named[number]} ids, which come {parts[number]} at a time"
    return _wrong_ids(kinds, named, ids, about)


def _wrong_ids(kinds: Numbers, named: Numbers, ids: npt.NDArray[np.int32], about: Mapping[str, Any]) -> str | None:
    """Blocks and rows that the pool has not got; each third id of PUT_EACH is a block."""
    of = np.repeat(kinds, named)
    place = np.arange(len(ids)) - np.repeat(np.cumsum(named) - named, named)
    block = np.isin(of, _OF_BLOCKS) | ((of == Kind.PUT_EACH) & (place % 3 == 2))
    for what, which, most in (("block", block, about["blocks"]), ("row", np.isin(of, _OF_ROWS), about["rows"])):
        if (at := _first(which & (ids >= most))) is not None:
            return f"its events name {what} {ids[at]} of {most}"
    if (at := _first(ids < 0)) is not None:
        return f"its events name {ids[at]}"
    return None


def _first(wrong: npt.NDArray[np.bool_]) -> int | None:
    """The first place where something is wrong."""
    return int(wrong.argmax()) if wrong.any() else None
