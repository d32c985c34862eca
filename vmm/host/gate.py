"""Shuts a driver before cuInit and in a forked child: every call answers CUDA_ERROR_NOT_INITIALIZED.

A shut driver has, for each call, an attribute of its own in front of the method. An open one has none, so that the
rule costs an open driver nothing.
"""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

from .results import DEINITIALIZED, NOT_INITIALIZED, Result

OPEN_FUNCTIONS = frozenset(("cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"))
"""What answers before cuInit."""

OUTPUTS = {
    "cuDeviceGetCount": 1, "cuDeviceGet": 1, "cuDeviceGetName": 1, "cuDeviceTotalMem": 1, "cuDeviceGetAttribute": 1,
    "cuDeviceCanAccessPeer": 1, "cuDevicePrimaryCtxRetain": 1, "cuDevicePrimaryCtxRelease": 0, "cuCtxGetCurrent": 1,
    "cuCtxSetCurrent": 0, "cuCtxPushCurrent": 0, "cuCtxPopCurrent": 1, "cuCtxGetDevice": 1, "cuCtxSynchronize": 0,
    "cuMemGetAllocationGranularity": 1, "cuMemAddressReserve": 1, "cuMemAddressFree": 0, "cuMemCreate": 1,
    "cuMemRelease": 0, "cuMemMap": 0, "cuMemUnmap": 0, "cuMemSetAccess": 0, "cuMemGetAccess": 1,
    "cuMemRetainAllocationHandle": 1, "cuMemGetAllocationPropertiesFromHandle": 1, "cuMemGetInfo": 2,
    "cuMemExportToShareableHandle": 1, "cuMemImportFromShareableHandle": 1, "cuMemGetHandleForAddressRange": 1,
    "cuIpcGetMemHandle": 1, "cuIpcOpenMemHandle": 1, "cuIpcCloseMemHandle": 0,
    "cuPointerGetAttribute": 1, "cuPointerGetAttributes": 1, "cuMemGetAddressRange": 2,
    "cuMemAlloc": 1, "cuMemFree": 0, "cuMemHostAlloc": 1, "cuMemAllocHost": 1, "cuMemFreeHost": 0,
    "cuMemcpy": 0, "cuMemcpyHtoD": 0, "cuMemcpyDtoH": 0, "cuMemcpyDtoD": 0, "cuMemcpyAsync": 0,
    "cuMemcpyHtoDAsync": 0, "cuMemcpyDtoHAsync": 0, "cuMemcpyDtoDAsync": 0,
    "cuMemsetD8": 0, "cuMemsetD16": 0, "cuMemsetD32": 0, "cuMemsetD8Async": 0, "cuMemsetD16Async": 0,
    "cuMemsetD32Async": 0,
    "cuStreamCreate": 1, "cuStreamDestroy": 0, "cuStreamSynchronize": 0, "cuStreamQuery": 0, "cuStreamWaitEvent": 0,
    "cuEventCreate": 1, "cuEventRecord": 0, "cuEventQuery": 0, "cuEventSynchronize": 0, "cuEventElapsedTime": 1,
    "cuEventDestroy": 0, "cuCtxRecordEvent": 0, "cuCtxWaitEvent": 0, "cuLaunchHostFunc": 0,
    "cuMulticastCreate": 1, "cuMulticastAddDevice": 0, "cuMulticastBindMem": 0, "cuMulticastBindAddr": 0,
    "cuMulticastUnbind": 0, "cuMulticastGetGranularity": 1, "cuMemMapArrayAsync": 0,
}  # fmt: skip
"""How many outputs follow the status of each call."""

_opened: weakref.WeakSet[Any] = weakref.WeakSet()


def refusal(call: str, status: Any) -> Callable[..., Result]:
    """A function that answers every use of ``call`` with ``status``."""
    result = (status, *(None,) * OUTPUTS[call])
    return lambda *_args, **_kwargs: result


def shut(driver: object, status: Any = NOT_INITIALIZED) -> None:
    """Let every call answer ``status``, by default that the driver is not initialised."""
    vars(driver).update({call: refusal(call, status) for call in OUTPUTS})


def shut_down(driver: object) -> None:
    """Let every call answer that the driver has gone, cuInit included."""
    shut(driver, DEINITIALIZED)
    vars(driver)["cuInit"] = lambda *_args: (DEINITIALIZED,)
    _opened.discard(driver)


def open_(driver: object) -> None:
    """Let the calls through. A child of a later fork finds the driver shut, cuInit included."""
    for call in OUTPUTS:
        vars(driver).pop(call, None)
    _opened.add(driver)


def is_open(driver: object) -> bool:
    """Whether cuInit was called, in this process or in one that it was forked from."""
    return driver in _opened


def _shut_all() -> None:
    """In a child: no thread of the parent is there to let a lock go, and the garbage collector may end owners here."""
    collecting = gc.isenabled()
    gc.disable()
    for driver in _opened:
        driver.forked()
        shut(driver)
        vars(driver)["cuInit"] = lambda *_args: (NOT_INITIALIZED,)
    if collecting:
        gc.enable()


os.register_at_fork(after_in_child=_shut_all)
