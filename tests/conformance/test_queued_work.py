"""Queued work that runs late: order within and across streams, what waits for what, and what is too late."""

import ctypes

import pytest
from cuda.bindings import driver as cuda

NOT_READY, ILLEGAL_ADDRESS = 600, 700


class Log:
    """Host functions that write down when they ran."""

    def __init__(self, lab):
        self.lab, self.seen, self._kept = lab, [], []

    def queue(self, stream, word):
        """Queue one; it keeps its C function alive."""
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _data: self.seen.append(word))
        holder = ctypes.c_void_p(ctypes.cast(function, ctypes.c_void_p).value)
        self._kept.append((function, holder))
        direct = cuda.CUhostFn(_ptr=holder.value)
        wrapped = direct if int(direct) == holder.value else cuda.CUhostFn(_ptr=ctypes.addressof(holder))
        self.lab.ok(self.lab.api.cuLaunchHostFunc(stream, wrapped, 0))


@pytest.fixture
def log(late_lab):
    return Log(late_lab)


@pytest.fixture
def streams(late_lab):
    """Three streams: two that keep order with the default stream, and one that does not."""
    lab = late_lab
    made = [int(lab.ok(lab.api.cuStreamCreate(flags))) for flags in (0, 0, 1)]
    yield made
    for stream in made:
        lab.ok(lab.api.cuStreamDestroy(stream))


@pytest.fixture
def event(late_lab):
    lab = late_lab
    made = int(lab.ok(lab.api.cuEventCreate(0)))
    yield made
    lab.ok(lab.api.cuEventDestroy(made))


def is_host(lab):
    """Whether work is certain to wait; on a GPU it may have run."""
    return lab.backing != "device"


@pytest.mark.row("2b cuLaunchHostFunc: in the stream's order")
def test_work_runs_in_the_order_of_its_stream(late_lab, log, streams):
    for word in "abc":
        log.queue(streams[0], word)
    if is_host(late_lab):
        assert log.seen == []
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[0]))
    assert log.seen == ["a", "b", "c"]


@pytest.mark.row("2b cuStreamSynchronize: one stream's work")
@pytest.mark.host_only("a GPU may run the other stream's work too")
def test_waiting_for_one_stream_runs_no_other(late_lab, log, streams):
    log.queue(streams[0], "a")
    log.queue(streams[1], "b")
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[1]))
    assert log.seen == ["b"]
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[0]))
    assert log.seen == ["b", "a"]


@pytest.mark.row("2b cuCtxSynchronize: all work of the context")
def test_waiting_for_the_context_runs_everything(late_lab, log, streams):
    for stream, word in zip([*streams, 0, 2], "abcde", strict=True):
        log.queue(stream, word)
    late_lab.ok(late_lab.api.cuCtxSynchronize())
    assert sorted(log.seen) == list("abcde")


@pytest.mark.row("2b default stream: after the work of blocking streams")
@pytest.mark.parametrize("legacy", [0, 1])
def test_the_legacy_stream_comes_after_blocking_streams(late_lab, log, streams, legacy):
    log.queue(streams[0], "before")
    log.queue(legacy, "default")
    late_lab.ok(late_lab.api.cuStreamSynchronize(legacy))
    assert log.seen == ["before", "default"]


@pytest.mark.row("2b default stream: before later work of blocking streams")
def test_blocking_streams_come_after_the_legacy_stream(late_lab, log, streams):
    log.queue(0, "default")
    log.queue(streams[1], "after")
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[1]))
    assert log.seen == ["default", "after"]


@pytest.mark.row("2b default stream: not with non-blocking streams")
@pytest.mark.host_only("a GPU may run the other stream's work too")
def test_a_non_blocking_stream_keeps_no_order_with_the_legacy_stream(late_lab, log, streams):
    log.queue(0, "default")
    log.queue(streams[2], "free")
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[2]))
    assert log.seen == ["free"]
    log.queue(streams[2], "more")
    late_lab.ok(late_lab.api.cuStreamSynchronize(0))
    assert log.seen == ["free", "default"]
    late_lab.ok(late_lab.api.cuCtxSynchronize())


