import gc

import pytest

import vmm
from vmm.choice import open_driver


def test_the_report_names_driver_device_and_backing(device):
    text = repr(device)
    assert all(part in text for part in ("Device(0", "driver host", "backing memory", "256 MiB", "granularity 2 MiB"))
    assert device.arch == "host"


def test_memory_info_is_the_drivers_and_the_current_context_stays(device):
    """Case 34: the caller's current context is as it was."""
    api = device.driver.api
    before = int(api.cuCtxGetCurrent()[1])
    assert device.memory_info() == vmm.MemoryInfo(256 << 20, 256 << 20)
    assert int(api.cuCtxGetCurrent()[1]) == before == 0


@pytest.mark.parametrize("ordinal", [1, -1, 99])
def test_a_device_that_is_not_there_is_refused(ordinal):
    with pytest.raises(vmm.RangeError, match=f"device {ordinal} is not there"):
        vmm.Device(ordinal, driver=vmm.HostDriver())


def test_vmm_driver_chooses_and_a_word_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("VMM_DRIVER", "host")
    assert open_driver().name == "host"
    monkeypatch.setenv("VMM_DRIVER", "gpu")
    with pytest.raises(vmm.DriverMissingError, match="'gpu'"):
        open_driver()


def test_a_forced_driver_that_is_not_there_is_a_clear_error(monkeypatch):
    def missing(_flags):
        raise RuntimeError("libcuda.so.1 cannot be found\nmore lines")

    monkeypatch.setattr("vmm.driver.cuda.cuInit", missing)
    monkeypatch.setenv("VMM_DRIVER", "cuda")
    with pytest.raises(vmm.DriverMissingError, match=r"libcuda.*found; install the NVIDIA driver") as caught:
        vmm.Device(0)
    assert "\n" not in str(caught.value)
    monkeypatch.delenv("VMM_DRIVER")
    with vmm.Device(0) as found:
        assert found.driver.name == "host"


def test_close_gives_the_context_back_and_a_dropped_device_does_too():
    api = vmm.HostDriver()
    device = vmm.Device(driver=api)
    assert api.live().contexts == 1
    device.close()
    device.close()
    assert api.live().contexts == 0
    with pytest.raises(vmm.ClosedError):
        device.memory_info()
    vmm.Device(driver=api)
    gc.collect()
    assert api.live().contexts == 0


def test_submitted_work_runs_and_its_arrays_live_until_it_has(device):
    ran = []
    device.submit(0, lambda: ran.append(1), keepalive=object())
    assert ran == [1]
    device.synchronize()


def test_a_fault_says_what_lies_at_the_address(device):
    with vmm.GrowableRange(device, "8 MiB", name="kv") as kv:
        error = device.fault(kv.base + 5, write=True)
    assert isinstance(error, vmm.DriverError)
    assert error.code == 700
    assert f"write of {kv.base + 5:#x}" in str(error)


def test_owners_may_be_closed_after_their_device():
    api = vmm.HostDriver(memory="64 MiB")
    device = vmm.Device(driver=api)
    kv, heap = vmm.GrowableRange(device, "8 MiB"), vmm.Heap(device, "8 MiB")
    kv.commit([0, 2])
    block = heap.allocate(5)
    device.close()
    kv.decommit([2])
    block.free()
    kv.close()
    heap.close()
    assert api.live().total == 0


def test_pinned_memory_that_fails_at_its_last_call_is_counted_off(failing):
    device, api = failing
    api.arm("cuCtxPopCurrent", 1, code=1)
    with pytest.raises(vmm.DriverError, match="cuCtxPopCurrent"):
        vmm.pinned.PinnedMemory(device, 1 << 20)
    assert (device.pinned, api.live().pinned) == (0, 0)
    with vmm.pinned.PinnedMemory(device, 1 << 20):
        assert device.pinned == 1 << 20
    assert device.pinned == 0
