"""Lines of a kind that is known and has no figure of memory: they are counted, not shown."""

from __future__ import annotations

import re

from .log_line import LogLine

_STARTS = (
    "Traceback (most recent call last)",
    "The above exception was the direct cause",
    "During handling of the above exception",
    "Application startup complete",
    "Waiting for application startup",
    "Started server process",
    "Uvicorn running on",
    "Route: ",
    "Available routes are",
    "Added request ",
    "Finished request ",
    "Using ",
    "Loading safetensors checkpoint shards",
    "Loading weights took",
    "Automatically detected platform",
)
_ACCESS = re.compile(r'"(?:GET|POST|HEAD|OPTIONS|PUT|DELETE) \S+ HTTP/')
_MARKS = re.compile(r"^[\s^~.]*$")
_CODE = re.compile(r"^\s{4,}\S")
"""Below a frame of a traceback stands a line of its code."""


def passed_over(line: LogLine, in_traceback: bool) -> bool:
    """Whether a line is blank, of an HTTP request, of a traceback, or one of those that a start always has."""
    text = line.text
    if _MARKS.match(text) or (in_traceback and _CODE.match(text)):
        return True
    return text.removeprefix("INFO:").lstrip().startswith(_STARTS) or bool(_ACCESS.search(text))
