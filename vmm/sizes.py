"""Sizes in bytes: read "2 MiB", write "2.0 MiB", round to a multiple. Units are binary; "GB" is refused."""

from __future__ import annotations

import operator
import re
from typing import SupportsIndex

from .errors import AlignmentError, RangeError, SizeError
from .shown import shown

Size = SupportsIndex | str
"""What every public call takes as a size: bytes as an int, or text such as "300 MiB"."""

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "PIB": 1 << 50}
_BINARY = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TEXT = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([A-Za-z]*)\s*")
LARGEST = 1 << 62


def parse_size(value: Size, *, name: str = "size") -> int:
    """Return ``value`` in bytes: a positive whole number, as an int or as text with B, KiB, MiB, GiB, TiB or PiB.

    Raises SizeError for anything else, naming ``name`` and the value.

        >>> parse_size("300 MiB"), parse_size("1.5 GiB"), parse_size(4096)
        (314572800, 1610612736, 4096)
        >>> parse_size("2 GB")
        Traceback (most recent call last):
        vmm.errors.SizeError: size '2 GB' is not a size; write for example '2 MiB' (B, KiB, MiB, GiB, TiB or PiB)
    """
    size = _parse_text(value, name) if isinstance(value, str) else _parse_int(value, name)
    if not 0 < size <= LARGEST:
        raise SizeError(f"{name} must be more than 0 and at most 4 EiB, not {value!r}")
    return size


def _parse_int(value: SupportsIndex, name: str) -> int:
    if isinstance(value, bool):
        raise SizeError(f"{name} must be a number of bytes or text such as '2 MiB', not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise SizeError(f"{name} must be a number of bytes or text such as '2 MiB', not {value!r}") from None


def _parse_text(value: str, name: str) -> int:
    match = _TEXT.fullmatch(value)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise SizeError(
            f"{name} {shown(value)} is not a size; write for example '2 MiB' (B, KiB, MiB, GiB, TiB or PiB)"
        )
    whole, _, fraction = str(match[1]).partition(".")
    scale: int = 10 ** len(fraction)
    scaled, left = divmod(int(whole + fraction) * unit, scale)
    if left:
        raise SizeError(f"{name} {value!r} is not a whole number of bytes")
    return scaled


def format_size(size: float, *, aligned: bool = False) -> str:
    """Write a number of bytes with the largest binary unit that leaves at least 1.

    Two decimals where it is not whole; with ``aligned`` always, as a column of sizes wants it.

        >>> format_size(1610612736), format_size(300 << 20), format_size(0)
        ('1.50 GiB', '300 MiB', '0 B')
    """
    for unit, name in _BINARY:
        if abs(size) >= unit:
            scaled = size / unit
            return f"{scaled:.0f} {name}" if scaled == int(scaled) and not aligned else f"{scaled:.2f} {name}"
    return f"{size:.0f} B"


def round_up(size: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is at least ``size``."""
    return -(-size // multiple) * multiple


def round_down(size: int, multiple: int) -> int:
    """The largest multiple of ``multiple`` that is at most ``size``."""
    return size // multiple * multiple


def parse_span(start: Size, stop: Size, multiple: int, limit: int) -> tuple[int, int]:
    """Two offsets as ints: multiples of ``multiple``, in order, within ``limit``; else AlignmentError or RangeError."""
    if not isinstance(start, str) and operator.index(start) < 0:
        raise RangeError(f"start is {start}; it is 0 or more")
    first = 0 if start == 0 else parse_size(start, name="start")
    last = parse_size(stop, name="stop")
    if first % multiple or last % multiple:
        raise AlignmentError(f"{first} to {last}: both must be multiples of the chunk of {multiple} bytes")
    if not first < last <= limit:
        raise RangeError(f"{first} to {last} is no span inside the {limit} bytes reserved")
    return first, last
