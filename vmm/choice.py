"""Choose a driver: the GPU's where there is one that can be used, else the host driver, or the one that is named."""

from __future__ import annotations

import os
import warnings
from typing import Any

from .driver import NO_DEVICE, Driver, real_driver
from .errors import DriverError, DriverMissingError, VmmError


class NoGpuError(DriverMissingError):
    """There is no GPU here, or no NVIDIA driver, as against one that is there and cannot be used."""


def open_driver(choice: Any = None) -> Driver:
    """Return the driver that ``choice`` names: "cuda", "host", an object with the API's functions, or None.

    None takes the environment variable VMM_DRIVER, else the real driver if it is there with a device that supports
    virtual memory, else the host driver. Raises DriverMissingError when a named driver is not there.
    """
    if choice is None:
        choice = os.environ.get("VMM_DRIVER") or "auto"
    if not isinstance(choice, str):
        return Driver(choice, getattr(choice, "driver_name", "cuda"))
    if choice == "cuda":
        return _open_cuda()
    if choice == "host":
        return _open_host()
    if choice == "auto":
        return _open_either()
    raise DriverMissingError(f"unknown driver {choice!r}; VMM_DRIVER and driver= take 'cuda' or 'host'")


def _open_cuda() -> Driver:
    """The real driver, or DriverMissingError with the reason."""
    try:
        driver = real_driver()
        count = driver.device_count()
    except (RuntimeError, DriverError) as error:  # no libcuda is a RuntimeError of the bindings
        raise _missing(error) from error
    if not count:
        raise NoGpuError("driver 'cuda' finds no GPU; use driver='host'")
    return driver


def _missing(error: RuntimeError | DriverError) -> DriverMissingError:
    """What an error at the first calls of the real driver means."""
    reason = str(error).splitlines()[0]
    if isinstance(error, DriverError) and error.code == NO_DEVICE:
        return NoGpuError(f"driver 'cuda' finds no GPU: {reason}; use driver='host'")
    if isinstance(error, DriverError) or "cuGetProcAddress" in reason:  # a library older than the bindings can load
        return DriverMissingError(
            f"driver 'cuda' cannot be used: {reason}; mend or update the NVIDIA driver, or use driver='host'"
        )
    return NoGpuError(f"driver 'cuda' cannot be used: {reason}; install the NVIDIA driver, or use driver='host'")


def _open_host() -> Driver:
    from .host import HostDriver

    return Driver(HostDriver(), "host")


def _open_either() -> Driver:
    """The real driver where it can be used, else the host driver: silently where there is no GPU at all."""
    try:
        driver = _open_cuda()
        driver.check_supported(0)
    except NoGpuError:
        return _open_host()
    except VmmError as error:
        warnings.warn(f"falling back to the host driver: {error}", RuntimeWarning, stacklevel=4)
        return _open_host()
    return driver
