"""What the failure sweeps share: a world to work in, its books, and the sweep of one operation.

A case is a function of a ``World`` that prepares something and returns the operation. The operation runs once for each
driver call that it makes, each time in a new world, with that call failing. Then everything must be as it was before,
and a second try must succeed with the result that it has without a failure. Where the failing call only gives back,
the operation must have come to its end or changed nothing, and at most the very thing is lost that the driver refused.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import vmm
from vmm.errors import ReleaseError
from vmm.host import FailingDriver, HostDriver, SweepError

UNIT = 64 << 10
RELEASES = {
    "cuMemRelease": "allocations",
    "cuMemAddressFree": "reservations",
    "cuMemFreeHost": "pinned",
    "cuEventDestroy": "events",
    "cuDevicePrimaryCtxRelease": "contexts",
    "cuCtxPopCurrent": "",
}
"""Calls that only give back, and what of a picture each of them may lose."""


class World:
    """A driver whose calls can fail, a device on it, and owners that are closed at the end."""

    def __init__(self, streams: str, **options: Any) -> None:
        self.streams = streams
        self.host = HostDriver(**{"memory": 64 * UNIT, "granularity": UNIT, "streams": streams, **options})
        self.api = FailingDriver(self.host)
        self.owned: list[Any] = []
        self.loose = False  # whether the operation may collect what retires although it fails
        self.extra: Callable[[], Any] = lambda: None
        self._device: vmm.Device | None = None

    @property
    def device(self) -> vmm.Device:
        """The first device, made when it is first asked for."""
        if self._device is None:
            self._device = vmm.Device(driver=self.api)
        return self._device

    def own(self, made: Any) -> Any:
        """Have something closed, last first, and its books looked at."""
        self.owned.append(made)
        return made

    def range(self, chunks: Any = (), **options: Any) -> vmm.GrowableRange:
        """A range with 16 chunks of addresses, of which ``chunks`` are committed and hold bytes of their own."""
        options = {"name": "kv", **options}
        made = self.own(vmm.GrowableRange(self.device, 16 * UNIT, **options))
        made.commit(chunks)
        for chunk in chunks:
            made.array("uint8", UNIT, chunk * UNIT)[:] = chunk + 1
        return made

    def supply(self, **options: Any) -> vmm.ChunkSupply:
        return self.own(vmm.ChunkSupply(self.device, UNIT, **options))

    def busy(self, memory: Any, chunk: int = 0, stream: int = 0) -> None:
        """Queue work that writes a chunk's last bytes."""
        with self.device.current():
            self.device.driver.fill_async(memory.base + chunk * UNIT + UNIT - 16, 99, 16, stream)

    def books(self) -> list[Any]:
        return [*(books_of(one) for one in self.owned), self.extra()]

    def look(self) -> tuple[Any, Any]:
        seen = self.host.picture()
        strict = None if self.loose else (seen.reservations, seen.mappings, seen.allocations, seen.events, seen.plain)
        return self.books(), (strict, seen.contexts, seen.streams)

    def settle(self) -> None:
        """Where an operation may collect what retires: collect it, so that ends can be compared."""
        if self.loose and self._device is not None:
            self._device.synchronize()
            self._device.retirement.collect(wait=True)

    def prove(self) -> None:
        """What must hold at any moment: the driver has what the books say, and no more."""
        ranges = [found for one in self.owned for found in ranges_of(one) if not found.closed]
        for one in ranges:
            mapped = one.mappings()
            assert len(mapped) == len(one.committed_chunks()) + one.retiring // UNIT + zeros_of(one), one
            for mapping in mapped:
                assert any(seen[0] == mapping.address for seen in self.host.picture().mappings), mapping
        for one in self.owned:
            if hasattr(one, "check") and not one.range.closed:
                one.check()

    def close(self) -> None:
        """Close everything, each once more where the driver refused something."""
        self.api.disarm()
        self.drop_contexts()
        for one in [*reversed(self.owned), *([self._device] if self._device else [])]:
            with contextlib.suppress(ReleaseError):
                one.close()
            one.close()

    def drop_contexts(self) -> None:
        """Take off what a refused pop left on top."""
        while int(self.host.cuCtxGetCurrent()[1]):
            self.host.cuCtxPopCurrent()

    def left(self) -> dict[str, int]:
        """What is alive when everything was closed."""
        live = self.host.live()
        names = ("reservations", "mappings", "allocations", "plain", "pinned", "contexts", "streams", "events")
        return {name: getattr(live, name) for name in names if getattr(live, name)}

    def tidy(self) -> None:
        """Give back what is left by the driver's own picture."""
        self.drop_contexts()
        seen = self.host.picture()
        for base, size, *_ in seen.mappings:
            self.host.cuMemUnmap(base, size)
        for handle, _size, references, _maps in seen.allocations:
            for _ in range(references):
                self.host.cuMemRelease(handle)
        for base, size in seen.reservations:
            self.host.cuMemAddressFree(base, size)
        if seen.plain:
            self.host.cuCtxPushCurrent(self.host.cuDevicePrimaryCtxRetain(0)[1])
            for base, _size in seen.plain:
                self.host.cuMemFreeHost(base)
            self.host.cuCtxPopCurrent()
            self.host.cuDevicePrimaryCtxRelease(0)
        for event in seen.events:
            self.host.cuEventDestroy(event)
        for stream in seen.streams:
            self.host.cuStreamDestroy(stream)
        for device, count in enumerate(seen.contexts):
            for _ in range(count):
                self.host.cuDevicePrimaryCtxRelease(device)


