"""Read request traces, told apart by their columns: Azure CSV, Mooncake JSONL, and CSV with lengths only."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vmm.shown import shown

from . import trace_times as times
from .trace_times import MAX_SPAN_S
from .workload import DEFAULT_RATE, Floats, TraceError, Workload, poisson_arrivals

MAX_TOKENS = 10_000_000
"""More tokens than this in one prompt or output is taken for a mistake."""

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE = ("timestamp", "input_length", "output_length")
LENGTHS = ("num_prefill_tokens", "num_decode_tokens")
ARRIVED = "arrived_at"
"""A column that a CSV with lengths may have, as Vidur's traces do: seconds."""

_DIGITS = re.compile(r"\s*(\d{1,12})\s*", re.ASCII)
_NUMBER = re.compile(r"\s*([+-]?\d{1,9})\s*", re.ASCII)

Row = tuple[int, int, int, int, tuple[int, ...], int]
"""Line number, arrival in nanoseconds (0 where the trace has none), prompt and output in tokens, hash ids, priority."""

PRIORITY = "priority"
"""A column that any trace may have: whole numbers, the lower the sooner."""
_READ = {*MOONCAKE, "hash_ids", PRIORITY}
"""What is read of a row of JSON."""


def read_trace(path: str | Path, *, rate: float = DEFAULT_RATE, seed: int = 0) -> Workload:
    """Read the trace at ``path``: every request in the order of arrival, the first at 0 s.

    * Azure CSV: TIMESTAMP (up to 9 digits of a second), ContextTokens, GeneratedTokens.
    * Mooncake JSONL: timestamp (ms), input_length, output_length, hash_ids (optional).
    * Lengths, CSV: num_prefill_tokens, num_decode_tokens and, as Vidur has it, arrived_at (s); without that arrivals
      are Poisson, ``rate`` a second from ``seed``.

    Each may have a column ``priority`` (whole numbers, the lower the sooner); a note names the others, which are passed
    over. Raises TraceError for anything that cannot be read or believed.
    """
    reader = _Reader(Path(path))
    rows = list(reader.rows())
    if not rows:
        raise reader.error("there is a header and no request", "give a trace with at least one row")
    prompt = np.array([row[2] for row in rows], np.int64)
    output = np.array([row[3] for row in rows], np.int64)
    hash_ids = tuple(row[4] for row in rows) if any(row[4] for row in rows) else None
    priority = np.array([row[5] for row in rows], np.int64) if any(row[5] for row in rows) else None
    if reader.times:
        arrival, order, notes = _in_order(reader, rows)
        notes += reader.passed_over()
        ids = tuple(hash_ids[i] for i in order) if hash_ids is not None else None
        ranks = priority[order] if priority is not None else None
        return Workload(str(path), arrival, prompt[order], output[order], notes, ids, ranks)
    mean = ", the mean of azure_conv 2023" if rate == DEFAULT_RATE else ""
    note = f"{reader.name} has no arrival times; Poisson arrivals of {rate:.3g} requests/s{mean}, seed {seed}"
    notes = (note, *reader.passed_over())
    return Workload(str(path), poisson_arrivals(len(rows), rate, seed), prompt, output, notes, hash_ids, priority)


def _in_order(reader: _Reader, rows: list[Row]) -> tuple[Floats, Any, tuple[str, ...]]:
    """Arrivals from 0 in rising order, the order of the rows that makes it, and a note if it changed."""
    first, last = min(row[1] for row in rows), max(rows, key=lambda row: row[1])
    if last[1] - first > MAX_SPAN_S * 10**9:
        what = f"arrives {(last[1] - first) / 1e9:.0f} s after the first request"
        raise reader.error(what, "a trace may span ten years; mend the row", last[0])
    arrival = np.array([row[1] - first for row in rows], np.int64)
    order = np.argsort(arrival, kind="stable")
    late = np.flatnonzero(np.diff(arrival) < 0)
    if not len(late):
        return arrival / 1e9, order, ()
    note = f"{reader.name}: arrivals are not in order (first at line {rows[int(late[0]) + 1][0]}); they were sorted"
    return arrival[order] / 1e9, order, (note,)


