"""Failures on demand: one driver call fails, and everything must be as it was before.

``FailingDriver`` wraps any driver, the real one too. ``sweep`` runs an operation again and again, each time with the
next of its calls failing, until it is through, and compares the driver's whole state before and after.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cuda

from . import gate
from .results import OUT_OF_MEMORY

_MOST_CALLS = 100_000


@dataclass(frozen=True, slots=True)
class Failure:
    """The ``at``-th use of ``call`` (of any call where it is empty), counted from 1, answers ``code``.

    Raises ValueError for a call or a code that there is not.
    """

    call: str = ""
    at: int = 1
    code: int = int(OUT_OF_MEMORY)

    def __post_init__(self) -> None:
        """Refuse what could never happen."""
        if self.call and self.call not in gate.OUTPUTS:
            raise ValueError(f"{self.call!r} is no call of the driver")
        if self.at < 1:
            raise ValueError(f"calls are counted from 1, not {self.at}")
        if not self.code or self.code not in set(cuda.CUresult):
            raise ValueError(f"{self.code} is no status of a refused call")

    def result(self, call: str) -> tuple[Any, ...]:
        """What the refused call returns."""
        return (cuda.CUresult(self.code), *(None,) * gate.OUTPUTS[call])


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that was made to fail: which, the how many-th of the operation, and what the operation raised."""

    call: str
    at: int
    error: BaseException | None


class Countdown:
    """Counts uses of calls down to the one that fails; then ``failure`` is None, and ``failed`` names the call."""

    def __init__(self, failure: Failure | None) -> None:
        self.failure = failure
        self.failed = ""
        self._left = failure.at if failure else 0
        self._counting = threading.Lock()

    def next(self, call: str) -> Failure | None:
        """The failure that is due at this use of a call."""
        with self._counting:
            failure = self.failure
            if failure is None or failure.call not in ("", call):
                return None
            self._left -= 1
            if self._left:
                return None
            self.failure, self.failed = None, call
            return failure

    def guard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which fails when its time has come."""

        def call(*args: Any, **names: Any) -> Any:
            failure = self.next(name)
            return function(*args, **names) if failure is None else failure.result(name)

        return call


class FailingDriver:
    """Any driver's functions, of which one use can be made to fail before it reaches the driver.

    ``spared`` calls are neither counted nor failed.
    """

    def __init__(self, api: Any, spared: Collection[str] = ()) -> None:
        self._api = api
        self._spared = frozenset(spared)
        self._countdown = Countdown(None)

    def arm(self, call: str = "", at: int = 1, code: int = int(OUT_OF_MEMORY)) -> None:
        """Fail the ``at``-th use of ``call`` from now, or of any call where it is empty. ValueError as Failure."""
        self._countdown = Countdown(Failure(call, at, code))

    def disarm(self) -> bool:
        """Fail nothing more; whether the failure was still to come."""
        waiting, self._countdown.failure = self._countdown.failure is not None, None
        return waiting

    @property
    def failed(self) -> str:
        """The call that was made to fail since ``arm``; empty if none was."""
        return self._countdown.failed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        return self._countdown.guard(name, found) if name in gate.OUTPUTS and name not in self._spared else found


class SweepError(AssertionError):
    """An operation that failed half way left something changed."""


def sweep(
    api: FailingDriver,
    operation: Callable[[], object],
    *,
    restore: Callable[[], object] | None = None,
    call: str = "",
    code: int = int(OUT_OF_MEMORY),
    state: Callable[[], Any] | None = None,
) -> list[Failed]:
    """Run ``operation`` once for each driver call that it makes (each use of ``call`` if given), failing that one.

    A run that raises must leave everything as it was: a host driver's picture, and what ``state`` returns. A run that
    succeeds although a call failed, and the last run, in which none did, may change things; ``restore`` then brings
    back the state from before, and without it the sweep ends there. Returns the failed calls in order.

    Calls that only give back (cuMemRelease, cuMemAddressFree, cuEventDestroy, ...) cannot be undone; vmm finishes and
    raises ReleaseError then. Leave them out by ``FailingDriver(api, spared=...)``.

    Raises SweepError for a change that was left, with what has changed.
    """
    done: list[Failed] = []
    before = _look(api, state)
    for at in range(1, _MOST_CALLS):
        api.arm(call, at, code)
        error: BaseException | None = None
        try:
            operation()
        except Exception as caught:
            error = caught
        finally:
            through = api.disarm()
        if through and error is not None:
            raise error  # no call failed: the operation itself did
        if not through:
            done.append(Failed(api.failed, at, error))
        if error is None:
            if restore is not None:
                restore()
            if through or restore is None:
                return done
        _compare(before, _look(api, state), done[-1])
    raise SweepError(f"no end after {_MOST_CALLS} calls")


def _look(api: FailingDriver, state: Callable[[], Any] | None) -> tuple[Any, Any]:
    look = getattr(api, "picture", None)
    return look() if look else None, state() if state is not None else None


def _compare(before: tuple[Any, Any], after: tuple[Any, Any], failed: Failed) -> None:
    where = f"call {failed.at}, {failed.call}, failed and the operation {'raised' if failed.error else 'went on'}"
    if before[0] != after[0]:
        raise SweepError(f"{where}: {'; '.join(before[0].differences(after[0]))}")
    if before[1] != after[1]:
        raise SweepError(f"{where}: the state was {before[1]!r}, is {after[1]!r}")
