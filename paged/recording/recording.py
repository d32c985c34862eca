"""Recording: events, driver calls and what they mean, as data; and its file.

The file is an NPZ (a zip of NumPy arrays, read without pickle), version 1:

* ``about``: UTF-8 JSON as uint8: ``format`` "pagewalk recording", ``version``, the pool's geometry (see ``geometry``),
  ``clock`` ("simulated" or "perf_counter"), ``origin`` (perf_counter_ns at the beginning), ``end`` (nanoseconds on the
  clock), ``capacity`` and ``dropped`` (events), ``base_events``: so many events at the beginning stand for all that
  were dropped; ``calls`` and ``calls_dropped``; ``call_names``; and what the recorder was told of its source;
* ``event_FIELD``: a column for each field of ``kinds.Columns``, one number an event; ``moment`` and ``time`` as
  differences from the event before;
* ``ids``: the ids of all events, one after the other;
* ``call_time``, ``call_name`` (index in ``call_names``), ``call_address``, ``call_size``, ``call_handle``,
  ``call_result``, ``call_duration``: the driver's calls that are kept, times as differences;
* ``mark_moment`` [M], ``mark_count`` and ``mark_duration`` [M, names]: exact totals of all calls up to each moment.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vmm import Event, Recorder

from ..atomic_file import write_atomically
from .base_events import base_events
from .call_buckets import Mark
from .event_ring import EventRing
from .intact import wrong_about, wrong_events
from .kinds import WIDTH, Columns
from .recording_error import RecordingError

FORMAT, VERSION = "pagewalk recording", 1
_DIFFERENCES = ("moment", "time")
_REMEDY = "make one with paged replay --record"
_NOT_OURS = (
    ValueError,
    KeyError,
    EOFError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and its zip file raise for bytes that are no NPZ, or a damaged one."""
_NUMBERS = ("time", "address", "size", "handle", "result", "duration")