@pytest.mark.row("2b 2 is the per-thread default stream, which is a blocking one")
def test_the_threads_own_stream_keeps_order_with_the_legacy_stream(late_lab, log):
    log.queue(2, "own")
    log.queue(0, "default")
    log.queue(2, "again")
    late_lab.ok(late_lab.api.cuStreamSynchronize(2))
    assert log.seen == ["own", "default", "again"]


@pytest.mark.row("2b cuStreamQuery: of pending work 600")
@pytest.mark.host_only("a GPU may have run it")
def test_a_query_of_pending_work_is_not_ready_once(late_lab, log, streams):
    log.queue(streams[0], "a")
    assert int(late_lab.api.cuStreamQuery(streams[0])[0]) == NOT_READY
    assert int(late_lab.api.cuStreamQuery(streams[0])[0]) == 0
    assert log.seen == ["a"]


@pytest.mark.row("2b cuEventQuery: of pending work 600")
@pytest.mark.host_only("a GPU may have run it")
def test_an_event_is_reached_when_its_work_has_run(late_lab, log, streams, event):
    log.queue(streams[0], "before")
    late_lab.ok(late_lab.api.cuEventRecord(event, streams[0]))
    log.queue(streams[0], "after")
    assert int(late_lab.api.cuEventQuery(event)[0]) == NOT_READY
    assert int(late_lab.api.cuEventQuery(event)[0]) == 0
    assert log.seen == ["before"]
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[0]))


@pytest.mark.row("2b cuEventSynchronize")
def test_waiting_for_an_event_runs_what_came_before(late_lab, log, streams, event):
    log.queue(streams[0], "before")
    late_lab.ok(late_lab.api.cuEventRecord(event, streams[0]))
    late_lab.ok(late_lab.api.cuEventSynchronize(event))
    assert log.seen == ["before"]
    assert int(late_lab.api.cuEventQuery(event)[0]) == 0


@pytest.mark.row("2b cuEventElapsedTime: before completion 600")
@pytest.mark.host_only("a GPU may have run it")
def test_time_is_known_after_the_work(late_lab, log, streams, event):
    lab = late_lab
    start = int(lab.ok(lab.api.cuEventCreate(0)))
    lab.ok(lab.api.cuEventRecord(start, streams[0]))
    log.queue(streams[0], "between")
    lab.ok(lab.api.cuEventRecord(event, streams[0]))
    lab.assert_refused(NOT_READY, lab.api.cuEventElapsedTime, start, event)
    lab.ok(lab.api.cuEventSynchronize(event))
    assert lab.ok(lab.api.cuEventElapsedTime(start, event)) >= 0
    lab.ok(lab.api.cuEventDestroy(start))


@pytest.mark.row("2b cuStreamWaitEvent")
def test_a_stream_waits_for_another_by_an_event(late_lab, log, streams, event):
    log.queue(streams[0], "first")
    late_lab.ok(late_lab.api.cuEventRecord(event, streams[0]))
    late_lab.ok(late_lab.api.cuStreamWaitEvent(streams[2], event, 0))
    log.queue(streams[2], "second")
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[2]))
    assert log.seen == ["first", "second"]


@pytest.mark.row("2b record again moves the event; a wait keeps what it was recorded as")
def test_a_wait_is_for_the_event_as_it_was(late_lab, log, streams, event):
    lab = late_lab
    log.queue(streams[0], "first")
    lab.ok(lab.api.cuEventRecord(event, streams[0]))
    lab.ok(lab.api.cuStreamWaitEvent(streams[2], event, 0))
    log.queue(streams[0], "not waited for")
    lab.ok(lab.api.cuEventRecord(event, streams[0]))
    log.queue(streams[2], "second")
    lab.ok(lab.api.cuStreamSynchronize(streams[2]))
    if is_host(lab):
        assert log.seen == ["first", "second"]
    lab.ok(lab.api.cuEventSynchronize(event))
    assert "not waited for" in log.seen


