"""Chunks that a thread makes ahead: when it works, when it rests, and that it goes away."""

import gc
import logging
import subprocess
import sys
import textwrap
import threading

import pytest

import vmm
from vmm.host import FailingDriver, Failure

CHUNK = 2 << 20
NAME = "vmm-prefetch"


class Watched:
    """A host driver that knows which thread made each create, and can stop the prefetching one before and after it."""

    def __init__(self, **options):
        self.api = vmm.HostDriver(**options)
        self.makers = []
        self.gate = threading.Event()
        self.exit = threading.Event()
        self.gate.set()
        self.exit.set()
        self.arrived = threading.Semaphore(0)
        self.before = lambda: None

    def __getattr__(self, name):
        return getattr(self.api, name)

    def cuMemCreate(self, *args):  # noqa: N802 - the driver's own name
        name = threading.current_thread().name
        self.makers.append(name)
        if name != NAME:
            return self.api.cuMemCreate(*args)
        self.arrived.release()
        assert self.gate.wait(30)
        self.before()
        made = self.api.cuMemCreate(*args)
        assert self.exit.wait(30)
        return made


@pytest.fixture
def watched():
    """A device of 8 chunks and its watched driver."""
    api = Watched(memory=8 * CHUNK, backing="none")
    with vmm.Device(driver=api) as device:
        yield device, api


def threads():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def test_a_taker_finds_its_chunks_made(watched):
    device, api = watched
    with vmm.ChunkSupply(device, prefetch=3 * CHUNK) as supply:
        assert supply.wait_prefetched(30)
        assert (supply.prefetch, supply.cached, supply.in_use) == (3 * CHUNK, 3 * CHUNK, 0)
        held = supply.take(3)
        assert supply.wait_prefetched(30)
        assert (supply.cached, supply.in_use) == (3 * CHUNK, 3 * CHUNK)
        held += supply.take(5)  # two more than lie ready
        assert len({chunk.handle for chunk in held}) == 8
        assert [api.makers.count(NAME), len(api.makers)] == [6, 8]
        supply.give(held)


def test_a_range_grows_from_what_was_made(watched):
    device, api = watched
    with vmm.ChunkSupply(device, prefetch=4 * CHUNK) as supply, vmm.GrowableRange(device, "1 GiB", supply=supply) as kv:
        assert supply.wait_prefetched(30)
        kv.grow(4 * CHUNK)
        assert set(api.makers) == {NAME}
        assert kv.committed == 4 * CHUNK


def test_the_recorder_sees_what_the_thread_does(rules):
    recorder = vmm.Recorder()
    with vmm.Device(driver=rules.driver.api, recorder=recorder) as device:
        recorder.clear()
        with vmm.ChunkSupply(device, prefetch=5 * CHUNK) as supply:
            assert supply.wait_prefetched(30)
        assert recorder.counts() == {"cuMemCreate": 5, "cuMemRelease": 5}


def test_what_lies_ready_counts_against_the_budget_once(watched):
    device, api = watched
    with vmm.ChunkSupply(device, budget=4 * CHUNK, prefetch=3 * CHUNK) as supply:
        held = []
        for ready in (3, 2, 1, 0):
            held += supply.take(1)
            assert supply.wait_prefetched(30)
            assert (supply.cached, supply.available) == (ready * CHUNK, ready * CHUNK)
            assert api.live().allocations == 4
        with pytest.raises(vmm.OutOfMemoryError, match="0 B left in the budget"):
            supply.take(1)
        supply.give(held)


def test_what_came_back_is_kept_instead_of_made_anew(watched):
    device, api = watched
    with vmm.ChunkSupply(device, prefetch=2 * CHUNK) as supply:
        held = supply.take(4)
        assert supply.wait_prefetched(30)
        held += supply.take(2)
        assert supply.wait_prefetched(30)
        made = len(api.makers)
        supply.trim()
        supply.give(held)  # room for two of the six
        assert supply.wait_prefetched(30)
        assert (supply.cached, len(api.makers)) == (2 * CHUNK, made)
        assert api.live().allocations == 2


def test_a_chunk_that_is_coming_is_waited_for_and_not_made_twice(watched):
    device, api = watched
    api.gate.clear()
    with vmm.ChunkSupply(device, budget=CHUNK, prefetch=CHUNK) as supply:
        assert api.arrived.acquire(timeout=30)
        taken = []
        taker = threading.Thread(target=lambda: taken.extend(supply.take(1)))
        taker.start()
        taker.join(0.05)
        assert taker.is_alive()
        api.gate.set()
        taker.join(30)
        assert (len(taken), api.makers, api.live().allocations) == (1, [NAME], 1)
        supply.give(taken)


