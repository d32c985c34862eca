"""A kernel that touches what it must not: the context is lost, and a fresh one is good again."""

import pytest

from vmm.errors import DriverError

ILLEGAL_ADDRESS = 700
LOST = {
    "cuCtxSynchronize": (),
    "cuStreamSynchronize": (0,),
    "cuStreamQuery": (0,),
    "cuMemGetInfo": (),
    "cuMemAlloc": (4096,),
    "cuMemHostAlloc": (4096, 0),
    "cuStreamCreate": (0,),
    "cuEventCreate": (0,),
    "cuMemsetD8": (1 << 40, 0, 4),
    "cuMemcpyDtoD": (1 << 40, 1 << 41, 4),
    "cuMemcpyHtoD": (1 << 40, b"1234", 4),
    "cuMemcpyDtoHAsync": (bytearray(4), 1 << 40, 4, 0),
    "cuLaunchHostFunc": (0, None, 0),
}

pytestmark = pytest.mark.host_only("ends the context of a real device")


def fault(lab):
    """A kernel's fault, as a launch reports it."""

    def kernel():
        raise DriverError("cuLaunchKernel", ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", (), "read of 0x1234")

    try:
        lab.api.submit(0, kernel)
        lab.api.cuCtxSynchronize()
    except DriverError as error:
        assert error.code == ILLEGAL_ADDRESS


@pytest.mark.row("3.13 kernel touching unmapped memory: 700, sticky")
@pytest.mark.parametrize("call", LOST)
def test_after_a_fault_the_context_answers_700(lab, call):
    fault(lab)
    for _ in range(2):
        result = getattr(lab.api, call)(*LOST[call])
        assert int(result[0]) == ILLEGAL_ADDRESS
        assert all(output is None for output in result[1:])
    lab.api.reset_context()


@pytest.mark.row("3.13 sticky: events too")
def test_events_of_a_lost_context_answer_700(lab):
    event = lab.ok(lab.api.cuEventCreate(0))
    fault(lab)
    for call, *arguments in (("cuEventQuery", event), ("cuEventSynchronize", event), ("cuEventRecord", event, 0)):
        assert int(getattr(lab.api, call)(*arguments)[0]) == ILLEGAL_ADDRESS
    lab.ok(lab.api.cuEventDestroy(event))
    lab.api.reset_context()


@pytest.mark.row("3.13 a launch in a lost context")
def test_a_lost_context_launches_nothing(lab):
    fault(lab)
    ran = []
    with pytest.raises(DriverError, match=r"700.*read of 0x1234"):
        lab.api.submit(0, lambda: ran.append(1))
    assert ran == []
    lab.api.reset_context()


@pytest.mark.row("3 common: no virtual memory call needs a context")
@pytest.mark.unknown("3.13 virtual memory calls after a fault")
def test_memory_can_still_be_given_back(lab):
    base, address = lab.mapped(2), int(lab.ok(lab.api.cuMemAlloc(4096)))
    stream = lab.ok(lab.api.cuStreamCreate(0))
    fault(lab)
    lab.unmap(base, 2)
    lab.release(lab.handles[0])
    lab.give_back(base)
    lab.ok(lab.api.cuMemFree(address))
    lab.ok(lab.api.cuStreamDestroy(stream))
    lab.api.reset_context()
    assert lab.free() > 0


@pytest.mark.row("3.13 sticky for the context, not for another")
def test_another_devices_context_lives_on(pair_lab):
    fault(pair_lab)
    with pair_lab.on(1):
        assert pair_lab.free() > 0
    assert int(pair_lab.api.cuMemGetInfo()[0]) == ILLEGAL_ADDRESS
    pair_lab.api.reset_context()


@pytest.mark.row("3.13 a fresh context after a fault")
def test_the_last_release_makes_the_context_new(lab):
    fault(lab)
    lab.ok(lab.api.cuCtxPopCurrent())
    lab.ok(lab.api.cuDevicePrimaryCtxRelease(0))
    lab.ok(lab.api.cuDevicePrimaryCtxRetain(0))
    lab.ok(lab.api.cuCtxPushCurrent(lab.context))
    assert lab.free() > 0


@pytest.mark.row("3.13 memory calls keep the context usable")
def test_a_refused_copy_is_not_a_fault(lab):
    base = lab.mapped(1, access=0)
    lab.assert_refused(1, lab.api.cuMemsetD8, base, 0, 4)
    lab.ok(lab.api.cuCtxSynchronize())
