"""Calls that the host driver does not have yet: they answer CUDA_ERROR_NOT_SUPPORTED, as a device without them does."""

from __future__ import annotations

from typing import Any

from . import gate
from .results import NOT_SUPPORTED, Result
from .sharing_calls import SharingCalls


def _absent(call: str) -> Any:
    refuse = gate.refusal(call, NOT_SUPPORTED)

    def answer(_self: object, *args: object, **kwargs: object) -> Result:
        return refuse(*args, **kwargs)

    answer.__name__ = call
    answer.__doc__ = "Not supported."
    return answer


class AbsentCalls(SharingCalls):
    """Multicast, sparse arrays, DMA buffers."""


for _call in (
    "cuMemGetHandleForAddressRange",
    "cuMemMapArrayAsync",
    "cuMulticastCreate",
    "cuMulticastAddDevice",
    "cuMulticastBindMem",
    "cuMulticastBindAddr",
    "cuMulticastUnbind",
    "cuMulticastGetGranularity",
):
    setattr(AbsentCalls, _call, _absent(_call))
