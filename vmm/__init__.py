"""vmm: the CUDA driver's layer. Addresses are reserved, physical memory is created, and mappings join the two.

Data flows Device -> ChunkSupply + AddressRange -> GrowableRange -> Heap. The same code runs on the real driver and on
``HostDriver``, a software driver on real memory.
"""

from . import interop, sharing
from .address_range import AddressRange, Mapping
from .allocator import Allocator
from .block import Block
from .call_events import Event
from .chunk_map import Run
from .chunk_supply import ChunkSupply
from .chunked_range import ChunkedRange
from .device import Device, MemoryInfo
from .driver import Access, Driver
from .errors import (
    AlignmentError,
    ClosedError,
    DriverError,
    DriverMissingError,
    OutOfMemoryError,
    RangeError,
    ReleaseError,
    SharingError,
    SizeError,
    StateError,
    VmmError,
)
from .fence import After, Fence, handles_of
from .givers import Giver
from .growable import GrowableRange
from .heap import Heap
from .host import HostDriver
from .limited_heap import LimitedHeap
from .page_table import Owner, PageTable, PageTableRun, describe, snapshot
from .physical import PhysicalMemory
from .pins import Pin
from .recorder import Recorder
from .residency import Residency, Slept
from .share import Holder, Share
from .shortage import Shortage
from .sizes import Size, format_size, parse_size, round_down, round_up
from .statistics_heap import HeapStatistics, StatisticsHeap
from .streams import Stream, stream_handle
from .supply import Supply
from .tensor_view import TensorView
from .zero_window import ZeroWindow

__all__ = [
    "Access",
    "AddressRange",
    "After",
    "AlignmentError",
    "Allocator",
    "Block",
    "ChunkSupply",
    "ChunkedRange",
    "ClosedError",
    "Device",
    "Driver",
    "DriverError",
    "DriverMissingError",
    "Event",
    "Fence",
    "Giver",
    "GrowableRange",
    "Heap",
    "HeapStatistics",
    "Holder",
    "HostDriver",
    "LimitedHeap",
    "Mapping",
    "MemoryInfo",
    "OutOfMemoryError",
    "Owner",
    "PageTable",
    "PageTableRun",
    "PhysicalMemory",
    "Pin",
    "RangeError",
    "Recorder",
    "ReleaseError",
    "Residency",
    "Run",
    "Share",
    "SharingError",
    "Shortage",
    "Size",
    "SizeError",
    "Slept",
    "StateError",
    "StatisticsHeap",
    "Stream",
    "Supply",
    "TensorView",
    "VmmError",
    "ZeroWindow",
    "describe",
    "format_size",
    "handles_of",
    "interop",
    "parse_size",
    "round_down",
    "round_up",
    "sharing",
    "snapshot",
    "stream_handle",
]
