"""Device: one GPU, or the host driver's software one: its driver, context, granularity, memory and launches."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .choice import open_driver
from .driver import ILLEGAL_ADDRESS, Driver, error_of
from .errors import ClosedError, DriverError, RangeError, VmmError
from .fence import After, Fence
from .finishing import Finishing
from .retirement import Retirement
from .sizes import format_size
from .streams import Stream, stream_handle
from .uninterrupted import uninterrupted, whole

if TYPE_CHECKING:
    from typing_extensions import Self

    from .recorder import Recorder

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Physical memory of a device in bytes, as the driver reports it."""

    free: int
    total: int


class Cache(Protocol):
    """Keeps physical memory that nobody uses."""

    def trim(self) -> int: ...

    @property
    def releasable(self) -> int: ...


class Device:
    """The device that ranges and supplies take their memory from.

    ``driver`` is "cuda", "host", or an object with the driver's functions such as ``HostDriver(memory="80 GiB")``; None
    takes the real driver where there is one (see ``vmm.choice.open_driver``). ``recorder`` sees every call.
    The device's primary context is retained until ``close``; the caller's current context is left as it was.

    Raises DriverMissingError when a forced driver is not there or the device lacks the virtual memory calls,
    RangeError for an ordinal that no device has.
    """

    @whole
    def __init__(self, ordinal: int = 0, *, driver: Any = None, recorder: Recorder | None = None) -> None:
        found = open_driver(driver)
        self.driver = Driver(recorder.wrap(found.api), found.name) if recorder else found
        count = self.driver.device_count()
        if not 0 <= ordinal < count:
            raise RangeError(f"device {ordinal} is not there; {self.driver.name} has devices 0 to {count - 1}")
        self.driver.check_supported(ordinal)
        self.ordinal = ordinal
        self.name = self.driver.device_name(ordinal)
        self.total = self.driver.device_total(ordinal)
        self.granularity = self.driver.granularity(ordinal)
        self._context = self.driver.context_retain(ordinal)
        self._in_flight: deque[tuple[int, int, object]] = deque()  # event or 0, turn, what it keeps alive
        self._reported = False  # whether a fault was raised to somebody
        self._turns = itertools.count(1)
        self.pinned = 0  # bytes of pinned host memory
        self.waited = 0  # all work queued before this turn is done
        self.retirement = Retirement()
        # who can release memory where the device is full
        self.caches: weakref.WeakValueDictionary[int, Cache] = weakref.WeakValueDictionary()
        self._finalizer = weakref.finalize(self, _release_context, self.driver, ordinal)

    def __repr__(self) -> str:
        text = f"Device({self.ordinal}: {self.name}, driver {self.driver.name}, backing {self.backing}, "
        return f"{text}{format_size(self.total)}, granularity {format_size(self.granularity)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def backing(self) -> str:
        """Where bytes live: "device", "memory" (of the host) or "none" (rules without bytes)."""
        return self.driver.backing

    @property
    def arch(self) -> str:
        """What kernels are compiled for: "host", or the compute capability as "sm_90"."""
        if self.driver.name == "host":
            return "host"
        major = self.driver.device_attribute(self.ordinal, _CAPABILITY_MAJOR)
        return f"sm_{major}{self.driver.device_attribute(self.ordinal, _CAPABILITY_MINOR)}"

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make this device's context current inside a ``with``. Raises ClosedError after ``close``."""
        if not self._finalizer.alive:
            raise ClosedError(f"device {self.ordinal} is closed")
        return self.driver.context(self._context)

    def memory_info(self) -> MemoryInfo:
        """Free and total physical memory as the driver reports them now."""
        with self.current():
            return MemoryInfo(*self.driver.memory_info())

    @property
    def obtainable(self) -> int:
        """Bytes that could be allocated: what is free, what supplies have cached, and what retires."""
        cached = sum(cache.releasable for cache in list(self.caches.values()))
        return self.memory_info().free + cached + self.retirement.size

    @property
    def idle(self) -> bool:
        """Whether there can be no work: the device is closed, or this process is a fork of the one that opened it."""
        return not self._finalizer.alive or self.driver.forked

    def check_open(self) -> None:
        """Raise ClosedError after ``close``."""
        if not self._finalizer.alive:
            raise ClosedError(f"device {self.ordinal} is closed; open it again")

    def is_same(self, other: Device) -> bool:
        """Whether both are the same device of the same driver."""
        return self.ordinal == other.ordinal and self.driver.is_same(other.driver)

    def fence(self, after: After = None) -> Fence:
        """The work queued so far: what ``after`` names (a stream, an event, or several), or all of this device's.

        Raises as ``Fence``. The caller closes it.
        """
        return Fence(self, after)

    def record_all(self) -> int:
        """An event that completes with all work queued so far; this device's context is current. See ``Fence``."""
        return self.driver.event_record_all(self._context)

    @uninterrupted
    def synchronize(self) -> None:
        """Wait for all work of this device, and unmap the memory that it was the last to use.

        Raises DriverError for a fault, once: after it no work is left, and owners can still give back what they have.
        A closed device has no work left: ``close`` has waited for it, so that owners may be closed after it.
        """
        if self.idle:
            return  # after a fork the work is the parent's
        turn = self.next_turn()
        with self.current(), self.fault_told(once=True):
            self.driver.synchronize()
            self._reported = False
        self.waited = max(self.waited, turn)
        self._drop_finished()
        self.retirement.poll()

    def next_turn(self) -> int:
        """A number for this moment: ``waited`` is greater once a wait for all work that began later has ended."""
        return next(self._turns)

    def finished(self, event: int) -> bool:
        """Whether the work before an event is done. In a context that was lost to a fault nothing runs any more."""
        try:
            return self.driver.event_done(event)
        except DriverError as error:
            if error.code != ILLEGAL_ADDRESS:
                raise
            return True

    @uninterrupted
    def submit(self, stream: Stream, call: Callable[[], None], keepalive: object) -> None:
        """Run ``call``, which queues work on ``stream``, and keep ``keepalive`` until that work has completed.

        A software driver has streams that take ``call`` itself, and may run it later.
        """
        stream = stream_handle(stream)
        take = getattr(self.driver.api, "submit", None)
        with self.current(), self.fault_told():
            if take is not None:
                take(stream, call, keepalive)
                return
            self._drop_finished()
            event = self.driver.event_create()
            try:
                call()
            except BaseException:
                self.driver.event_destroy(event)
                raise
            self._keep(stream, event, keepalive)

    def fault(self, address: int, write: bool) -> Exception:
        """The error for a kernel's access to an address that it must not touch, with all that is known about it."""
        explain = getattr(self.driver.api, "explain", None)
        if explain is None:
            return error_of("cuLaunchKernel", ILLEGAL_ADDRESS, (), self.driver.known_about(ILLEGAL_ADDRESS))
        name = self.driver.name_of(address)
        known = f"{'write' if write else 'read'} of {address:#x}: {explain(address)}"
        return error_of("cuLaunchKernel", ILLEGAL_ADDRESS, (), f"{name}: {known}" if name else known)

    @uninterrupted
    def close(self) -> None:
        """Wait for all work and release the primary context. Closing twice does nothing.

        Close what lies on it first: nothing more is committed in a range that is still open, and it can be closed.
        """
        if self._finalizer.alive:
            try:
                self.synchronize()
            except DriverError as error:
                if error.code >= ILLEGAL_ADDRESS:  # the context is lost, and nothing but its release works any more
                    self._release()
                raise
            self._release()

    def _release(self) -> None:
        self.retirement.poll()  # after a fault: no work runs any more
        with Finishing() as rest:
            if not self.driver.forked:
                rest.run(self.driver.context_release, self.ordinal)
            self._finalizer.detach()

    @contextlib.contextmanager
    def fault_told(self, *, once: bool = False) -> Iterator[None]:
        """Remember that a fault was raised to somebody inside the ``with``; with ``once``, raise none that was."""
        try:
            yield
        except DriverError as error:
            known = self._reported
            self._reported |= error.code == ILLEGAL_ADDRESS
            if error.code != ILLEGAL_ADDRESS or not (once and known):
                raise

    def _keep(self, stream: int, event: int, keepalive: object) -> None:
        """Keep something alive until the work now in ``stream`` is done; without its event, until all work is.

        The work is queued: only what loses the context is raised, for any other error would say that it was not.
        """
        turn = self.next_turn()
        try:
            self.driver.event_record_again(event, stream)
        except VmmError as error:
            self._in_flight.append((0, turn, keepalive))
            if isinstance(error, DriverError) and error.code >= ILLEGAL_ADDRESS:
                raise
            return
        self._in_flight.append((event, turn, keepalive))
        with contextlib.suppress(VmmError):
            self._drop_finished()

    def _drop_finished(self) -> None:
        """Let go of what completed launches kept alive. Several threads may be here."""
        for _ in range(len(self._in_flight)):
            try:
                one = self._in_flight.popleft()
            except IndexError:
                return  # another thread looks at the last
            with contextlib.ExitStack() as undo:
                undo.callback(self._in_flight.append, one)
                event, turn, _kept = one
                if self.finished(event) if event else turn < self.waited:
                    undo.pop_all()
                    if event:
                        self.driver.event_destroy(event)


def _release_context(driver: Driver, ordinal: int) -> None:
    """Drop the context's reference; a driver that is already shut down has dropped it by itself."""
    with contextlib.suppress(DriverError):
        driver.context_release(ordinal)
