"""Streams, events, host functions."""

import ctypes

import pytest
from cuda.bindings import driver as cuda

DISABLE_TIMING = 2


@pytest.fixture
def stream(lab):
    """A stream."""
    made = int(lab.ok(lab.api.cuStreamCreate(0)))
    yield made
    lab.ok(lab.api.cuStreamDestroy(made))


@pytest.fixture
def events(lab):
    """Two events that keep time."""
    made = [int(lab.ok(lab.api.cuEventCreate(0))) for _ in range(2)]
    yield made
    for event in made:
        lab.ok(lab.api.cuEventDestroy(event))


def as_host_function(function):
    """A C function as the bindings take it: some versions keep the address in a CUhostFn, others where it points."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    direct = cuda.CUhostFn(_ptr=address)
    function.holder = ctypes.c_void_p(address)
    return direct if int(direct) == address else cuda.CUhostFn(_ptr=ctypes.addressof(function.holder))


@pytest.mark.row("2b default streams: 0 and 1 legacy, 2 per thread")
@pytest.mark.parametrize("default", [0, 1, 2])
def test_the_default_streams_are_always_there(lab, default):
    assert int(lab.api.cuStreamSynchronize(default)[0]) == 0
    assert int(lab.api.cuStreamQuery(default)[0]) == 0


@pytest.mark.row("2b default streams need a context")
def test_a_default_stream_is_a_contexts(lab):
    assert int(lab.elsewhere(lambda: lab.api.cuStreamSynchronize(0))[0]) == 201


@pytest.mark.row("2b cuStreamCreate: flags")
def test_streams_are_new_handles(lab, stream):
    other = int(lab.ok(lab.api.cuStreamCreate(1)))
    assert len({stream, other, 0, 1, 2}) == 5
    lab.ok(lab.api.cuStreamDestroy(other))
    lab.assert_refused(1, lab.api.cuStreamCreate, 0x80)


@pytest.mark.row("2b stale stream")
@pytest.mark.host_only("the real driver may crash on a stale stream")
def test_a_destroyed_stream_is_refused(lab):
    stream = int(lab.ok(lab.api.cuStreamCreate(0)))
    lab.ok(lab.api.cuStreamDestroy(stream))
    for call in (lab.api.cuStreamSynchronize, lab.api.cuStreamQuery, lab.api.cuStreamDestroy):
        lab.assert_refused(400, call, stream)
    base = lab.mapped(1)
    lab.assert_refused(400, lab.api.cuMemsetD8Async, base, 0, 4, stream)


@pytest.mark.row("2b an event that was never recorded is complete")
def test_a_new_event_is_complete(lab, events):
    assert int(lab.api.cuEventQuery(events[0])[0]) == 0
    assert int(lab.api.cuEventSynchronize(events[0])[0]) == 0


@pytest.mark.row("2b cuEventRecord, cuEventElapsedTime")
def test_time_passes_between_events(lab, stream, events):
    for event in events:
        lab.ok(lab.api.cuEventRecord(event, stream))
        lab.ok(lab.api.cuEventSynchronize(event))
    assert 0 <= lab.ok(lab.api.cuEventElapsedTime(*events)) < 60_000


@pytest.mark.row("2b record again moves the event")
def test_recording_again_moves_an_event(lab, stream, events):
    first, second = events
    lab.ok(lab.api.cuEventRecord(first, stream))
    lab.ok(lab.api.cuEventRecord(second, stream))
    lab.ok(lab.api.cuEventRecord(first, stream))
    lab.ok(lab.api.cuStreamSynchronize(stream))
    assert lab.ok(lab.api.cuEventElapsedTime(first, second)) <= 0


@pytest.mark.row("2b elapsed time of events without timing")
def test_events_without_timing_have_no_elapsed_time(lab, events):
    silent = int(lab.ok(lab.api.cuEventCreate(DISABLE_TIMING)))
    for event in (silent, events[0]):
        lab.ok(lab.api.cuEventRecord(event, 0))
    lab.ok(lab.api.cuCtxSynchronize())
    lab.assert_refused(400, lab.api.cuEventElapsedTime, silent, events[0])
    lab.ok(lab.api.cuEventDestroy(silent))


@pytest.mark.row("2b cuStreamWaitEvent")
def test_a_stream_waits_for_an_event(lab, stream, events):
    lab.ok(lab.api.cuEventRecord(events[0], 0))
    lab.ok(lab.api.cuStreamWaitEvent(stream, events[0], 0))
    lab.ok(lab.api.cuStreamSynchronize(stream))
    assert int(lab.api.cuStreamQuery(stream)[0]) == 0


@pytest.mark.row("2b stale event")
@pytest.mark.host_only("the real driver may crash on a stale event")
def test_a_destroyed_event_is_refused(lab, stream):
    event = int(lab.ok(lab.api.cuEventCreate(0)))
    lab.ok(lab.api.cuEventDestroy(event))
    for call, *arguments in (
        (lab.api.cuEventQuery, event),
        (lab.api.cuEventSynchronize, event),
        (lab.api.cuEventDestroy, event),
        (lab.api.cuEventRecord, event, stream),
        (lab.api.cuStreamWaitEvent, stream, event, 0),
        (lab.api.cuEventElapsedTime, event, event),
    ):
        lab.assert_refused(400, call, *arguments)


@pytest.mark.row("2b cuLaunchHostFunc")
def test_a_host_function_gets_its_argument(lab, stream):
    seen = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
    lab.ok(lab.api.cuLaunchHostFunc(stream, as_host_function(function), 1234))
    lab.ok(lab.api.cuStreamSynchronize(stream))
    assert seen == [1234]
    lab.assert_refused(1, lab.api.cuLaunchHostFunc, stream, None, 0)


@pytest.mark.row("2b streams and events need a context")
@pytest.mark.parametrize("call", ["cuStreamCreate", "cuEventCreate"])
def test_streams_and_events_are_made_in_a_context(lab, call):
    result = lab.elsewhere(lambda: getattr(lab.api, call)(0))
    assert (int(result[0]), result[1]) == (201, None)
