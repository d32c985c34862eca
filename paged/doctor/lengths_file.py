"""The lengths of requests from a file: one of the traces that ``trace_reader`` reads, or two columns of lengths.

Columns may be a CSV's or the keys of JSON lines; they are known by the names that benchmarks and servers give them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..serving.trace_reader import AZURE, LENGTHS, MAX_TOKENS, MOONCAKE, read_trace
from ..serving.workload import DEFAULT_RATE, MAX_REQUESTS, TraceError, Workload, poisson_arrivals

PROMPTS = (
    "prompt",
    "prompt_tokens",
    "prompt_len",
    "prompt_length",
    "input",
    "input_len",
    "input_length",
    "input_tokens",
)
OUTPUTS = (
    "output",
    "output_tokens",
    "output_len",
    "output_length",
    "completion_tokens",
    "generated_tokens",
    "max_tokens",
)
_LONGEST_HEAD = 1 << 16


def read_lengths(path: str | Path, *, rate: float = DEFAULT_RATE, seed: int = 0) -> Workload:
    """Read the requests at ``path``. Without times they arrive ``rate`` a second, by Poisson, from ``seed``.

    Raises TraceError, in one line, for what cannot be read or believed.
    """
    file = Path(path)
    names = _names(file)
    if names is None or any(set(known) <= set(names) for known in (AZURE, MOONCAKE, LENGTHS)):
        return read_trace(file, rate=rate, seed=seed)
    prompt = next((name for name in names if name.lower() in PROMPTS), None)
    output = next((name for name in names if name.lower() in OUTPUTS), None)
    if prompt is None or output is None:
        shown = ", ".join(names)[:60]
        raise TraceError(
            f"{path}, line 1: no columns of prompt and output lengths in {shown!r}; name them prompt and output, or "
            "give an Azure CSV or a Mooncake JSONL"
        )
    pairs = np.array([*_pairs(file, prompt, output)], np.int64).reshape(-1, 2)
    if not len(pairs):
        raise TraceError(f"{path}: there is a header and no request; give at least one row")
    arrival = poisson_arrivals(len(pairs), rate, seed)
    note = f"{file.name} has no arrival times; Poisson arrivals of {rate:.3g} requests/s, seed {seed}"
    return Workload(str(path), arrival, pairs[:, 0], pairs[:, 1], (note,))


def _names(file: Path) -> list[str] | None:
    """The columns of a CSV or the keys of the first JSON line; None leaves the file to the reader of traces."""
    try:
        with file.open("rb") as stream:
            head = stream.readline(_LONGEST_HEAD)
        text = head.decode("utf-8-sig").strip()
        if not text.startswith("{"):
            return [name.strip() for name in next(csv.reader([text]), [])] or None
        found = json.loads(text)
    except (OSError, ValueError, RecursionError, csv.Error):
        return None
    return [str(name) for name in found] if isinstance(found, dict) else None


def _pairs(file: Path, prompt: str, output: str) -> Iterator[tuple[int, int]]:
    """Prompt and output of each request."""
    for count, (number, row) in enumerate(_rows(file)):
        if count >= MAX_REQUESTS:
            raise TraceError(f"{file}, line {number}: more than {MAX_REQUESTS:,} requests; give a part of the file")
        yield _tokens(file, number, prompt, row.get(prompt)), _tokens(file, number, output, row.get(output))


def _rows(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        try:
            if stream.read(1) == "{":
                stream.seek(0)
                for number, text in enumerate(stream, 1):
                    if text.strip():
                        found = json.loads(text)
                        yield number, found if isinstance(found, dict) else {}
                return
            stream.seek(0)
            lines = csv.DictReader(stream, skipinitialspace=True)
            lines.fieldnames = [name.strip() for name in lines.fieldnames or ()]
            for row in lines:
                yield lines.line_num, dict(row)
        except (ValueError, RecursionError, csv.Error) as error:
            raise TraceError(
                f"{file}: is neither CSV nor JSON lines in UTF-8: {str(error)[:80]}; mend the file"
            ) from None


def _tokens(file: Path, line: int, name: str, value: object) -> int:
    text = str(value).strip() if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if text.isascii() and text.isdigit() and len(text) <= 12 and 1 <= int(text) <= MAX_TOKENS:
        return int(text)
    raise TraceError(
        f"{file}, line {line}: {name} is {str(value)[:40]!r}; a length is a whole number of 1 to {MAX_TOKENS:,}"
    )
