"""The operating system's own view of the host driver's memory: what it counts, and what it says about one address.

Nothing here asks the driver's books; these are the figures to compare them with.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class KernelMapping:
    """One line of /proc/self/maps: addresses [start, end), permission such as "rw-s", and the file behind them."""

    start: int
    end: int
    permission: str
    offset: int
    inode: int
    name: str

    def __str__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"{self.start:x}-{self.end:x} {self.permission} offset {self.offset:#x}{name}"


def committed_bytes(api: Any, device: int = 0) -> int | None:
    """Bytes of physical memory that the system counts for ``device``: st_blocks of its memory file.

    None where there is no such file: on the real driver, and with backing "none".
    """
    ask = getattr(api, "committed_bytes", None)
    return None if ask is None else ask(device)


def kernel_mapping(address: int) -> KernelMapping | None:
    """The kernel's mapping that contains ``address``, or None. Reads /proc/self/maps, one line a mapping."""
    with _MAPS.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            span, permission, offset, _device, inode, *name = line.split(maxsplit=5)
            start, _, end = span.partition("-")
            if int(start, 16) <= address < int(end, 16):
                text = name[0].rstrip("\n") if name else ""
                return KernelMapping(int(start, 16), int(end, 16), permission, int(offset, 16), int(inode), text)
    return None


def mapping_count() -> int:
    """How many mappings the kernel keeps for this process; it allows vm.max_map_count."""
    with _MAPS.open("rb") as lines:
        return sum(1 for _ in lines)