def test_who_needs_no_more_than_lies_ready_never_waits(watched):
    device, api = watched
    with vmm.ChunkSupply(device, prefetch=2 * CHUNK) as supply:
        assert supply.wait_prefetched(30)
        while api.arrived.acquire(blocking=False):
            pass
        api.gate.clear()
        held = supply.take(1)
        assert api.arrived.acquire(timeout=30)  # the thread is in the driver now
        held += supply.take(1)
        assert not supply.wait_prefetched(0)
        supply.give(held)  # the one that is coming has a place
        assert supply.cached == CHUNK
        api.gate.set()
        assert supply.wait_prefetched(30)
        assert (supply.cached, api.live().allocations) == (2 * CHUNK, 2)


def test_a_chunk_that_fails_to_come_is_made_by_its_taker(failing):
    device, api = failing
    api.arm("cuMemCreate", 1)
    with vmm.ChunkSupply(device, prefetch=CHUNK) as supply:
        supply.give(supply.take(1))
        assert supply.wait_prefetched(30)
        assert (supply.cached, supply.prefetch_error) == (CHUNK, None)


def test_a_full_device_lets_the_thread_rest_until_something_comes_back(watched, caplog):
    device, api = watched
    with caplog.at_level(logging.INFO, "vmm"), vmm.ChunkSupply(device, prefetch=6 * CHUNK) as supply:
        held = supply.take(4)
        assert supply.wait_prefetched(30)
        assert (supply.cached, supply.in_use) == (4 * CHUNK, 4 * CHUNK)
        assert isinstance(supply.prefetch_error, vmm.OutOfMemoryError)
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("vmm", "INFO")
        assert "prefetch rests" in record.getMessage()
        made = len(api.makers)
        held += supply.take(3)  # what is ready serves, and the thread does not try again
        assert supply.wait_prefetched(30)
        assert (supply.cached, len(api.makers)) == (CHUNK, made)
        supply.give(held)
        assert supply.wait_prefetched(30)
        assert (supply.cached, supply.prefetch_error) == (6 * CHUNK, None)
        assert api.live().allocations == 6


def test_memory_that_comes_back_during_a_failure_is_not_missed(watched):
    device, api = watched
    with vmm.ChunkSupply(device, prefetch=2 * CHUNK) as supply:
        held = []

        def fail_while_one_comes_back():
            api.before = lambda: None
            api.fail(Failure("cuMemCreate"))
            supply.give([held.pop()])

        held += supply.take(3)
        assert supply.wait_prefetched(30)
        api.before = fail_while_one_comes_back
        held += supply.take(2)
        assert supply.wait_prefetched(30)
        assert (supply.cached, supply.prefetch_error) == (2 * CHUNK, None)
        supply.give(held)


def test_a_failure_of_another_kind_is_a_warning_and_no_takers_surprise(failing, caplog):
    device, api = failing
    api.arm("cuMemCreate", 2, code=1)
    with caplog.at_level(logging.INFO, "vmm"), vmm.ChunkSupply(device, prefetch=4 * CHUNK) as supply:
        assert supply.wait_prefetched(30)
        assert (supply.cached, type(supply.prefetch_error)) == (CHUNK, vmm.DriverError)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        held = supply.take(3)
        assert supply.wait_prefetched(30)
        assert (supply.cached, supply.prefetch_error) == (4 * CHUNK, None)  # a take that could create showed the way
        supply.give(held)


def test_what_lies_ready_never_stands_in_the_way_of_another_supply(watched):
    device, api = watched
    with vmm.ChunkSupply(device, prefetch=8 * CHUNK) as ready, vmm.ChunkSupply(device, 4 * CHUNK) as other:
        assert ready.wait_prefetched(30)
        assert device.memory_info().free == 0
        held = other.take(2)  # all there is
        assert (ready.cached, other.in_use) == (0, 8 * CHUNK)
        assert ready.wait_prefetched(30)
        assert api.live().allocations == 2  # and nothing is made again before memory comes back
        with pytest.raises(vmm.OutOfMemoryError):
            ready.take(1)
        other.give(held)
        ready.give(ready.take(1))
        assert ready.wait_prefetched(30)
        assert ready.cached == 8 * CHUNK


def test_a_chunk_that_is_coming_does_not_stand_in_the_way_either(watched):
    device, api = watched
    api.gate.clear()
    api.exit.clear()
    with vmm.ChunkSupply(device, prefetch=8 * CHUNK) as ready, vmm.ChunkSupply(device) as other:
        assert api.arrived.acquire(timeout=30)
        held = other.take(7)
        api.gate.set()
        while device.memory_info().free:  # until the driver has given the last chunk, which has not landed yet
            threading.Event().wait(0.001)
        timer = threading.Timer(0.05, api.exit.set)
        timer.start()
        held += other.take(1)
        timer.join()
        assert ready.wait_prefetched(30)
        assert (ready.cached, api.live().allocations) == (0, 8)
        other.give(held)


