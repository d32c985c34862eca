"""HostDriver: an object with the functions of ``cuda.bindings.driver``, over memory of the operating system."""

from __future__ import annotations

from collections.abc import Iterable

from .. import sizes
from . import gate
from .failures import Countdown, Failure
from .picture import PictureCalls
from .results import OK, Result


class HostDriver(PictureCalls):
    """A software driver with the rules of CUDA's virtual memory calls.

    ``memory`` bytes of physical memory a device, in units of ``granularity``. ``backing="memory"`` keeps real bytes in
    memory of the operating system; ``backing="none"`` keeps the rules only. ``poison`` is a byte that fills fresh
    memory. ``peers`` says which of the ``devices`` reach each other's memory: "all", "none", or pairs of ordinals.
    ``streams`` run their work at once ("eager") or when somebody waits for it ("deferred"). A query of pending
    work says "not ready" and lets it run then, so that a program which polls goes on. ``fail`` is one call that is
    refused, whatever the rules say. ``free_mapped`` lets a reservation be freed with mappings in it, as some report of
    a real driver. Raises ValueError (SizeError for sizes) for options that it does not have.
    """

    def __init__(
        self,
        *,
        memory: sizes.Size = "8 GiB",
        granularity: sizes.Size = "2 MiB",
        backing: str = "memory",
        devices: int = 1,
        peers: str | Iterable[tuple[int, int]] = "all",
        streams: str = "eager",
        poison: int | None = None,
        fail: Failure | None = None,
        free_mapped: bool = False,
    ) -> None:
        super().__init__(
            memory=memory,
            granularity=granularity,
            backing=backing,
            devices=devices,
            peers=peers,
            streams=streams,
            poison=poison,
        )
        self._countdown = Countdown(fail)
        self._free_mapped = free_mapped
        gate.shut(self)

    def cuInit(self, Flags: int) -> Result:
        """Open the driver; flags must be 0."""
        result = super().cuInit(Flags)
        if result is OK:
            self._arm()
        return result

    def shut_down(self) -> None:
        """Go, as a driver does at the end of its process: memory and addresses go back, and every call answers 4.

        Whatever still looks at the memory must not be used again.
        """
        gate.shut_down(self)
        self._close()

    def fail(self, failure: Failure | None) -> None:
        """Let one call fail from now on, counted from here; None for none any more."""
        self._disarm()
        self._countdown = Countdown(failure)
        if gate.is_open(self):
            self._arm()

    def _arm(self) -> None:
        """Put a guard before the calls that may be the one; without a failure to come there is none."""
        failure = self._countdown.failure
        if failure is not None:
            for call in [failure.call] if failure.call else gate.OUTPUTS:
                vars(self)[call] = self._countdown.guard(call, getattr(super(), call))

    def _disarm(self) -> None:
        """Take the guards away."""
        if gate.is_open(self):
            gate.open_(self)
