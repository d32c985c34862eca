"""Format: one kind of line that vLLM writes, and what it says of a server's run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .log_line import LogLine
    from .server_run import ServerRun

Record = Callable[["ServerRun", "LogLine", "re.Match[str]"], None]
"""Writes down in the run what a line says."""

_UNITS = {"b": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "gb": 1 << 30}
SIZE = r"(-?[\d.]+) ?(GiB|Gib|GB|MiB|KiB|bytes)"
"""A number and its unit, as two groups."""


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """``needle`` stands in every line of the kind, ``pattern`` reads its numbers, ``record`` writes them down.

    A line with the needle that the pattern does not match, or whose numbers are none, counts as not understood.
    """

    name: str
    needle: str
    pattern: re.Pattern[str]
    record: Record


def size_of(number: str, unit: str) -> int:
    """Bytes of a number and a unit. GB is GiB in these logs: vLLM divides by 2**30 whatever it writes behind it.

    Source: vLLM 0.6, worker/model_runner.py, the line "Loading model weights took". Raises ValueError for no number.
    """
    return round(float(number) * _UNITS[unit.lower()])


def count_of(digits: str) -> int:
    """A whole number that may have commas. Raises ValueError where it has more than 15 digits."""
    plain = digits.replace(",", "")
    if len(plain) > 15:
        raise ValueError(f"{digits[:20]} is no count that a server has")
    return int(plain)
