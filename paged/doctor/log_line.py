"""The head of a log's line: which process wrote it, at which level, when, and from which file; and the text after it.

vLLM writes "INFO 10-02 12:00:05 metrics.py:351] text" up to 0.7 and "INFO 04-02 18:03:41 [loggers.py:87] text" since;
0.10 and later put "(EngineCore_0 pid=38549) " before it, and a container's runtime may put a time of its own first.
"""

from __future__ import annotations

import dataclasses
import datetime
import re

_HEAD = re.compile(
    r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?:\d{4}-)?(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)? "
    r"\[?([\w./-]+?):\d+\] ?"
)
_PROCESS = re.compile(r"\(([\w.-]+) pid=\d+[^)]*\)\s*")
_FURTHEST = 240
"""Where a head may begin at the latest: what stands before it is the runtime's."""

_LEAP = 2024
"""A head has no year; in this one every date exists."""


@dataclasses.dataclass(frozen=True, slots=True)
class LogLine:
    """One line: its number, ``text`` without the head, and the head's parts where it has one.

    ``time_s`` counts seconds from the beginning of an unknown year. ``process`` is the name that newer versions write
    before the level ("EngineCore_DP0", "Worker_TP1"); ``source`` the file that logged ("metrics.py").
    """

    number: int
    text: str
    level: str | None = None
    time_s: float | None = None
    source: str | None = None
    process: str | None = None


def split_head(number: int, text: str) -> LogLine:
    """Take the head off a line. A line without one (a traceback, a progress bar) is all text."""
    process = _PROCESS.search(text, 0, _FURTHEST) if "pid=" in text else None
    name = process[1] if process else None
    found = _HEAD.search(text, 0, _FURTHEST)
    if found is None:
        return LogLine(number, text[process.end() :] if process else text, process=name)
    level, month, day, hour, minute, second, source = found.groups()
    time_s = _seconds(int(month), int(day), int(hour), int(minute), int(second))
    return LogLine(number, text[found.end() :], level, time_s, source.rpartition("/")[2], name)


def _seconds(month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    try:
        date = datetime.datetime(_LEAP, month, day, hour, minute, min(second, 59))
    except ValueError:
        return None
    return (date - datetime.datetime(_LEAP, 1, 1)).total_seconds()
