"""What the value of an option means; every error names the option, the value and the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from vmm.shown import shown

Reader = Callable[[str, str], object]
"""Takes the option's name and its text."""

AUTO = -1
"""What "auto" and -1 mean for a length: the longest that fits."""

_INTEGER = re.compile(r"(\d{1,12})(?:\.(\d{1,6}))?([kKmMgGtT]?)", re.ASCII)
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SCALES["T"] = 1 << 40
_MOST = 1 << 50

_EXAMPLES = {
    "--max-model-len": "8192",
    "--max-num-batched-tokens": "8192",
    "--block-size": "16",
    "--tensor-parallel-size": "2",
    "--pipeline-parallel-size": "2",
    "--kv-cache-memory-bytes": "20G",
    "--num-gpu-blocks-override": "10000",
}
"""A value that the option usually has, for errors; 128 for others."""


def whole_number(option: str, text: str) -> int:
    """A whole number of at least 1, as vLLM reads it: 8192, 8k (8,000), 8K (8,192), 25.6k (25,600)."""
    match = _INTEGER.fullmatch(text.strip())
    value = _scaled(match) if match else 0
    if not 1 <= value <= _MOST:
        example = f"{option} {_EXAMPLES.get(option, '128')}"
        raise ValueError(f"{option} must be a whole number of at least 1, not {shown(text)}; for example {example}")
    return value


def _scaled(match: re.Match[str]) -> int:
    """0 for what is no whole number: 2.5 without a letter, 1.5K (vLLM takes fractions of decimal multiples only)."""
    whole, fraction, letter = match[1], match[2] or "", match[3]
    if fraction and (not letter or letter.isupper()):
        return 0
    value, left = divmod(int(whole + fraction) * _SCALES[letter], 10 ** len(fraction))
    return 0 if left else value


def length(option: str, text: str) -> int:
    """A whole number, or "auto" or -1 for the longest that fits."""
    return AUTO if text.strip().lower() in ("auto", "-1") else whole_number(option, text)


def fraction(option: str, text: str) -> float:
    """A number above 0 and at most 1."""
    value = _number(text)
    if not 0 < value <= 1:
        raise ValueError(f"{option} must be above 0 and at most 1, not {shown(text)}; for example {option} 0.9")
    return value


def gibibytes(option: str, text: str) -> float:
    """A number of GiB of at least 0."""
    value = _number(text)
    if not 0 <= value <= 1 << 20:
        raise ValueError(f"{option} must be a number of GiB of 0 or more, not {shown(text)}; for example {option} 10")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def any_text(option: str, given: str) -> str:
    """Any text that is not empty."""
    if not given.strip():
        raise ValueError(f"{option} is empty; give it a value, or leave it out")
    return given.strip()
