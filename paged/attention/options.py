"""What a call may ask of attention besides softmax(q . k) v, and which of it only the kernels on tensor cores do."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

from kernels_cu import LaunchError, PagedKV, Scoring
from kernels_cu.paged_kv import NARROW
from vmm import RangeError

Array = Any
"""A numpy.ndarray on the host driver, a cupy.ndarray on a GPU."""


@dataclass(frozen=True)
class AttentionOptions:
    """The options of one call, as ``attention.decode`` takes them. Raises LaunchError for another kind of scoring."""

    scoring: Scoring = field(default_factory=Scoring)
    window: int | None = None
    lse: Array | None = None
    stream: int = 0

    def __post_init__(self) -> None:
        """Check what a launch would stumble over."""
        if not isinstance(self.scoring, Scoring):
            raise LaunchError(f"scoring must be a kernels_cu.Scoring, not {type(self.scoring).__name__}")

    def beyond_simple(self, kv: PagedKV) -> str:
        """The first thing asked for that the simple kernel does not do, in words; "" if it does everything."""
        asked = {
            f"a cache of {kv.dtype}": kv.dtype in NARROW,
            "a window": self.window is not None,
            "a soft cap": self.scoring.soft_cap is not None,
            "ALiBi": self.scoring.alibi is not None,
            "an attention sink": self.scoring.sinks is not None,
            "the LSE": self.lse is not None,
        }
        return next((option for option, given in asked.items() if given), "")


def window_of(spec_window: int | None, window: int | None, longest: int) -> int | None:
    """The window that has an effect on sequences of up to ``longest`` tokens: the one given, else the spec's.

    Raises RangeError for a window below 1.
    """
    if window is not None and (not isinstance(window, SupportsIndex) or operator.index(window) < 1):
        raise RangeError(f"window must be a whole number of at least 1 token, not {window!r}; None is the spec's")
    chosen = spec_window if window is None else window
    return None if chosen is not None and chosen >= longest else chosen