_LAST = np.iinfo(np.int64).max

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Recording:
    """``rows`` [n x len(Columns)] and ``ids`` are flat arrays for ``state.split``; ``calls`` the driver's, in order.

    ``marks`` are totals of all calls over time, those that were dropped included.
    """

    about: dict[str, Any]
    rows: array[int]
    ids: array[int]
    calls: Sequence[Event]
    marks: tuple[Mark, ...]

    def __len__(self) -> int:
        return len(self.rows) // WIDTH

    @classmethod
    def of(cls, about: dict[str, Any], ring: EventRing, marks: Sequence[Mark], calls: Recorder | None) -> Recording:
        """What a recorder has, with the state before its first event as events."""
        rows, ids = ring.events()
        kept_rows = len(rows)
        if ring.dropped:
            first, first_ids = base_events(ring.base)
            rows, ids = first + rows, first_ids + ids
        told = {"base_events": (len(rows) - kept_rows) // WIDTH, "calls_dropped": calls.dropped if calls else 0}
        kept = calls.kept(about["origin"]) if calls else ()
        return cls({**about, **told}, rows, ids, kept, tuple(marks))

    def columns(self) -> dict[str, Numbers]:
        """One array a field of Columns, int64 [events]."""
        table = np.frombuffer(self.rows, np.int64).reshape(-1, WIDTH)
        return {name: table[:, index] for index, name in enumerate(Columns._fields)}

    def starts(self) -> Numbers:
        """When each event began, in nanoseconds on the recording's clock, so that none overlaps another by halves.

        No time passes on a simulated clock while the pool works: what happens at one moment begins there, each event as
        long after the first as it did, and the next moment's events wait for it. Raises RecordingError for
        events that last longer than int64 counts.
        """
        columns = self.columns()
        if self.about["clock"] != "simulated":
            return columns["time"] - int(self.about["origin"])
        moments, group = np.unique(columns["moment"], return_inverse=True)
        first = np.full(len(moments), np.iinfo(np.int64).max)
        last = np.zeros(len(moments), np.int64)
        np.minimum.at(first, group, columns["time"])
        np.maximum.at(last, group, columns["time"] + columns["duration"])
        begins, free = moments.copy(), 0
        for index, (moment, span) in enumerate(zip(moments.tolist(), (last - first).tolist(), strict=True)):
            free = max(moment, free) + span
            if free > _LAST:
                raise RecordingError("the recording is damaged: its events last longer than time is counted")
            begins[index] = free - span
        found: Numbers = begins[group] + columns["time"] - first[group]
        return found

    def call_moments(self) -> Numbers:
        """When each of ``calls`` was made, in nanoseconds on the recording's clock.

        On a simulated clock a call is placed in the event during which it was made.
        """
        times: Numbers = np.array([call.time_ns for call in self.calls], np.int64)
        if self.about["clock"] != "simulated" or not len(self):
            return times - int(self.about["origin"])
        columns, starts = self.columns(), self.starts()
        order = np.argsort(columns["time"], kind="stable")
        began = columns["time"][order]
        at = np.maximum(np.searchsorted(began, times, side="right") - 1, 0)
        inside = np.clip(times - began[at], 0, columns["duration"][order][at])
        found: Numbers = starts[order][at] + inside
        return found

    def save(self, path: str | Path) -> None:
        """Write the file, whole or not at all. Raises OSError naming ``path``."""
        arrays = self._arrays()
        write_atomically(Path(path), lambda out: np.savez_compressed(out, **arrays))

    def _arrays(self) -> dict[str, Any]:
        names = sorted({call.call for call in self.calls} | {name for mark in self.marks for name in mark.counts})
        about = {"format": FORMAT, "version": VERSION, **self.about, "call_names": names, "calls": len(self.calls)}
        found: dict[str, Any] = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        for name, column in self.columns().items():
            found[f"event_{name}"] = _packed(np.diff(column, prepend=0) if name in _DIFFERENCES else column)
        found["ids"] = _packed(np.frombuffer(self.ids, np.int32))
        places = {name: index for index, name in enumerate(names)}
        found["call_name"] = np.array([places[call.call] for call in self.calls], np.uint16)
        fields = ("time_ns", "address", "size", "handle", "result", "duration_ns")
        for name, field in zip(_NUMBERS, fields, strict=True):
            values = np.array([getattr(call, field) for call in self.calls], np.uint64).astype(np.int64)
            found[f"call_{name}"] = _packed(np.diff(values, prepend=0) if name == "time" else values)
        found["mark_moment"] = np.array([mark.moment for mark in self.marks], np.int64)
        for name in ("count", "duration"):
            totals = [[getattr(mark, f"{name}s").get(call, 0) for call in names] for mark in self.marks]
            found[f"mark_{name}"] = np.array(totals, np.int64).reshape(len(self.marks), len(names))
        return found

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a file. Raises RecordingError for one that is not there, cannot be read or is no recording."""
        if not Path(path).is_file():
            what = "is no regular file" if Path(path).exists() else "there is no such file"
            raise RecordingError(f"{path}: {what}; {_REMEDY}")
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return cls._from(arrays, path)
        except RecordingError:
            raise
        except OSError as error:
            raise RecordingError(
                f"{path}: cannot be read: {error.strerror or 'its end is missing'}; {_REMEDY}"
            ) from None
        except _NOT_OURS:  # what NumPy says of it is about NumPy
            raise RecordingError(f"{path} is no recording; {_REMEDY}") from None

    @classmethod
    def _from(cls, arrays: Any, path: str | Path) -> Recording:
        about = json.loads(bytes(arrays["about"]))
        if about.pop("format") != FORMAT:
            raise RecordingError(f"{path} is no recording; {_REMEDY}")
        version = about.pop("version")
        if version != VERSION:
            raise RecordingError(f"{path} is a recording of version {version}; this Pagewalk reads version {VERSION}")
        names, _count = about.pop("call_names"), about.pop("calls")
        wrong = wrong_about(about) or _wrong_arrays(arrays, names)
        if wrong:
            raise RecordingError(f"{path} is damaged: {wrong}")
        table = np.empty((len(arrays["event_kind"]), WIDTH), np.int64)
        for index, name in enumerate(Columns._fields):
            column = arrays[f"event_{name}"].astype(np.int64)
            table[:, index] = np.cumsum(column) if name in _DIFFERENCES else column
        ids = array("i", arrays["ids"].astype(np.int32).tobytes())
        columns = {name: table[:, index] for index, name in enumerate(Columns._fields)}
        if wrong := wrong_events(columns, np.frombuffer(ids, np.int32), about):
            raise RecordingError(f"{path} is damaged: {wrong}")
        numbers = [arrays[f"call_{name}"].astype(np.int64) for name in _NUMBERS]
        numbers[0] = np.cumsum(numbers[0])
        calls = tuple(
            Event(time, names[name], address, size, handle, result, duration)
            for name, time, address, size, handle, result, duration in zip(
                arrays["call_name"].tolist(), *(column.tolist() for column in numbers), strict=True
            )
        )
        marks = tuple(
            Mark(moment, _named(names, counts), _named(names, durations))
            for moment, counts, durations in zip(
                *(arrays[f"mark_{name}"].tolist() for name in ("moment", "count", "duration")), strict=True
            )
        )
        return cls(about, array("q", table.tobytes()), ids, calls, marks)


def _wrong_arrays(arrays: Any, names: object) -> str | None:
    """What of the columns is no column of whole numbers; None if all are. NaN of a float would be any number."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return f"'call_names' is {names!r:.40}, not a list of words"
    for name in arrays.files:
        held = arrays[name]
        if held.dtype.kind not in "iu" or held.ndim != (2 if name in ("mark_count", "mark_duration") else 1):
            return f"{name} is {held.dtype} {list(held.shape)}, not whole numbers"
    if len(arrays["call_name"]) and int(arrays["call_name"].max()) >= len(names):
        return f"call_name is {arrays['call_name'].max()} of {len(names)} names"
    return None


def _named(names: Sequence[str], values: Sequence[int]) -> dict[str, int]:
    return {name: value for name, value in zip(names, values, strict=True) if value}


def _packed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same integers in the narrowest type that holds them."""
    if not len(values):
        return values.astype(np.int8)
    least, most = int(values.min()), int(values.max())
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return values.astype(kind)
    return values.astype(np.int64)
