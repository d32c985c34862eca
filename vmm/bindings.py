"""Bindings: cuda.bindings.driver with its two exceptions turned into what every other refusal is.

A driver can be newer than the bindings, which raise ValueError for a status that they do not know, and older, or not
whole: then they raise RuntimeError at the first use of a call that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .errors import DriverMissingError

_UNKNOWN_STATUS = re.compile(r"(\d+) is not a valid CUresult")
_LACKING = re.compile(r"function (\w+) is not found")


class Bindings:
    """The functions of ``module``. A status that it does not know is returned as an int, without outputs.

    Raises DriverMissingError where the library of the driver lacks the call.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name.startswith("cu") and callable(found):
            found = _guarded(found)
            setattr(self, name, found)
        return found


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **names: Any) -> Any:
        try:
            return function(*args, **names)
        except ValueError as error:
            unknown = _UNKNOWN_STATUS.search(str(error))
            if unknown is None:
                raise
            return int(unknown[1]), None
        except RuntimeError as error:
            lacking = _LACKING.search(str(error))
            if lacking is None:
                raise
            raise DriverMissingError(
                f"the NVIDIA driver here has no {lacking[1]}; update it, or use driver='host'"
            ) from error

    return guarded
