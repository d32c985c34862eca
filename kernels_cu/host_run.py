"""How the CPU runs the threads and blocks of a kernel. The result must not depend on it: that is what it is for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from .errors import LaunchError

SCHEDULES = ("ascending", "descending", "interleaved")
ORDERS = ("forward", "backward", "shuffled")
COPIES = ("lazy", "eager")


def _processors() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class HostRun:
    """Which thread, warp and block comes next, and how many host threads run blocks side by side.

    ``schedule``: a warp runs until it waits and the next one follows, "ascending" or "descending" (lanes too), or
    warps take turns at every switch, "interleaved". ``order``: of blocks. ``threads``: at most this many host threads,
    1 to 64; more than one join in when a launch takes longer than starting them. ``copies``: an asynchronous copy lands
    when it is waited for, "lazy", or where it begins, "eager". Raises LaunchError for other values.
    """

    schedule: str = "ascending"
    order: str = "forward"
    threads: int = field(default_factory=_processors)
    copies: str = "lazy"

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


def host_run_of(target: object) -> HostRun:
    """How a target wants its threads run: its attribute ``host_run``, or as they come."""
    chosen: HostRun | None = getattr(target, "host_run", None)
    return chosen or _AS_THEY_COME


_AS_THEY_COME = HostRun()
