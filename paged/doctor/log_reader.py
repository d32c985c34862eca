"""read_log: from the lines of a log to the starts of a server that it tells of."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .engine_lines import ENGINE_LINES
from .failure_lines import FAILURE_LINES
from .line_format import LONGEST_TEXT
from .log_file import LogError, open_log, text_lines
from .log_line import LogLine, split_head
from .memory_lines import MEMORY_LINES
from .passed_over import passed_over
from .server_run import ServerRun
from .serving_lines import SERVING_LINES

FORMATS = (*ENGINE_LINES, *MEMORY_LINES, *SERVING_LINES, *FAILURE_LINES)
MOST_RUNS = 16
MOST_SAMPLES = 5
_SHOWN = 160
_TELLING = ("KV cache", "out of memory", "throughput", "GiB", "preempt", "Graph", "blocks:")
"""Words of lines that matter: what has them and is not understood is shown first."""


@dataclasses.dataclass
class Lines:
    """Counts of lines. ``damaged`` ones are cut, or have bytes that are no text; they may be understood all the same.

    ``samples`` are a few of those not understood, with their numbers: first those that speak of memory.
    """

    read: int = 0
    understood: int = 0
    passed_over: int = 0
    damaged: int = 0
    samples: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    _sources: set[str] = dataclasses.field(default_factory=set)
    _others: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    @property
    def not_understood(self) -> int:
        """Lines that say something else, or nothing that was made out."""
        return self.read - self.understood - self.passed_over

    def show(self, line: LogLine) -> None:
        """Keep a line that was not understood, if there are few of its kind yet."""
        text = "".join(letter if letter.isprintable() else "." for letter in line.text[:_SHOWN])
        if any(word in line.text for word in _TELLING):
            if len(self.samples) < MOST_SAMPLES:
                self.samples.append((line.number, text))
        elif len(self._others) < MOST_SAMPLES and (line.source or text[:20]) not in self._sources:
            self._sources.add(line.source or text[:20])
            self._others.append((line.number, text))

    def shown(self) -> list[tuple[int, str]]:
        """Those to be shown, at most MOST_SAMPLES."""
        return (self.samples + self._others)[:MOST_SAMPLES]


@dataclasses.dataclass
class Log:
    """A log as it was read: its starts (the last MOST_RUNS), how many there were, versions, and counts of lines."""

    name: str
    runs: list[ServerRun]
    starts: int
    versions: tuple[str, ...]
    lines: Lines

    def telling(self) -> ServerRun:
        """The start to look at: the last in which memory ran out, else the last that says anything."""
        failed = [run for run in self.runs if run.failure_count or run.preemptions]
        begun = [run for run in self.runs if run.begun]
        return (failed or begun or self.runs)[-1]


def read_log(path: str | Path) -> Log:
    """Read the log at ``path`` ("-" is standard input) line by line.

    Raises LogError for what cannot be read, is empty, or has no line of a vLLM server.
    """
    reader = _Reader()
    with open_log(path) as stream:
        for number, (text, whole) in enumerate(text_lines(stream), 1):
            reader.take(split_head(number, text), whole)
    if not reader.lines.read:
        raise LogError(f"{path}: is empty; give the log of a vLLM server")
    if not reader.lines.understood:
        raise LogError(
            f"{path}: none of {reader.lines.read:,} lines is one that a vLLM server of 0.6 to 0.33 writes about memory "
            "or throughput; give its log, at level INFO"
        )
    return Log(str(path), reader.runs, reader.starts, tuple(reader.versions), reader.lines)


class _Reader:
    """Gives each line to the formats, and begins a new run where a server starts again."""

    def __init__(self) -> None:
        self.lines = Lines()
        self.runs = [ServerRun()]
        self.starts = 1
        self.versions: list[str] = []
        self._traceback = False

    def take(self, line: LogLine, whole: bool) -> None:
        """One line."""
        self.lines.read += 1
        self.lines.damaged += not whole
        names = self._formats(line)
        if names:
            self.lines.understood += 1
        elif passed_over(line, self._traceback):
            self.lines.passed_over += 1
        else:
            self.lines.show(line)
        self._traceback = "frame" in names or (self._traceback and line.text[:1] in ("", " "))

    def _formats(self, line: LogLine) -> list[str]:
        """The names of the formats that the line has."""
        found = []
        long = len(line.text) > LONGEST_TEXT
        short = dataclasses.replace(line, text=line.text[:LONGEST_TEXT]) if long else line
        for form in FORMATS:
            said = line if form.whole else short
            if form.needle in said.text and (match := form.pattern.search(said.text)):
                if form.name in ("engine", "server version"):
                    self._start(form.name, line)
                try:
                    form.record(self.runs[-1], said, match)
                except (ValueError, KeyError):  # a number that is none, or a part that is missing
                    continue
                found.append(form.name)
                self._see(self.runs[-1].version)
        return found

    def _start(self, name: str, line: LogLine) -> None:
        """Begin a new run, if this one has come further than the line does; each rank has an engine's line."""
        run = self.runs[-1]
        if run.begun or (name == "server version" and run.engine):
            self.runs = [*self.runs[-MOST_RUNS + 1 :], ServerRun(line.number)]
            self.starts += 1

    def _see(self, version: str | None) -> None:
        if version and version not in self.versions and len(self.versions) < MOST_RUNS:
            self.versions.append(version)
