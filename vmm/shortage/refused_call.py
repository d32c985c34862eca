"""A driver call that was refused for want of memory: what is known of it from its arguments alone.

Whoever made the call knows more, and tells it instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from .report import Limit, Shortage

_LIMITS = {
    "cuMemCreate": "device",
    "cuMemAlloc": "device",
    "cuMemAddressReserve": "virtual range",
    "cuMemHostAlloc": "pinned memory",
}
"""What the calls that ask for memory run out of; their first argument is the size. Any other call needs some itself."""


def refused_call(call: str, call_args: Sequence[object]) -> Shortage:
    """The report of one call. How much could be had instead only the driver knows."""
    first = call_args[0] if call_args else 0
    size = first if call in _LIMITS and isinstance(first, int) else 0
    name = _LIMITS.get(call, "driver")
    text = f"{call} was refused with CUDA_ERROR_OUT_OF_MEMORY"
    return Shortage(call, "bytes", size, None, name, (Limit(name, None, text),))
