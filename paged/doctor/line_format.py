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

DECIMAL = r"[\d.]{1,16}"
"""A number that may have a point; no longer, so that a line of digits is not tried over and over."""

LONGEST_TEXT = 1 << 14
"""Characters of a line that most formats look at; patterns may try at each of them."""

MOST_BYTES = 1 << 50
_UNITS = {"b": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "gb": 1 << 30}
SIZE = rf"(-?{DECIMAL}) ?(GiB|Gib|GB|MiB|KiB|bytes)"
"""A number and its unit, as two groups."""


@dataclasses.dataclass(frozen=True, slots=True)
class Format:
    """``needle`` stands in every line of the kind, ``pattern`` reads its numbers, ``record`` writes them down.

    A line with the needle that the pattern does not match, or whose numbers are none, counts as not understood. The
    first LONGEST_TEXT characters are looked at, but of a format whose lines are long, which then reads the ``whole``.
    """

    name: str
    needle: str
    pattern: re.Pattern[str]
    record: Record
    whole: bool = False


def size_of(number: str, unit: str) -> int:
    """Bytes of a number and a unit. GB is GiB in these logs: vLLM divides by 2**30 whatever it writes behind it.

    Source: vLLM 0.6, worker/model_runner.py, the line "Loading model weights took". Raises ValueError for no number,
    and for more than MOST_BYTES.
    """
    size = round(float(number) * _UNITS[unit.lower()])
    if abs(size) > MOST_BYTES:
        raise ValueError(f"{number} {unit} are more than a GPU has")
    return size


def share_of(number: str) -> float:
    """A share of 1, above 0. Raises ValueError for any other number."""
    share = float(number)
    if not 0 < share <= 1:
        raise ValueError(f"{number} is no share")
    return share


def count_of(digits: str) -> int:
    """A whole number that may have commas. Raises ValueError where it has more than 12 digits."""
    plain = digits.replace(",", "")
    if len(plain) > 12:
        raise ValueError(f"{digits[:20]} is no count that a server has")
    return int(plain)
