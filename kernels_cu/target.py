"""The seam: what a launch needs of the device that it runs on. vmm.Device fits it by its shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .errors import KernelFault
from .host_run import HostRun


class Target(Protocol):
    """Where kernels run. ``arch`` is "sm_90" and the like for a GPU, "host" for the CPU."""

    @property
    def arch(self) -> str:
        """What kernels are compiled for."""

    def submit(self, stream: int, call: Callable[[], None], keepalive: object) -> None:
        """Run ``call`` as a launch in the order of ``stream``; ``keepalive`` lives until its work is done."""

    def fault(self, address: int, write: bool) -> Exception:
        """Return the error for a kernel that touched ``address`` without the right to."""


class HostTarget:
    """The smallest target: kernels run on the CPU at once, whatever the stream.

    Any target may have an attribute ``host_run``, which says how the CPU runs a kernel's threads.
    """

    arch = "host"

    def __init__(self, host_run: HostRun | None = None) -> None:
        self.host_run = host_run or HostRun()

    def submit(self, stream: int, call: Callable[[], None], keepalive: object) -> None:  # noqa: ARG002
        """Run ``call`` now."""
        call()

    def fault(self, address: int, write: bool) -> Exception:
        """Return a KernelFault."""
        return KernelFault(address, write)