@pytest.mark.row("2b cuStreamDestroy: pending work finishes")
def test_work_of_a_destroyed_stream_still_runs(late_lab, log):
    lab = late_lab
    stream = int(lab.ok(lab.api.cuStreamCreate(0)))
    log.queue(stream, "left behind")
    lab.ok(lab.api.cuStreamDestroy(stream))
    lab.ok(lab.api.cuCtxSynchronize())
    assert log.seen == ["left behind"]


@pytest.mark.row("2b a synchronous copy to the host waits for blocking streams")
def test_a_copy_to_the_host_waits(late_lab, log, streams):
    lab = late_lab
    base = lab.mapped(1)
    log.queue(streams[0], "blocking")
    log.queue(streams[2], "free")
    lab.ok(lab.api.cuMemcpyDtoH(bytearray(4), base, 4))
    assert log.seen == ["blocking"] or (not is_host(lab) and "blocking" in log.seen)
    lab.ok(lab.api.cuCtxSynchronize())


@pytest.mark.row("2b cuMemcpyDtoD and cuMemset do not wait")
@pytest.mark.host_only("a GPU may have run it")
def test_copies_and_fills_within_the_device_do_not_wait(late_lab, log, streams):
    lab = late_lab
    base = lab.mapped(2)
    log.queue(streams[0], "a")
    lab.ok(lab.api.cuMemcpyDtoD(base, base + lab.unit, 4))
    lab.ok(lab.api.cuMemsetD8(base, 1, 4))
    assert log.seen == []
    lab.ok(lab.api.cuCtxSynchronize())
    assert log.seen == ["a"]


@pytest.mark.row("2b cuMemFree waits for the device")
def test_freeing_plain_memory_waits(late_lab, log, streams):
    lab = late_lab
    address = int(lab.ok(lab.api.cuMemAlloc(4096)))
    lab.ok(lab.api.cuMemsetD8Async(address, 1, 4096, streams[0]))
    log.queue(streams[0], "ran")
    lab.ok(lab.api.cuMemFree(address))
    assert log.seen == ["ran"]
    lab.ok(lab.api.cuCtxSynchronize())


@pytest.mark.row("4 cuMemUnmap does not synchronise")
@pytest.mark.parametrize("call", ["cuMemUnmap", "cuMemSetAccess", "cuMemMap", "cuMemCreate", "cuMemRelease"])
@pytest.mark.host_only("a GPU may have run it")
def test_virtual_memory_calls_do_not_wait(late_lab, log, streams, call):
    lab = late_lab
    base = lab.mapped(1, spare=1)
    log.queue(streams[0], "a")
    other = lab.create()
    {
        "cuMemUnmap": lambda: lab.unmap(base),
        "cuMemSetAccess": lambda: lab.allow(base),
        "cuMemMap": lambda: lab.map(base + lab.unit, other),
        "cuMemCreate": lab.create,
        "cuMemRelease": lambda: lab.release(other),
    }[call]()
    assert log.seen == []
    lab.ok(lab.api.cuCtxSynchronize())


@pytest.mark.row("2b cuMemcpyHtoDAsync: bytes of pageable memory are read at the call")
def test_a_host_buffer_may_be_used_again_after_the_call(bytes_lab):
    lab = bytes_lab
    base, buffer = lab.mapped(1), bytearray(b"before")
    lab.ok(lab.api.cuMemcpyHtoDAsync(base, buffer, 6, 0))
    buffer[:] = b"after!"
    assert lab.read(base, 6) == b"before"


