"""The garbage collector may run inside a call of the host driver, and end owners that call the driver again."""

import gc

import pytest

import vmm
from vmm.host import address_space, allocation_calls

CHUNK = 2 << 20


@pytest.mark.parametrize(("module", "name"), [(allocation_calls, "Allocation"), (address_space, "Mapping")])
def test_a_range_that_is_collected_inside_a_call_gives_its_memory_back(device, monkeypatch, module, name):
    first = getattr(module, name)

    def made_after_a_collection(*args):
        gc.collect()  # where the interpreter allocates, it may do so
        return first(*args)

    with vmm.GrowableRange(device, 8 * CHUNK) as other:
        dropped = vmm.GrowableRange(device, 8 * CHUNK)
        dropped.grow(3 * CHUNK)
        dropped.me = dropped  # only the collector finds it
        monkeypatch.setattr(module, name, made_after_a_collection)
        del dropped
        with pytest.warns(ResourceWarning, match="never closed"):
            other.grow(4 * CHUNK)
        assert (other.array("uint8", 4 * CHUNK) == 0).all()
        live = device.driver.api.live()
        assert (live.reservations, live.mappings, live.allocations) == (1, 4, 4)
        assert device.driver.api.committed_bytes() == 4 * CHUNK
