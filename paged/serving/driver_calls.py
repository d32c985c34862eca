"""Counts the driver calls of a run, and the time they take where there is a real driver. Cheap enough for millions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class DriverCalls:
    """Wraps an object with the driver's functions: the same functions, each counted by name.

    With ``timed`` the time inside the driver is summed in ``seconds`` too. ``clear`` starts again from zero.
    """

    def __init__(self, api: Any, *, timed: bool = False) -> None:
        self.api = CountedDriver(api, self)
        self.timed = timed
        self.seconds = 0.0
        self._counts: dict[str, list[int]] = {}  # in the order of their names

    def counts(self) -> dict[str, int]:
        """How often each function was called, in the order of their names."""
        return {name: count for name, (count,) in self._counts.items() if count}

    def clear(self) -> None:
        """Forget what was counted."""
        self.seconds = 0.0
        for count in self._counts.values():
            count[0] = 0

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, counted under ``name``."""
        count = self._counts.setdefault(name, [0])
        self._counts = dict(sorted(self._counts.items()))

        def counted(*args: Any) -> Any:
            count[0] += 1
            return function(*args)

        def timed(*args: Any) -> Any:
            count[0] += 1
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return timed if self.timed else counted


class CountedDriver:
    """What DriverCalls passes on as the driver: functions are counted, every other attribute is the driver's own."""

    def __init__(self, api: Any, calls: DriverCalls) -> None:
        self.driver_name: str = getattr(api, "driver_name", "cuda")
        self._api = api
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        if not name.startswith("cu") or not callable(found):
            return found
        wrapped = self._calls.wrap(name, found)
        if name != "cuInit":  # a driver may answer differently once it is initialised
            self.__dict__[name] = wrapped
        return wrapped