def test_a_trim_is_for_good_until_the_supply_is_used_again(watched):
    device, api = watched
    with vmm.ChunkSupply(device, prefetch=3 * CHUNK) as supply:
        assert supply.wait_prefetched(30)
        assert supply.trim() == 3 * CHUNK
        assert supply.wait_prefetched(30)
        with vmm.PhysicalMemory(device, 8 * CHUNK):
            assert (supply.cached, supply.prefetch_error) == (0, None)
        held = supply.take(1)
        assert supply.wait_prefetched(30)
        assert (supply.cached, api.live().allocations) == (3 * CHUNK, 4)
        supply.give(held)


def test_close_ends_the_thread_and_what_it_is_making(watched):
    device, api = watched
    api.gate.clear()
    supply = vmm.ChunkSupply(device, prefetch=3 * CHUNK)
    held = []
    assert api.arrived.acquire(timeout=30)
    timer = threading.Timer(0.05, api.gate.set)
    timer.start()
    supply.close()
    supply.close()
    timer.join()
    assert threads() == []
    assert api.live().allocations == 0
    assert (supply.wait_prefetched(30), supply.trim(), supply.cached) == (True, 0, 0)
    with pytest.raises(vmm.ClosedError):
        supply.take(1)
    supply.give(held)


def test_chunks_still_out_at_close_are_released_when_they_come_back(watched):
    device, api = watched
    supply = vmm.ChunkSupply(device, prefetch=3 * CHUNK)
    held = supply.take(2)
    supply.close()
    assert api.live().allocations == 2
    supply.give(held)
    assert (supply.cached, api.live().allocations) == (0, 0)


def test_the_thread_does_not_keep_a_dropped_supply(watched):
    device, api = watched
    supply = vmm.ChunkSupply(device, prefetch=2 * CHUNK)
    assert supply.wait_prefetched(30)
    with pytest.warns(ResourceWarning, match="2 cached chunks was never closed"):
        del supply
        gc.collect()
    assert threads() == []
    assert api.live().allocations == 0


def test_a_supply_may_be_collected_in_its_own_thread(watched):
    device, api = watched
    api.gate.clear()
    supply = vmm.ChunkSupply(device, prefetch=2 * CHUNK)
    supply.me = supply  # only the garbage collector finds it
    assert api.arrived.acquire(timeout=30)
    (thread,) = threads()
    gone = []
    api.before = lambda: gone.append(gc.collect())
    gc.disable()
    try:
        del supply
        with pytest.warns(ResourceWarning, match="0 cached chunks was never closed"):
            api.gate.set()
            thread.join(30)
    finally:
        gc.enable()
    assert gone and not thread.is_alive()
    assert api.live().allocations == 0


def test_a_supply_may_be_collected_inside_a_call_that_its_thread_waits_for(watched):
    device, api = watched
    supply = vmm.ChunkSupply(device, prefetch=2 * CHUNK)
    (thread,) = threads()
    held = supply.take(2)
    assert supply.wait_prefetched(30)
    supply.give(held[:1])
    while api.arrived.acquire(blocking=False):
        pass
    with api._lock:  # as in the middle of a call
        supply.trim()
        supply.give(held[1:])
        assert api.arrived.acquire(timeout=30)
        with pytest.warns(ResourceWarning, match="1 cached chunks was never closed"):
            del supply
            gc.collect()
        assert thread.is_alive()
    thread.join(30)
    assert not thread.is_alive()
    assert api.live().allocations == 0


@pytest.mark.parametrize("prefetch", [None, CHUNK])
def test_a_range_may_be_collected_while_its_supply_is_busy(watched, prefetch):
    """The collector runs where it likes, here in the middle of a create: the range gives to a supply that is taking."""
    device, api = watched
    with vmm.ChunkSupply(device, cache=8 * CHUNK, prefetch=prefetch) as supply:
        memory = vmm.GrowableRange(device, 4 * CHUNK, supply=supply)
        memory.grow(3 * CHUNK)
        memory.me = memory  # only the garbage collector finds it
        assert supply.wait_prefetched(30)
        create = api.cuMemCreate
        api.cuMemCreate = lambda *args: (gc.collect(), create(*args))[1]
        del memory
        with pytest.warns(ResourceWarning, match="never closed"):
            held = supply.take(4)
        assert supply.wait_prefetched(30)
        assert (supply.in_use, supply.cached, len({chunk.handle for chunk in held})) == (4 * CHUNK, 3 * CHUNK, 4)
        del api.cuMemCreate
        supply.give(held)


