"""A driver that refuses in the middle of what a sequence does in several groups: the books of all still agree."""

import numpy as np
import pytest

import paged
import vmm
from vmm.host import FailingDriver

MIB = 1 << 20
GROUPS = [paged.KVSpec(1, 40, 16, "float32", window=window) for window in (None, 20, 40, 60)]


@pytest.fixture
def refusing():
    api = FailingDriver(vmm.HostDriver(memory="64 MiB", granularity="64 KiB"))
    with vmm.Device(driver=api) as device, paged.ModelPool(device, GROUPS, budget=48 * MIB) as model:
        yield model, api
        api.disarm()


CALLS = ("cuMemUnmap", "cuEventQuery", "cuEventCreate", "cuEventRecord")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("at", [2, 3])
def test_what_cannot_leave_a_window_leaves_it_later(refusing, caplog, call, at):
    model, api = refusing
    sequence = model.sequence()
    sequence.append(200)
    api.arm(call, at, code=1)
    assert [len(slots) for slots in sequence.append(200)] == [200] * 4
    assert api.failed == call
    model.check()
    assert [part.dropped > 0 for part in sequence.parts] == [False, *(group != at for group in (1, 2, 3))]
    assert f"outside the window of model.{at} stay for now" in caplog.text
    sequence.append(1)
    assert [part.dropped for part in sequence.parts] == [0, 368, 352, 336]
    model.check()


def test_where_nothing_can_leave_a_window_nothing_has_changed(refusing):
    model, api = refusing
    sequence = model.sequence()
    sequence.append(200)
    api.arm("cuMemUnmap", 1, code=1)
    with pytest.raises(vmm.DriverError, match="cuMemUnmap"):
        sequence.append(200)
    model.check()
    assert [(part.length, part.dropped) for part in sequence.parts] == [(200, 0)] * 4


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_group_that_cannot_go_keeps_no_other(refusing, call, at):
    model, api = refusing
    sequence = model.sequence()
    sequence.append(100)
    api.arm(call, at, code=1)
    with pytest.raises(vmm.DriverError, match=call):
        sequence.free(after=0)
    assert [part.is_open for part in sequence.parts] == [group == at for group in (1, 2, 3, 4)]
    model.check()
    sequence.free()
    assert (model.sequences, model.live, model.committed) == ([], 0, 0)
    model.check()


def test_a_question_in_numpys_numbers(refusing):
    sequence = refusing[0].sequence()
    sequence.append(100)
    assert sequence.can_append(np.uint8(200))
    with pytest.raises(vmm.RangeError, match="cannot append -1 tokens"):
        sequence.can_append(-1)
    with pytest.raises(TypeError, match=r"tokens must be a whole number, not 2\.0"):
        sequence.can_append(2.0)
