"""HostDriver: an object with the functions of ``cuda.bindings.driver``, over memory of the operating system."""

from __future__ import annotations

from collections.abc import Iterable

from .. import sizes
from . import gate
from .explain import ExplainCalls


class HostDriver(ExplainCalls):
    """A software driver with the rules of CUDA's virtual memory calls.

    ``memory`` bytes of physical memory a device, in units of ``granularity``. ``backing="memory"`` keeps real bytes in
    memory of the operating system; ``backing="none"`` keeps the rules only. ``poison`` is a byte that fills fresh
    memory. ``peers`` says which of the ``devices`` reach each other's memory: "all", "none", or pairs of ordinals.
    Raises ValueError (SizeError for sizes) for options that it does not have.
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
        gate.shut(self)