class _Reader:
    """One file: its text, which kind it is, and errors that name the place."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.path = path
        self.times = True
        self._other: dict[str, None] = {}  # columns that nobody reads
        self.text = self._read()

    def error(self, what: str, remedy: str, line: int | None = None) -> TraceError:
        """An error that names the place, what is wrong there, and the remedy."""
        where = f"{self.path}, line {line}" if line else str(self.path)
        return TraceError(f"{where}: {what}; {remedy}")

    def passed_over(self) -> tuple[str, ...]:
        """A note of the columns that were not read, if there are any."""
        names = [name if len(name) <= 40 else name[:37] + "..." for name in self._other if name.isprintable()]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return (f"{self.name}: not read: {', '.join(names[:8])}{more}",) if names else ()

    def _read(self) -> str:
        if not self.path.is_file():
            what = "is no regular file" if self.path.exists() else "there is no such file"
            raise self.error(what, "give a trace as Azure CSV, Mooncake JSONL or CSV of lengths")
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror}", "give a file that can be read") from None
        if data[:2] == b"\x1f\x8b":
            raise self.error("is compressed with gzip", "unpack it first (gunzip)")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
            raise self.error(f"byte 0x{byte:02x} is not UTF-8", "convert the file to UTF-8", line) from None
        if not text.strip():
            raise self.error("is empty", "give a trace with a header and at least one row")
        return text

    def rows(self) -> Iterator[Row]:
        """Every request, checked."""
        return self._mooncake() if self.text.lstrip().startswith("{") else self._csv()

    def _csv(self) -> Iterator[Row]:
        lines = self._fields()
        header = [name.strip() for name in next(lines)[1]]
        parse = self._columns(header)
        for line, fields in lines:
            if len(fields) != len(header):
                raise self.error(f"{len(fields)} fields where the header has {len(header)}", "mend the row", line)
            yield parse(line, fields)

    def _fields(self) -> Iterator[tuple[int, list[str]]]:
        """Every row of a CSV that is not blank, with the number of its line."""
        lines = csv.reader(io.StringIO(self.text, newline=""))
        try:
            for fields in lines:
                if any(field.strip() for field in fields):
                    yield lines.line_num, fields
        except csv.Error as error:
            raise self.error(f"is not CSV: {error}", "mend the row", lines.line_num) from None

    def _columns(self, header: list[str]) -> Callable[[int, list[str]], Row]:
        """The function that reads one row of a CSV with this header."""
        rank = header.index(PRIORITY) if PRIORITY in header else None
        if set(AZURE) <= set(header):
            self._pass_over(header, *AZURE)
            time, prompt, output = map(header.index, AZURE)
            return lambda line, row: (
                line,
                self._moment(times.of_date, row[time], "TIMESTAMP", line),
                self._tokens(row[prompt], "ContextTokens", line),
                self._tokens(row[output], "GeneratedTokens", line),
                (),
                0 if rank is None else self._priority(row[rank], line),
            )
        if set(LENGTHS) <= set(header):
            self.times = ARRIVED in header
            self._pass_over(header, *LENGTHS, ARRIVED)
            prompt, output = map(header.index, LENGTHS)
            arrived = header.index(ARRIVED) if self.times else None
            return lambda line, row: (
                line,
                0 if arrived is None else self._moment(times.of_seconds, row[arrived], ARRIVED, line),
                self._tokens(row[prompt], "num_prefill_tokens", line),
                self._tokens(row[output], "num_decode_tokens", line),
                (),
                0 if rank is None else self._priority(row[rank], line),
            )
        near = AZURE if set(AZURE) & set(header) else LENGTHS if set(LENGTHS) & set(header) else ()
        missing = f"lacks the column {', '.join(c for c in near if c not in header)}" if near else "is of no known kind"
        raise self.error(
            f"the header {shown(','.join(header))} {missing}",
            f"give {','.join(AZURE)} or {','.join(LENGTHS)} as CSV, or JSON lines with {', '.join(MOONCAKE)}",
            1,
        )

    def _mooncake(self) -> Iterator[Row]:
        for line, text in enumerate(self.text.split("\n"), 1):  # JSON may hold other ends of lines
            if not text.strip():
                continue
            try:
                found = json.loads(text)
            except (ValueError, RecursionError) as error:
                what = f"{shown(text)} is not JSON ({shown(str(error))})"
                raise self.error(what, "mend the row", line) from None
            if not isinstance(found, dict) or not set(MOONCAKE) <= set(found):
                missing = [c for c in MOONCAKE if not isinstance(found, dict) or c not in found]
                raise self.error(
                    f"lacks {', '.join(missing)}", f"every row is an object with {', '.join(MOONCAKE)}", line
                )
            if not found.keys() <= _READ:
                self._pass_over(found, *_READ)
            yield (
                line,
                self._moment(times.of_milliseconds, found["timestamp"], "timestamp", line),
                self._tokens(found["input_length"], "input_length", line),
                self._tokens(found["output_length"], "output_length", line),
                self._hash_ids(found.get("hash_ids") or (), line),
                self._priority(found.get(PRIORITY, 0), line),
            )

    def _pass_over(self, columns: Iterable[str], *read: str) -> None:
        """Remember the columns that are none of those which are read."""
        self._other.update(dict.fromkeys(name for name in columns if name and name not in (*read, PRIORITY)))

    def _tokens(self, value: object, column: str, line: int) -> int:
        """A number of tokens; digits in a CSV, an integer in JSON."""
        match = _DIGITS.fullmatch(value) if isinstance(value, str) else None
        number = int(match[1]) if match else value if type(value) is int else 0
        if not 0 < number <= MAX_TOKENS:
            remedy = f"a number of tokens is a whole number from 1 to {MAX_TOKENS:,}"
            raise self.error(f"{column} is {shown(value)}", remedy, line)
        return number

    def _priority(self, value: object, line: int) -> int:
        """A whole number, of either sign."""
        match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
        if match or (type(value) is int and abs(value) < 10**9):
            return int(match[1]) if match else int(str(value))
        raise self.error(f"{PRIORITY} is {shown(value)}", "give a whole number of at most nine digits", line)

    def _moment(self, read: Callable[[Any], int], value: object, column: str, line: int) -> int:
        """Nanoseconds."""
        try:
            return read(value)
        except ValueError as remedy:
            raise self.error(f"{column} is {shown(value)}", str(remedy), line) from None

    def _hash_ids(self, value: object, line: int) -> tuple[int, ...]:
        if isinstance(value, (list, tuple)) and all(type(i) is int and i >= 0 for i in value):
            return tuple(value)
        raise self.error(f"hash_ids is {shown(value)}", "give a list of whole numbers, or leave it out", line)
