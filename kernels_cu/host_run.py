"""How the CPU runs the threads and blocks of a kernel. The result must not depend on it: that is what it is for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from .errors import LaunchError
from .memory_meter import MemoryMeter

SCHEDULES = ("ascending", "descending", "interleaved", "shuffled")
ORDERS = ("forward", "backward", "shuffled")
COPIES = ("lazy", "eager")


def _processors() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class HostRun:
    """Which thread, warp and block comes next, how many host threads run blocks side by side, and who watches.

    ``schedule``: a warp runs until it waits and the next one follows, "ascending" or "descending" (lanes too), warps
    take turns at every switch, "interleaved", or any warp and lane may come next, "shuffled". ``order``: of blocks.
    ``seed``: of what is shuffled. ``copies``: an asynchronous copy lands when it is waited for, "lazy", or where it
    begins, "eager". ``threads``: at most this many host threads, 1 to 64; more than one join in when a launch takes
    longer than starting them. ``race_check``: two accesses to a byte of shared memory that no barrier orders are an
    error. ``meter``: counts what requests to its memory cost. Raises LaunchError for other values.
    """

    schedule: str = "ascending"
    order: str = "forward"
    threads: int = field(default_factory=_processors)
    copies: str = "lazy"
    seed: int = 0
    race_check: bool = False
    meter: MemoryMeter | None = None

    @property
    def observed(self) -> bool:
        """Whether the kernel must be compiled so that its loads and stores are seen."""
        return self.race_check or self.meter is not None

    def __post_init__(self) -> None:
        """Refuse what the runtime does not know."""
        if self.schedule not in SCHEDULES:
            raise LaunchError(f"schedule must be one of {', '.join(SCHEDULES)}, not {self.schedule!r}")
        if self.order not in ORDERS:
            raise LaunchError(f"order must be one of {', '.join(ORDERS)}, not {self.order!r}")
        if self.copies not in COPIES:
            raise LaunchError(f"copies must be one of {', '.join(COPIES)}, not {self.copies!r}")
        if self.threads < 1:
            raise LaunchError(f"threads must be at least 1, not {self.threads}")
        if not 0 <= self.seed < 1 << 64:
            raise LaunchError(f"seed must be 0 to 2^64 - 1, not {self.seed}")


def host_run_of(target: object) -> HostRun:
    """How a target wants its threads run: its attribute ``host_run``, or as they come."""
    chosen: HostRun | None = getattr(target, "host_run", None)
    return chosen or _AS_THEY_COME


_AS_THEY_COME = HostRun()