def zeros_of(memory: Any) -> int:
    return sum(len(window.zeros) for window in memory._chunks.windows)


def ranges_of(owner: Any) -> list[Any]:
    found = getattr(owner, "range", owner)
    return [found] if isinstance(found, vmm.ChunkedRange) else []


def bytes_of(memory: Any, chunk: int) -> Any:
    """The first and the middle bytes of a chunk."""
    if memory.mapping(chunk).access == vmm.Access.NONE:
        return None
    return bytes(memory.array("uint8", 8, chunk * UNIT)), bytes(memory.array("uint8", 8, chunk * UNIT + UNIT // 2))


def books_of(owner: Any) -> Any:
    """What an owner says about itself, in plain values."""
    if isinstance(owner, vmm.Supply):
        bounds = (owner.floor, owner.ceiling) if isinstance(owner, vmm.Share) else ()
        return owner.in_use - owner.retiring, not owner._finalizer.alive, bounds
    if isinstance(owner, vmm.ChunkedRange):
        if owner.closed:
            return "closed"
        chunks = owner.committed_chunks()
        held = {chunk: bytes_of(owner, chunk) for chunk in chunks} if owner.device.backing == "memory" else chunks
        windows = [(window.first, window.stop, window.zeros) for window in owner._chunks.windows]
        peers = dict(owner._chunks.addresses.peers)
        return owner.size, held, owner.runs(), windows, peers, len(owner._pins)
    if isinstance(owner, vmm.Heap):
        return sorted((block.offset, block.size, block.requested) for block in owner._blocks.values())
    if isinstance(owner, vmm.AddressRange):
        mappings = [(one.offset, one.size, one.access) for one in owner.mappings()]
        return owner._finalizer.alive, mappings, dict(owner.peers)
    if isinstance(owner, vmm.PhysicalMemory):
        return owner.closed
    if hasattr(owner, "block_pool"):
        return _books_of_pool(owner)
    if hasattr(owner, "max_blocks"):  # tables on the device: until the next update their entries mean nothing
        return repr(owner)
    if hasattr(owner, "max_sequences"):
        spans = {index: span.length for index, span in owner._open.items()}
        return books_of(owner.range), spans, sorted(owner.free_spans), owner.tokens, owner.used_steps
    return owner.books() if hasattr(owner, "books") else None


def _books_of_pool(pool: Any) -> Any:
    blocks = pool.block_pool
    held = {block: count for block in range(blocks.rows.blocks) if (count := blocks.count(block))}
    sequences = [(one.length, list(one.table)) for one in pool.sequences]
    return books_of(pool.range), held, sorted(blocks.committed), blocks.available, sequences, pool.tokens


def run_once(case: Any, streams: str, at: int, code: int, done: Any = None) -> World | None:
    """One run in a world of its own, with call ``at`` failing; the world if the operation made fewer calls.

    ``done`` are the books at the end of the operation.
    """
    world = World(streams, **case.options)
    try:
        world.loose = case.loose
        operation = case(world)
        before = world.look()
        world.api.arm(at=at, code=code)
        error: BaseException | None = None
        try:
            operation()
        except vmm.VmmError as caught:
            error = caught
            traceback.clear_frames(caught.__traceback__)  # arrays in them would keep memory in use
        through, call = world.api.disarm(), world.api.failed
        if through:
            if error is not None:
                raise error
            return world
        where = f"{case.__name__}: call {at}, {call}, code {code}, {streams}"
        _judge(world, operation, before, done, error, where, call)
    except BaseException:
        _end(world)
        raise
    return None


def sweep_case(case: Any, streams: str, code: int) -> list[str]:
    """Fail every call of the case's operation in turn; which they were. Raises SweepError for what was left changed."""
    last = run_once(case, streams, 1 << 20, code)
    last.settle()
    done_books = last.books()
    calls = _calls_of(case, streams)
    _finish(last, "", case.__name__)
    for at in range(1, 10_000):
        through = run_once(case, streams, at, code, done_books)
        if through is not None:
            through.settle()
            assert through.books() == done_books
            _finish(through, "", case.__name__)
            return calls
    raise SweepError("no end")


def interrupt_case(case: Any, streams: str) -> int:
    """Interrupt the operation after each of its calls in turn; how many they were.

    It comes to its end, and the interrupt is raised then; or it has not begun. What a constructor made is closed again.
    """
    last = run_once(case, streams, 1 << 20, 1)
    last.settle()
    done = last.books()
    _finish(last, "", case.__name__)
    for at in range(1, 10_000):
        world = World(streams, **case.options)
        try:
            world.loose = case.loose
            operation = case(world)
            before = world.books()
            call, raised = _interrupt(world, operation, at)
            where = f"{case.__name__}: interrupted after call {at}, {call}, {streams}"
            _check_books(world, where)
            world.settle()
            if call and not raised:
                raise SweepError(f"{where}: the interrupt was lost")
            if world.books() not in (done, before):
                raise SweepError(f"{where}: the operation ended with {world.books()} instead of {done}")
            _finish(world, "", where)
        except BaseException:
            _end(world)
            raise
        if not call:
            return at - 1
    raise SweepError("no end")


def _interrupt(world: World, operation: Any, at: int) -> tuple[str, bool]:
    """Run an operation with an interrupt after one of its calls: after which, and whether that was raised."""
    world.api.arm(at=at)
    countdown = world.api._countdown

    def guard(name: str, function: Any) -> Any:
        def call(*args: Any, **names: Any) -> Any:
            due = countdown.next(name)
            result = function(*args, **names)
            if due is not None:
                signal.raise_signal(signal.SIGINT)
            return result

        return call

    countdown.guard = guard
    raised = False
    try:
        operation()
    except KeyboardInterrupt as caught:
        traceback.clear_frames(caught.__traceback__)
        raised = True
    world.api.disarm()
    return countdown.failed, raised


def _calls_of(case: Any, streams: str) -> list[str]:
    """The calls that the operation makes without a failure."""
    world = World(streams, **case.options)
    try:
        operation = case(world)
        seen: list[str] = []
        following = world.api._countdown.next
        world.api._countdown.next = lambda call: seen.append(call) or following(call)
        operation()
    finally:
        _end(world)
    return seen


def _judge(world: World, operation: Any, before: Any, done: Any, error: Any, where: str, call: str) -> None:
    """Compare what is with what was, or with what the operation does."""
    _check_books(world, where)
    if call in RELEASES:
        world.drop_contexts()
        if error is not None and call != "cuCtxPopCurrent" and not isinstance(error, ReleaseError):
            raise SweepError(f"{where} only gives back, but {error!r} was raised")
        if error is not None and world.books() == before[0] != done:
            operation()
    elif error is not None:
        after = world.look()
        if call not in str(error):
            raise SweepError(f"{where}: the error does not say so: {error!r}")
        if isinstance(error, vmm.OutOfMemoryError) and len(error.report.lines()) != 5:
            raise SweepError(f"{where}: its report has not five lines: {error.report}")
        if after != before:
            raise SweepError(f"{where} failed and left a change: was {before}, is {after}")
        operation()
    _check_books(world, where)
    world.settle()
    if world.books() != done:
        raise SweepError(f"{where} failed and the operation ended with {world.books()} instead of {done}")
    _finish(world, call, where)


def _check_books(world: World, where: str) -> None:
    try:
        world.prove()
    except AssertionError as wrong:
        raise SweepError(f"{where}: {wrong}") from wrong


def _finish(world: World, call: str, where: str) -> None:
    """Close everything; nothing may be left but what the driver refused to take back."""
    _check_books(world, where)
    world.close()
    left = world.left()
    lost = RELEASES.get(call, "")
    if set(left) - {lost} or left.get(lost, 0) > 1:
        raise SweepError(f"{where}: left alive at the end: {left}")
    world.tidy()


def _end(world: World) -> None:
    """After an error: close what can be closed, and leave nothing to the next test."""
    world.api.disarm()
    for one in [*reversed(world.owned), *([world._device] if world._device else [])]:
        with contextlib.suppress(Exception):
            one.close()
        for detached in ("_finalizer",):
            with contextlib.suppress(Exception):
                getattr(one, detached).detach()
    world.tidy()


def own_bases(cls: type) -> Iterator[type]:
    """A class and those of its bases that are its own: up to the first that is public, and so swept by itself."""
    package = cls.__module__.partition(".")[0]
    for base in cls.__mro__:
        if base is not cls and getattr(sys.modules[package], base.__name__, None) is base:
            return
        if base.__module__.partition(".")[0] == package:
            yield base


def public_methods(*classes: type) -> set[str]:
    """Every public method and property of the classes, "Class.name", and their constructors."""
    kinds = FunctionType, property, classmethod, staticmethod
    return {
        f"{cls.__name__}.{name}"
        for cls in classes
        for base in own_bases(cls)
        for name, found in vars(base).items()
        if name == "__init__" or (not name.startswith("_") and isinstance(found, kinds))
    }