@pytest.mark.parametrize("wrong", [4, "1 MiB", CHUNK - 1])
def test_a_prefetch_of_less_than_a_chunk_is_refused(device, wrong):
    with pytest.raises(vmm.SizeError, match="less than one chunk of 2 MiB; it is in bytes: 2097152 for each chunk"):
        vmm.ChunkSupply(device, prefetch=wrong)
    assert threads() == []


def test_without_prefetch_there_is_no_thread(device):
    with vmm.ChunkSupply(device, prefetch=0) as supply:
        assert (threads(), supply.prefetch, supply.prefetch_error, supply.wait_prefetched()) == ([], 0, None, True)


def test_a_failure_half_way_through_a_take_keeps_what_lay_ready(failing):
    device, api = failing
    with vmm.ChunkSupply(device, prefetch=2 * CHUNK) as supply:
        assert supply.wait_prefetched(30)
        for at in (1, 2):
            api.arm("cuMemCreate", at)
            with pytest.raises(vmm.OutOfMemoryError, match=f"chunk {at} of 2 new ones"):
                supply.take(4)
            assert (supply.in_use, supply.cached, api.live().allocations) == (0, 2 * CHUNK, 2)


def test_a_release_that_is_refused_does_not_lose_the_others(failing):
    device, api = failing
    with vmm.ChunkSupply(device) as supply:
        held = supply.take(4)
        api.arm("cuMemRelease", 2, code=1)
        with pytest.raises(vmm.DriverError, match="cuMemRelease"):
            supply.give(held)
        assert (supply.in_use, supply.cached) == (0, 0)
        (left,) = api.picture().allocations
        api.cuMemRelease(left[0])


# -- whole processes ------------------------------------------------------------------------------------------


def run(script, code=0):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done


FORK = """
    import os, sys, threading, warnings
    import vmm
    warnings.simplefilter("ignore", DeprecationWarning)
    with vmm.Device(driver=vmm.HostDriver(memory="1 TiB", backing="none")) as device:
        supply = vmm.ChunkSupply(device, prefetch="4 MiB")
        for _ in range(10):
            held = supply.take(2)  # the thread is at work when the process forks
            child = os.fork()
            if child == 0:
                assert threading.active_count() == 1
                for count in (1, 3):
                    try:
                        supply.take(count)
                    except vmm.DriverError as error:
                        assert error.code == 3
                assert supply.wait_prefetched(10)
                supply.give(held)
                supply.close()
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            supply.give(held)
        assert supply.wait_prefetched(10)
        print(supply.cached, supply.prefetch_error)
        supply.close()
        print(device.driver.api.live().allocations)
"""


def test_a_forked_child_has_no_thread_and_no_lock_that_is_held():
    assert run(FORK).stdout.split() == [str(2 * CHUNK), "None", "0"]


def test_a_process_ends_although_its_supply_was_never_closed():
    script = """
        import vmm
        device = vmm.Device(driver=vmm.HostDriver(memory="1 TiB", backing="none"))
        supply = vmm.ChunkSupply(device, prefetch="4 MiB")
        supply.wait_prefetched()
        print(supply.cached)
    """
    done = run(script)
    assert done.stdout.split() == [str(2 * CHUNK)]
    assert "Error" not in done.stderr


def test_the_host_driver_serves_the_thread_beside_others(device):
    """Its calls are whole: what threads make and unmake at once adds up in the end."""
    with vmm.ChunkSupply(device, "2 MiB", prefetch="16 MiB") as supply:

        def work():
            with vmm.GrowableRange(device, "64 MiB", supply=supply) as memory:
                for _ in range(10):
                    memory.grow("6 MiB")
                    memory.array("uint8", 6 << 20)[:] = 7
                    memory.shrink("6 MiB")

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert supply.in_use == 0
        assert supply.wait_prefetched(30)
        assert device.driver.api.live().allocations == supply.cached // CHUNK
    assert device.driver.api.committed_bytes() == 0


def test_the_failing_driver_spares_nothing_of_the_thread():
    """The thread's creates are counted like any other: the third fails wherever it is made."""
    api = FailingDriver(vmm.HostDriver(memory="64 MiB", backing="none"))
    with vmm.Device(driver=api) as device:
        api.arm("cuMemCreate", 3)
        with vmm.ChunkSupply(device, prefetch=8 * CHUNK) as supply:
            assert supply.wait_prefetched(30)
            assert (supply.cached, api.failed) == (2 * CHUNK, "cuMemCreate")
