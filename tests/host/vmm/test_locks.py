"""Locks, the garbage collector, forks, lost contexts, and owners that are closed in any order."""

import gc
import itertools
import random
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import pytest

import vmm
from vmm.chunk_map import ChunkMap
from vmm.host import FailingDriver, HostDriver

KINDS = ("eager", "deferred")
UNIT = 64 << 10
PATIENCE = 30  # seconds that nothing here should take


def opened(streams, **options):
    return vmm.Device(driver=HostDriver(memory=64 * UNIT, granularity=UNIT, streams=streams, **options))


def fill(memory, chunk, byte=7, stream=0):
    with memory.device.current():
        memory.device.driver.fill_async(memory.base + chunk * UNIT, byte, UNIT, stream)


def together(*targets):
    """Run functions in threads of their own; what one raises, this raises."""
    errors = []

    def guarded(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"
    if errors:
        raise errors[0]


# -- dropped ranges ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_range_that_is_dropped_under_a_lock_waits_for_nobody():
    """One thread holds the supply's lock and loses a range; another collects, and needs the supply to go on."""
    with opened("deferred") as device, vmm.ChunkSupply(device) as supply:
        lost = [vmm.GrowableRange(device, 8 * UNIT, supply=supply)]
        lost[0].commit([0, 1])
        collecting, dropped = threading.Event(), threading.Event()

        def drop():
            with supply._stock.lock:
                collecting.wait(PATIENCE)
                lost.clear()
                dropped.set()

        def collect():
            with device.retirement.alone():
                collecting.set()
                dropped.wait(PATIENCE)
                supply.retire(0)

        together(drop, collect)
        assert device.driver.api.live().mappings == 0
        assert supply.in_use == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_range_that_is_dropped_while_it_is_collected_goes_afterwards(monkeypatch):
    whole, lost = ChunkMap.unmap, []

    def unmap(self, mappings):
        lost.clear()
        assert self.device.driver.api.live().mappings == 3
        whole(self, mappings)

    with opened("deferred") as device:
        lost.append(vmm.GrowableRange(device, 8 * UNIT))
        lost[0].commit([0, 1, 2])
        fill(lost[0], 1)
        lost[0].decommit([1, 2])
        monkeypatch.setattr(ChunkMap, "unmap", unmap)
        device.retirement.collect(wait=True)
        live = device.driver.api.live()
        assert (live.mappings, live.allocations, live.events, live.reservations) == (0, 0, 0, 0)


def test_what_ends_a_dropped_range_does_not_fail_another_operation(caplog):
    with opened("eager") as device, vmm.GrowableRange(device, 8 * UNIT) as kv:

        def end():
            raise ZeroDivisionError

        kv.commit([0])
        with device.retirement.alone():
            device.retirement.drop(end)
        assert "a dropped range could not be ended" in caplog.text
        with pytest.raises(ZeroDivisionError):
            device.retirement.drop(end)


# -- fences -----------------------------------------------------------------------------------------------------


def test_a_fence_may_be_closed_while_another_thread_waits_for_it(monkeypatch):
    with opened("deferred") as device:
        fence = device.fence()
        waiting, closed = threading.Event(), threading.Event()
        whole = device.driver.event_synchronize

        def slowly(event):
            waiting.set()
            assert closed.wait(PATIENCE)
            whole(event)  # refused if it was destroyed meanwhile

        monkeypatch.setattr(device.driver, "event_synchronize", slowly)

        def close():
            waiting.wait(PATIENCE)
            fence.close()
            closed.set()

        together(fence.wait, close)
        assert device.driver.api.live().events == 0
        assert fence.done


def without_record_all(device, monkeypatch):
    """A driver from before CUDA 12.5."""

    def missing():
        raise vmm.DriverMissingError("cuCtxRecordEvent is not there")

    monkeypatch.setattr(device, "record_all", missing)


def test_a_wait_that_began_before_a_fence_does_not_open_it(monkeypatch):
    """Another thread's wait for the device has begun; what is queued after that it does not wait for."""
    with opened("deferred") as device:
        without_record_all(device, monkeypatch)
        whole, made = device.driver.synchronize, []

        def begun():
            made.append(device.fence())
            whole()

        with monkeypatch.context() as patch:
            patch.setattr(device.driver, "synchronize", begun)
            device.synchronize()
        assert not made[0].done
        device.synchronize()
        assert made[0].done
        late = device.fence()
        assert not late.done
        late.wait()
        assert late.done


def test_an_old_driver_waits_in_one_thread_while_another_closes(monkeypatch):
    """A wait for a fence is a wait for the device there, which looks at everything that retires."""
    with opened("deferred") as device:
        without_record_all(device, monkeypatch)
        kv, other = (vmm.GrowableRange(device, 8 * UNIT) for _ in range(2))
        for one in (kv, other):
            one.commit([0, 1])
            one.decommit([0])
        whole, inside, closing = device.driver.synchronize, threading.Event(), threading.Event()

        def slowly():
            inside.set()
            closing.wait(0.2)
            whole()

        monkeypatch.setattr(device.driver, "synchronize", slowly)

        def close():
            inside.wait(PATIENCE)
            closing.set()
            kv.close()

        together(lambda: device.retirement.collect_oldest(), close)
        other.close()
        assert device.driver.api.live().mappings == 0


# -- launches ---------------------------------------------------------------------------------------------------


class Launches:
    """A driver's functions without the software one's ``submit``, as a GPU's are."""

    def __init__(self, api):
        self.api = api

    def __getattr__(self, name):
        if name in ("submit", "explain"):
            raise AttributeError(name)
        return getattr(self.api, name)


def test_launches_of_several_threads_keep_what_they_need_until_they_are_done():
    """No event is destroyed twice or left, and nothing is let go before its work has run."""
    api = HostDriver(memory=16 * UNIT, granularity=UNIT, streams="deferred")
    with vmm.Device(driver=Launches(api)) as device, vmm.GrowableRange(device, 4 * UNIT) as kv:
        kv.commit([0])
        kept = [set() for _ in range(4)]

        class Token:
            def __init__(self, number):
                self.number = number
                kept[number].add(self)

        def launch(number):
            for _ in range(200):
                token = Token(number)
                device.submit(0, lambda: device.driver.fill_async(kv.base, 1, 16), token)

        together(*(lambda number=number: launch(number) for number in range(4)))
        device.synchronize()
        assert not device._in_flight
        assert api.live().events == 0
        assert [len(tokens) for tokens in kept] == [200] * 4


@pytest.mark.parametrize("call", ["cuEventRecord", "cuEventQuery"])
def test_a_launch_whose_event_fails_keeps_what_it_needs_until_the_device_is_done(call):
    api = FailingDriver(HostDriver(memory=16 * UNIT, granularity=UNIT, streams="deferred"))
    with vmm.Device(driver=Launches(api)) as device, vmm.GrowableRange(device, 4 * UNIT) as kv:
        kv.commit([0])
        gone = []

        class Token:
            def __del__(self):
                gone.append(api.live().pending)

        api.arm(call, 1, 1)
        device.submit(0, lambda: device.driver.fill_async(kv.base, 1, 16), Token())
        assert api.failed == call
        assert gone == []
        device.synchronize()
        assert gone == [0]


# -- several threads --------------------------------------------------------------------------------------------


class Worker:
    """A range of its own on a supply that it shares; some are dropped without a close."""

    def __init__(self, device, supply, seed, steps):
        self.device, self.supply, self.steps = device, supply, steps
        self.draw = random.Random(seed)
        self.mark = seed % 80 + 1
        self.made = 0

    def __call__(self):
        with self.device.current():
            self.stream = int(self.device.driver.api.cuStreamCreate(1)[1])
        try:
            while self.steps > 0:
                self.life()
        finally:
            with self.device.current():
                self.device.driver.api.cuStreamDestroy(self.stream)

    def life(self):
        kv = vmm.GrowableRange(self.device, 16 * UNIT, supply=self.supply, name=f"of {self.mark}")
        for _ in range(self.draw.randint(5, 60)):
            self.steps -= 1
            try:
                self.step(kv)
            except vmm.OutOfMemoryError:
                kv.decommit(kv.committed_chunks(), after=self.stream)
        if self.draw.random() < 0.8:
            kv.close()
        self.made += 1

    def step(self, kv):
        held, turn = kv.committed_chunks(), self.draw.random()
        if turn < 0.4:
            fresh = [chunk for chunk in self.draw.sample(range(16), 4) if chunk not in held]
            kv.commit(fresh)
            for chunk in fresh:
                fill(kv, chunk, self.mark, self.stream)
        elif turn < 0.8 and held:
            leaving = self.draw.sample(held, min(3, len(held)))
            if self.draw.random() < 0.3:
                self.verify(kv, leaving)
            kv.decommit(leaving, after=self.draw.choice([None, self.stream]))
        elif turn < 0.9:
            kv.collect(wait=self.draw.random() < 0.3)
        elif held:
            kv.remap(self.draw.choice(held))

    def verify(self, kv, chunks):
        with self.device.current():
            self.device.driver.stream_synchronize(self.stream)
        for chunk in chunks:
            assert (kv.array("uint8", UNIT, chunk * UNIT) == self.mark).all()


def work_together(streams, steps, *, threads=4, seed=0):
    with opened(streams) as device, vmm.ChunkSupply(device, budget=40 * UNIT, cache=8 * UNIT) as supply:
        workers = [Worker(device, supply, seed * threads + number, steps) for number in range(threads)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            together(*workers)
            gc.collect()
        device.synchronize()
        assert supply.in_use == 0
        assert len(device.retirement) == 0
        live = device.driver.api.live()
        assert (live.mappings, live.reservations, live.events) == (0, 0, 0)
        assert live.allocations == supply.cached // UNIT


@pytest.fixture
def hasty():
    """Threads change turns often, and the garbage collector runs anywhere."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-5)
    gc.set_threshold(50, 5, 5)
    yield
    sys.setswitchinterval(before)
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize("streams", KINDS)
def test_threads_with_ranges_of_their_own_share_a_supply(hasty, streams):  # noqa: ARG001 - a setting
    work_together(streams, 400)


@pytest.mark.exhaustive
@pytest.mark.parametrize("streams", KINDS)
@pytest.mark.parametrize("seed", range(1, 4))
def test_threads_share_a_supply_for_long(hasty, streams, seed, monkeypatch):  # noqa: ARG001 - a setting
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", 300)
    work_together(streams, 5_000, seed=seed)


# -- the order of closing, lost contexts, forks -----------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(["device", "supply", "range"])))
@pytest.mark.parametrize("streams", KINDS)
@pytest.mark.parametrize("lost", [False, True])
def test_owners_are_closed_in_any_order(order, streams, lost):
    """While chunks retire, and with a context that a fault has lost."""
    device = opened(streams)
    api = device.driver.api
    supply = vmm.ChunkSupply(device, cache=4 * UNIT)
    kv = vmm.GrowableRange(device, 16 * UNIT, supply=supply)
    kv.commit([0, 1, 2, 5])
    kv.zero_window(8 * UNIT, 10 * UNIT)
    fill(kv, 1)
    kv.decommit([1, 5])
    if lost:
        lose(device)
    owners = {"device": device, "supply": supply, "range": kv}
    for name in order:
        try:
            owners[name].close()
        except vmm.DriverError as error:
            assert (lost, error.code) == (True, 700)
            owners[name].close()
    assert api.live().total == 0


def lose(device):
    """Queue work that faults: its context is of no use from the moment that it runs."""

    def fault():
        raise device.fault(0x1000, True)

    try:
        device.submit(0, fault, None)
    except vmm.DriverError:
        assert device.driver.api.live().pending == 0  # eager streams raise at once


OPERATIONS = {
    "commit": lambda kv: kv.commit([6, 7]),
    "commit again": lambda kv: kv.commit([1]),
    "decommit": lambda kv: kv.decommit([2]),
    "decommit after": lambda kv: kv.decommit([2], after=0),
    "collect": lambda kv: kv.collect(),
    "collect and wait": lambda kv: kv.collect(wait=True),
    "protect": lambda kv: kv.protect(0, UNIT, "r"),
    "remap": lambda kv: kv.remap(0),
    "window": lambda kv: kv.zero_window(4 * UNIT, 6 * UNIT),
    "grow": lambda kv: kv.grow(2 * UNIT),
    "array": lambda kv: kv.array("uint8", 16),
    "close": lambda kv: kv.close(),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("streams", KINDS)
def test_a_lost_context_is_raised_once_and_everything_can_be_given_back(name, streams):
    device = opened(streams)
    api, kv = device.driver.api, vmm.GrowableRange(device, 16 * UNIT)
    kv.commit([0, 1, 2])
    kv.decommit([1])
    lose(device)
    for _ in range(2):
        before = (kv.closed, [] if kv.closed else kv.committed_chunks())
        try:
            OPERATIONS[name](kv)
        except vmm.DriverError as error:
            assert error.code == 700
            assert (kv.closed, [] if kv.closed else kv.committed_chunks()) == before
        except vmm.StateError:
            break  # it was done the first time
    if not kv.closed:
        assert told(device)
        if kv.size:
            kv.shrink(kv.size)
        kv.decommit(kv.committed_chunks())
        kv.close()
    device.close()
    assert api.live().total == 0


def told(device):
    """Let the fault be raised to somebody; afterwards memory is given up without an error."""
    for _ in range(2):
        try:
            device.synchronize()
        except vmm.DriverError as error:
            assert error.code == 700
        else:
            return True
    return False


FORK = """
    import os, signal, threading, warnings
    import vmm
    from vmm.host import HostDriver
    warnings.simplefilter("ignore", DeprecationWarning)
    device = vmm.Device(driver=HostDriver(memory="1 MiB", granularity="64 KiB", streams="deferred"))
    supply = vmm.ChunkSupply(device)
    kv = vmm.GrowableRange(device, "1 MiB", supply=supply)
    kv.commit([0, 1])
    with device.current():
        device.driver.fill_async(kv.base, 1, 16)
    kv.decommit([1])
    held, leave = threading.Event(), threading.Event()

    def hold():
        with device.retirement.alone(), supply._stock.lock:
            held.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)
        kv.close()
        supply.close()
        device.close()
        os._exit(7)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    kv.close(), supply.close(), device.close()
    assert device.driver.api.live().total == 0
"""


def test_a_forked_child_closes_what_it_has_although_a_thread_held_the_locks():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_exporter_that_is_dropped_inside_a_call_does_not_wait_for_its_own_threads():
    """One of them waits for the lock of the software driver that this call holds."""
    with opened("eager") as device, vmm.ChunkSupply(device, exportable=True) as supply:
        kv = vmm.GrowableRange(device, 8 * UNIT, supply=supply)
        kv.commit([0])
        exporters = [vmm.sharing.Exporter(kv)]
        api, path = device.driver.api, exporters[0].path
        with opened("eager") as elsewhere:

            def attach():
                with pytest.raises(vmm.SharingError):
                    vmm.sharing.attach(elsewhere, path, timeout=5)

            def drop():
                with api._lock:
                    time.sleep(0.3)  # the other one has come to the export
                    exporters.clear()

            together(drop, attach)
        kv.close()
        wait_until(lambda: api.live().allocations == 0)


def wait_until(holds):
    for _ in range(PATIENCE * 20):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come to hold")
