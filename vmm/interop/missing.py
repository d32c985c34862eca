"""Import a library that may be missing, or say in one line how to get it."""

from __future__ import annotations

import importlib
from typing import Any

from ..device import Device
from ..errors import DriverMissingError, StateError


def library(name: str, remedy: str) -> Any:
    """The module ``name``. Raises DriverMissingError, with the pip command in ``remedy``, where it cannot be had."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        reason = str(error).splitlines()[0]
        raise DriverMissingError(f"{name} cannot be imported ({reason}): pip install {remedy}") from error


def check_gpu(device: Device, library: str) -> None:
    """Raise StateError for a device of the host driver, whose memory ``library`` cannot use."""
    if device.backing != "device":
        what = f"{library} allocates memory of GPUs, and {device!r} is none"
        raise StateError(f"{what}; use driver='cuda', or on the host driver block.array() and memory.tensor()")
