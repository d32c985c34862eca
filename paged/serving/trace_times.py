"""Times as request traces write them, as whole nanoseconds. Each function raises ValueError with the remedy."""

from __future__ import annotations

import datetime
import decimal
import re

MAX_SPAN_S = 10 * 366 * 86_400
"""A trace longer than ten years is taken for a mistake."""

_LATEST_S = 10**10
"""Seconds since 1970 until the year 2286; a time beyond them is taken for a mistake too."""

_SECONDS = re.compile(r"\s*\d{1,12}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?\s*", re.ASCII)
_DATE = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?\s*(Z|[+-]\d\d:\d\d)?\s*",
    re.ASCII,
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def of_milliseconds(value: object) -> int:
    """A number of milliseconds in JSON."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MAX_SPAN_S * 1e3:
        return round(value * 10**6)
    raise ValueError("a time is a number of milliseconds, 0 or more")


def of_seconds(value: str) -> int:
    """A number of seconds in a CSV."""
    seconds = decimal.Decimal(value.strip()) if _SECONDS.fullmatch(value) else None
    if seconds is None or seconds > _LATEST_S:
        raise ValueError("a time is a number of seconds, 0 or more")
    return round(seconds * 10**9)


def of_date(value: str) -> int:
    """A date and a time in a CSV, since 1970, so that no digit of a second is lost."""
    match = _DATE.fullmatch(value)
    try:
        if match is None:
            raise ValueError
        zone = "+00:00" if match[4] in (None, "Z") else match[4]
        whole = datetime.datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}") - _EPOCH
    except ValueError:
        raise ValueError("write it as 2023-11-16 18:15:46.6805900") from None
    return (whole.days * 86_400 + whole.seconds) * 10**9 + int((match[3] or "").ljust(9, "0"))
