"""The parameter table of a compiled kernel, and the check of a launch's arguments against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import LaunchError

Argument = np.generic
"""One argument of a launch: a NumPy scalar, whose width is what the kernel gets. Addresses are uint64."""
_KINDS_OF = {"p": "u", "u": "u", "i": "i", "f": "f"}
_NAMES = {"p": "an address", "u": "an unsigned integer", "i": "a signed integer", "f": "a float"}


@dataclass(frozen=True)
class Parameter:
    """One parameter: its place and size in bytes, and its kind where the compiler tells it.

    ``kind``: "p" address, "i" signed, "u" unsigned integer, "f" floating point; None if not known: a cubin has sizes.
    """

    offset: int
    size: int
    kind: str | None = None


def check_arguments(name: str, parameters: Sequence[Parameter], arguments: Sequence[Any]) -> None:
    """Raise LaunchError unless ``arguments`` are NumPy scalars, as many and as wide as the kernel's parameters."""
    if len(arguments) != len(parameters):
        raise LaunchError(f"{name} has {len(parameters)} parameters, but {len(arguments)} arguments were passed")
    for i, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        if not isinstance(argument, np.generic):
            raise LaunchError(f"{name}: argument {i} must be a NumPy scalar of a fixed width, not {argument!r}")
        if argument.itemsize != parameter.size:
            raise LaunchError(
                f"{name}: argument {i} has {argument.itemsize} bytes ({argument.dtype}), "
                f"but the kernel's parameter has {parameter.size}"
            )
        if parameter.kind in _KINDS_OF and argument.dtype.kind != _KINDS_OF[parameter.kind]:
            raise LaunchError(f"{name}: argument {i} is {argument.dtype}, not {_NAMES[parameter.kind]}")


def pack_arguments(parameters: Sequence[Parameter], arguments: Sequence[Argument]) -> bytes:
    """Lay checked arguments out in memory as the table says."""
    if not parameters:
        return b""
    last = parameters[-1]
    packed = bytearray(last.offset + last.size)
    for parameter, argument in zip(parameters, arguments, strict=True):
        packed[parameter.offset : parameter.offset + parameter.size] = argument.tobytes()
    return bytes(packed)
