"""Pieces of one chunk that are given back after different work: the chunk waits for all of it."""

import pytest

import vmm
from vmm.driver import EventHandle
from vmm.last_work import LastWork

STREAMS = ("deferred",)
KIB = 1 << 10


def collect_until_all_is_done(device, memory):
    """Looks that let the named work run, and then all other work: it faults where its memory went too early."""
    for _ in range(3):
        memory.collect()
    device.synchronize()
    assert memory.committed == 0


def test_one_stream_is_all_that_is_waited_for():
    work = LastWork()
    for _ in range(3):
        work.note([1, 2], 7)
    assert work.before([1, 2], 7) == 7
    assert work.before([1, 3], [7]) == [7]


@pytest.mark.parametrize("first", [None, 8, [7, 8]])
def test_another_stream_before_means_everything(first):
    work = LastWork()
    work.note([1], first)
    work.note([1, 2], 7)
    assert work.before([1, 2], 7) is None
    assert work.before([2], 7) == (7 if first is not None else None)  # nobody marks parts before a stream is named


def test_memory_that_went_and_came_back_begins_anew():
    work = LastWork()
    work.note([1], 8)
    work.note([1], 7)
    work.forget([1])
    work.note([1], 7)
    assert work.before([1], 7) == 7


def test_an_event_is_never_the_same_again():
    event = EventHandle(5)
    work = LastWork()
    work.note([1], event)
    work.note([1], event)
    assert work.before([1], event) is None


def test_a_chunk_that_comes_back_while_it_retires_still_waits_for_the_old_work(device, streams, monkeypatch):
    """Given up after one stream, taken again, given up after something that is done: the old work may still write."""
    with device.current():
        reached = int(device.driver.api.cuEventCreate(0)[1])
    with vmm.GrowableRange(device, "32 MiB") as kv, monkeypatch.context() as patch:
        patch.setattr(device, "finished", lambda event: event == reached)  # the work takes long, as on a busy GPU
        kv.commit([0])
        with device.current():
            device.driver.fill_async(kv.base, 1, 64, streams[0])
        kv.decommit([0], after=streams[0])
        kv.commit([0])
        kv.decommit([0], after=EventHandle(reached))
        assert kv.is_retiring(0)
        patch.undo()
        collect_until_all_is_done(device, kv)
    with device.current():
        device.driver.api.cuEventDestroy(reached)