@pytest.mark.row("2b cuMemcpyDtoHAsync: into pageable memory it is done at the return")
def test_a_copy_into_pageable_memory_is_waited_for(bytes_lab):
    lab = bytes_lab
    base, found = lab.mapped(1), bytearray(4)
    lab.ok(lab.api.cuMemsetD8Async(base, 7, 4, 0))
    lab.ok(lab.api.cuMemcpyDtoHAsync(found, base, 4, 0))
    assert found == b"\7\7\7\7"


@pytest.mark.row("2b record again moves the event, also out of a stream that runs later")
@pytest.mark.host_only("a GPU may have run it")
def test_a_place_that_an_event_left_does_not_change_its_time(late_lab, streams, event):
    lab = late_lab
    start = int(lab.ok(lab.api.cuEventCreate(0)))
    lab.ok(lab.api.cuEventRecord(start, streams[1]))
    lab.ok(lab.api.cuEventRecord(event, streams[0]))
    lab.ok(lab.api.cuEventRecord(event, streams[1]))
    lab.ok(lab.api.cuStreamSynchronize(streams[1]))
    seen = lab.ok(lab.api.cuEventElapsedTime(start, event))
    lab.ok(lab.api.cuStreamSynchronize(streams[0]))
    assert lab.ok(lab.api.cuEventElapsedTime(start, event)) == seen
    lab.ok(lab.api.cuEventDestroy(start))


@pytest.mark.row("2b the last release of a primary context: its work has run")
@pytest.mark.host_only("other libraries may hold the primary context of a real device")
def test_the_last_release_runs_what_is_queued(late_lab, log):
    lab = late_lab
    log.queue(0, "a")
    lab.ok(lab.api.cuCtxPopCurrent())
    lab.ok(lab.api.cuDevicePrimaryCtxRelease(0))
    assert log.seen == ["a"]
    lab.ok(lab.api.cuDevicePrimaryCtxRetain(0))
    lab.ok(lab.api.cuCtxPushCurrent(lab.context))


@pytest.mark.row("2b cuMemcpyHtoDAsync: pinned memory is read when the copy runs")
@pytest.mark.host_only("a race on a GPU; here it is lost every time")
def test_a_pinned_buffer_must_not_be_changed_under_a_copy(late_lab):
    lab = late_lab
    if lab.backing == "none":
        pytest.skip("needs bytes")
    base, pinned = lab.mapped(1), lab.ok(lab.api.cuMemHostAlloc(4096, 0))
    ctypes.memmove(pinned, b"before", 6)
    lab.ok(lab.api.cuMemcpyHtoDAsync(base, pinned, 6, 0))
    ctypes.memmove(pinned, b"after!", 6)
    assert lab.read(base, 6) == b"after!"
    lab.ok(lab.api.cuMemFreeHost(pinned))


@pytest.mark.row("4 cuMemUnmap does not synchronise: a later access faults")
@pytest.mark.host_only("ends the context of a real device")
@pytest.mark.parametrize("wait", ["cuStreamSynchronize", "cuCtxSynchronize", "cuStreamQuery", "cuMemcpyDtoH"])
def test_a_copy_that_runs_after_the_unmap_is_an_illegal_address(late_lab, wait):
    lab = late_lab
    base = lab.mapped(2)
    other = lab.mapped(1)
    lab.ok(lab.api.cuMemcpyDtoDAsync(other, base, 64, 0))
    lab.unmap(base, 2)
    arguments = {"cuCtxSynchronize": (), "cuMemcpyDtoH": (bytearray(4), other, 4)}.get(wait, (0,))
    assert int(getattr(lab.api, wait)(*arguments)[0]) == ILLEGAL_ADDRESS
    lab.api.reset_context()


@pytest.mark.row("4 a wait before the unmap is enough")
def test_a_copy_that_ran_before_the_unmap_is_no_fault(late_lab, streams):
    lab = late_lab
    base, other = lab.mapped(1), lab.mapped(1)
    lab.ok(lab.api.cuMemcpyDtoDAsync(other, base, 64, streams[0]))
    lab.ok(lab.api.cuStreamSynchronize(streams[0]))
    lab.unmap(base)
    lab.ok(lab.api.cuCtxSynchronize())


