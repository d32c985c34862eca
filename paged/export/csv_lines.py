"""CSV: one line an event and a driver call, in the order of time, with what was in use after it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from vmm import Event

from ..recording import Recording
from ..recording.figures import Figures, figures
from ..recording.kinds import Columns, Kind
from ..recording.state import Ids, State, split

_WHAT = ("time_s", "event", "sequence", "ids", "address", "size_bytes", "handle", "result", "duration_us")
COLUMNS = (*_WHAT, *(f"{name}_bytes" for name in Figures._fields[:-1]), "sequences")
_ROWS = (Kind.COMMIT, Kind.DECOMMIT)


def write(recording: Recording, out: BinaryIO) -> None:
    """A header line, then the lines."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    lines.writerows(_lines(recording))
    text.detach()


def _lines(recording: Recording) -> Iterator[list[Any]]:
    about, state = recording.about, State()
    calls = iter(sorted(zip(recording.call_moments().tolist(), recording.calls, strict=True), key=lambda at: at[0]))
    call = next(calls, None)
    now = figures(about, state)
    for event, ids in split(recording.rows, recording.ids):
        while call and call[0] < event.moment:
            yield [*_call(*call), *now]
            call = next(calls, None)
        state.apply(event, ids)
        now = figures(about, state)
        yield [*_event(state.what, event, ids, about["row_bytes"]), *now]
    while call:
        yield [*_call(*call), *now]
        call = next(calls, None)


def _event(name: str, event: Columns, ids: Ids, row_bytes: int) -> list[Any]:
    size = len(ids) * row_bytes if event.kind in _ROWS else ""
    sequence = event.sequence if event.sequence >= 0 else ""
    named = " ".join(map(str, ids))
    return [_seconds(event.moment), name, sequence, named, "", size, "", "", _microseconds(event.duration)]


def _call(moment: int, call: Event) -> list[Any]:
    place = hex(call.address) if call.address else ""
    handle = hex(call.handle) if call.handle else ""
    duration = _microseconds(call.duration_ns)
    return [_seconds(moment), call.call, "", "", place, call.size or "", handle, call.result, duration]


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.9f}"


def _microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e3:.3f}"
