"""The options of a KVPool, looked at before anything is made: each is refused with its value and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from vmm import AlignmentError, Device, Size, Supply, format_size

from .layout import KVLayout
from .prefix.cache_events import Listener
from .prefix.eviction import Order
from .row_memory import capacity
from .whole_number import whole_number


@dataclass(frozen=True, slots=True)
class Room:
    """``blocks`` that get addresses, ``rows`` that may be committed (None: all), ``reserve_rows`` that stay mapped."""

    blocks: int
    rows: int | None
    reserve_rows: int


def room_for(
    device: Device,
    layout: KVLayout,
    *,
    blocks: int | None,
    budget: Size | None,
    reserve_rows: int,
    prealloc: bool,
    supply: Supply | None,
) -> Room:
    """What the options come to. Raises ValueError, AlignmentError or TypeError for one that cannot be."""
    if not isinstance(layout, KVLayout):
        raise ValueError(f"layout must be a KVLayout, such as KVLayout(spec, 16), not {type(layout).__name__}")
    if layout.chunk % device.granularity:
        unit = format_size(device.granularity)
        raise AlignmentError(f"the layout's chunk of {layout.chunk} bytes is no multiple of the granularity {unit}")
    total, rows = capacity(layout, blocks, budget, supply, prealloc=prealloc)
    reserve_rows = whole_number("reserve_rows", reserve_rows)
    if reserve_rows < 0:
        raise ValueError(f"reserve_rows must be 0 or more, not {reserve_rows}")
    if supply is not None and supply.chunk_size != layout.chunk:
        raise ValueError(f"the layout's chunk of {layout.chunk} bytes is not the supply's of {supply.chunk_size}")
    return Room(total, rows, reserve_rows)


def check_events(prefix_cache: bool | Order, cache_events: Listener | None) -> None:
    """Raise ValueError for a listener without a cache, or one that cannot be called."""
    if cache_events is not None and not (prefix_cache and callable(cache_events)):
        what = "cache_events needs prefix_cache=True" if not prefix_cache else "cache_events must be a function"
        raise ValueError(f"{what}, not {prefix_cache if not prefix_cache else cache_events!r}")