@pytest.mark.row("4 access is checked when work runs")
@pytest.mark.host_only("ends the context of a real device")
@pytest.mark.parametrize("access", [0, 1])
def test_access_that_was_lowered_meanwhile_is_a_fault(late_lab, access):
    lab = late_lab
    base = lab.mapped(1)
    lab.ok(lab.api.cuMemsetD8Async(base, 1, 64, 0))
    lab.allow(base, 1, access)
    assert int(lab.api.cuCtxSynchronize()[0]) == ILLEGAL_ADDRESS
    lab.api.reset_context()


@pytest.mark.row("4 a stream's work is not run in a context that is lost")
@pytest.mark.host_only("ends the context of a real device")
def test_nothing_runs_after_a_fault(late_lab, log, streams):
    lab = late_lab
    base = lab.mapped(1)
    lab.ok(lab.api.cuMemsetD8Async(base, 1, 64, streams[0]))
    log.queue(streams[0], "after the fault")
    log.queue(streams[1], "elsewhere")
    lab.unmap(base)
    assert int(lab.api.cuStreamSynchronize(streams[0])[0]) == ILLEGAL_ADDRESS
    assert int(lab.api.cuCtxSynchronize()[0]) == ILLEGAL_ADDRESS
    assert log.seen == []
    lab.api.reset_context()


@pytest.mark.row("2b cuCtxRecordEvent: all work of the context, whatever its stream")
def test_an_event_of_the_context_comes_after_the_work_of_every_stream(late_lab, log, streams, event):
    for stream, word in zip([*streams, 0, 2], "abcde", strict=True):
        log.queue(stream, word)
    late_lab.ok(late_lab.api.cuCtxRecordEvent(late_lab.context, event))
    log.queue(streams[2], "later")
    late_lab.ok(late_lab.api.cuEventSynchronize(event))
    assert sorted(log.seen)[:5] == list("abcde")
    if is_host(late_lab):
        assert "later" not in log.seen
    late_lab.ok(late_lab.api.cuCtxSynchronize())


@pytest.mark.row("2b cuCtxRecordEvent: does not wait")
@pytest.mark.host_only("a GPU may have run it")
def test_an_event_of_the_context_is_not_ready_before_its_work(late_lab, log, streams, event):
    log.queue(streams[2], "a")
    late_lab.ok(late_lab.api.cuCtxRecordEvent(late_lab.context, event))
    assert log.seen == []
    assert int(late_lab.api.cuEventQuery(event)[0]) == NOT_READY
    assert int(late_lab.api.cuEventQuery(event)[0]) == 0
    assert log.seen == ["a"]


@pytest.mark.row("2b cuCtxWaitEvent: later work of the context waits")
@pytest.mark.host_only("a GPU may run it in this order anyway")
def test_later_work_of_a_context_waits_for_the_event(late_lab, log, streams, event):
    log.queue(streams[0], "first")
    late_lab.ok(late_lab.api.cuEventRecord(event, streams[0]))
    late_lab.ok(late_lab.api.cuCtxWaitEvent(late_lab.context, event))
    log.queue(streams[2], "second")
    late_lab.ok(late_lab.api.cuStreamSynchronize(streams[2]))
    assert log.seen == ["first", "second"]


@pytest.mark.row("2b cuCtxRecordEvent, cuCtxWaitEvent: no such context 201, no such event 400")
@pytest.mark.host_only("a wrong handle may crash the real driver")
@pytest.mark.parametrize("call", ["cuCtxRecordEvent", "cuCtxWaitEvent"])
def test_events_of_a_context_refuse_handles_that_are_none(late_lab, event, call):
    function = getattr(late_lab.api, call)
    assert int(function(0xDEAD, event)[0]) == 201
    assert int(function(late_lab.context, 0xDEAD)[0]) == 400
