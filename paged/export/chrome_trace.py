"""Chrome's trace-event JSON, which Perfetto and chrome://tracing open.

Times are microseconds on the recording's clock ("Trace Event Format", Google): "X" is an event with a duration, "i" an
instant, "C" a counter, "b" and "e" the two ends of something that overlaps others, "M" a name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from ..recording import Recording
from ..recording.figures import figures
from ..recording.kinds import Columns, Kind
from ..recording.state import Ids, State, split

_PROCESS, _EVENTS, _CALLS = 1, 1, 2
_SHOWN_IDS = 64

Record = dict[str, Any]


def write(recording: Recording, out: BinaryIO) -> None:
    """One JSON object, a record a line."""
    about = {name: value for name, value in recording.about.items() if name != "costs"}
    head = {"displayTimeUnit": "ns", "otherData": {name: str(value) for name, value in about.items()}}
    out.write(json.dumps(head)[:-1].encode() + b', "traceEvents": [\n')
    first = True
    for record in records(recording):
        out.write((b"" if first else b",\n") + json.dumps(record, separators=(",", ":")).encode())
        first = False
    out.write(b"\n]}\n")


def records(recording: Recording) -> Iterator[Record]:
    """The trace events: names, then the pool's events with counters, then the driver's calls."""
    pool = f"pool {recording.about['range']!r}"
    yield _name("process_name", _EVENTS, f"{pool}: {recording.about.get('source', 'recorded')}")
    yield _name("thread_name", _EVENTS, "pool events")
    yield _name("thread_name", _CALLS, "driver calls")
    yield from _pool_records(recording)
    last = 0.0
    for call, moment in zip(recording.calls, recording.call_moments().tolist(), strict=True):
        start = max(last, moment / 1e3)  # calls of one thread follow each other, whatever the clock
        last = start + call.duration_ns / 1e3
        args = {"address": hex(call.address), "size": call.size, "handle": hex(call.handle), "result": call.result}
        yield _complete(call.call, "driver", _CALLS, start, call.duration_ns / 1e3, args)


def _pool_records(recording: Recording) -> Iterator[Record]:
    state, before = State(), None
    starts = (recording.starts() / 1e3).tolist()
    for (event, ids), began in zip(split(recording.rows, recording.ids), starts, strict=True):
        state.apply(event, ids)
        start = max(0.0, began)
        name, args = state.what, _args(event, ids)
        if event.kind in (Kind.START, Kind.END):
            yield _sequence(event, start)
        elif event.duration:
            yield _complete(name, "pool", _EVENTS, start, event.duration / 1e3, args)
        else:
            yield {"name": name, "cat": "pool", "ph": "i", "s": "t", **_place(_EVENTS, start), "args": args}
        now = figures(recording.about, state)
        if now != before:
            yield from _counters(now._asdict(), start)
            before = now


def _counters(now: dict[str, int], start: float) -> Iterator[Record]:
    shown = {name: now[name] for name in ("committed", "held", "live", "cached")}
    yield {"name": "bytes", "cat": "pool", "ph": "C", **_place(_EVENTS, start), "args": shown}
    yield {"name": "sequences", "ph": "C", **_place(_EVENTS, start), "args": {"sequences": now["sequences"]}}


def _sequence(event: Columns, start: float) -> Record:
    """Sequences overlap: each is an asynchronous span of its own."""
    kind = "b" if event.kind == Kind.START else "e"
    args = {"request": event.a} if kind == "b" else {"tokens": event.a}
    return {
        "name": "sequence",
        "cat": "sequence",
        "ph": kind,
        "id": event.sequence,
        **_place(_EVENTS, start),
        "args": args,
    }


def _args(event: Columns, ids: Ids) -> Record:
    found: Record = {"ids": list(ids[:_SHOWN_IDS]), "count": len(ids)}
    return found if event.sequence < 0 else {"sequence": event.sequence, **found}


def _complete(name: str, category: str, thread: int, start: float, duration: float, args: Record) -> Record:
    return {"name": name, "cat": category, "ph": "X", **_place(thread, start), "dur": round(duration, 3), "args": args}


def _place(thread: int, start: float) -> Record:
    return {"pid": _PROCESS, "tid": thread, "ts": round(start, 3)}


def _name(kind: str, thread: int, text: str) -> Record:
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": text}}
