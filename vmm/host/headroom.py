"""How much memory the machine can still give, so that a driver too large for it is refused and not killed.

Pages of a memory file are taken at once; where there are none left, the kernel would rather end a process than say so.
"""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP_LIMIT, _GROUP_USE = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
_STEP = 64 << 20  # look again after this many bytes: other programs take memory too
_KEEP = 64 << 20  # left for the program itself


class Headroom:
    """Counts down from what the system said last, and asks again from time to time."""

    def __init__(self) -> None:
        self._granted = _STEP
        self._available = 0

    def allows(self, size: int) -> bool:
        """Whether ``size`` more bytes are there."""
        if self._granted + size > _STEP or size > self._available:
            self._available = available_bytes() - _KEEP
            self._granted = 0
        if size > self._available:
            return False
        self._granted += size
        self._available -= size
        return True


def available_bytes() -> int:
    """What the machine has available, or what is left of this container's limit if that is less."""
    return min(_machine(), _group())


def _machine() -> int:
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62


def _group() -> int:
    try:
        limit = _GROUP_LIMIT.read_text().strip()
        return (1 << 62) if limit == "max" else max(0, int(limit) - int(_GROUP_USE.read_text()))
    except (OSError, ValueError):
        return 1 << 62
