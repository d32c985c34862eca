"""What becomes of a refusal by the real driver: an error of vmm with the call, nothing left, and a retry that works."""

import os

import pytest

import vmm

UNIT = 2 << 20
STEPS = ("cuMemCreate", "cuMemMap", "cuMemSetAccess")


def grow_until_refused():
    """A grow that fails, the state after it, and the same grow once more."""
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "16 MiB", name="kv") as memory:
        memory.commit([5])
        before = memory.runs(), memory.committed, memory.size, device.memory_info()
        try:
            memory.grow("6 MiB")
        except vmm.VmmError as error:
            caught = type(error).__name__, str(error), isinstance(error, MemoryError), getattr(error, "code", None)
        after = memory.runs(), memory.committed, memory.size, device.memory_info()
        memory.grow("6 MiB")
        return caught, before == after, memory.committed


@pytest.mark.parametrize(
    ("call", "at"), [("cuMemCreate", 2), ("cuMemCreate", 4), ("cuMemMap", 3), ("cuMemMap", 4), ("cuMemSetAccess", 2)]
)
def test_out_of_memory_at_each_step_leaves_nothing(stub, call, at):
    (caught, unchanged, committed), _ = stub(grow_until_refused, STUB_FAIL=f"{call}:{at}:2")
    name, text, is_memory_error, _ = caught
    assert (name, is_memory_error, unchanged, committed) == ("OutOfMemoryError", True, True, 4 * UNIT)
    assert text.startswith(f"{call}(")
    assert "CUDA_ERROR_OUT_OF_MEMORY (2); free memory" in text
    assert "chunk" in text.split("; ")[-2 if call == "cuMemCreate" else -1]
    assert "\n" not in text


@pytest.mark.parametrize("call", STEPS)
@pytest.mark.parametrize(
    ("code", "name"), [(1, "CUDA_ERROR_INVALID_VALUE"), (801, "CUDA_ERROR_NOT_SUPPORTED"), (4242, "unknown error")]
)
def test_every_other_code_is_a_driver_error_with_its_name(stub, call, code, name):
    """4242 is in no enum of any bindings: a driver that is newer than they are."""
    (caught, unchanged, committed), _ = stub(grow_until_refused, STUB_FAIL=f"{call}:2:{code}")
    kind, text, is_memory_error, seen = caught
    assert (kind, is_memory_error, seen, unchanged, committed) == ("DriverError", False, code, True, 4 * UNIT)
    assert text.startswith(f"{call}(")
    assert f"failed: {name} ({code})" in text
    assert "\n" not in text


def shrink_until_refused(call):
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "16 MiB") as memory:
        memory.grow("6 MiB")
        before = memory.runs(), memory.size, [memory.mapping(chunk).handle for chunk in memory.committed_chunks()]
        os.environ["STUB_FAIL"] = call
        with pytest.raises(vmm.DriverError) as caught:
            memory.shrink("4 MiB")
        after = memory.runs(), memory.size, [memory.mapping(chunk).handle for chunk in memory.committed_chunks()]
        memory.shrink("4 MiB")
        return str(caught.value), before == after, memory.committed


@pytest.mark.parametrize("call", ["cuMemUnmap", "cuEventCreate", "cuCtxRecordEvent", "cuEventQuery"])
@pytest.mark.parametrize("code", [1, 4242])
def test_a_refused_shrink_changes_nothing(stub, call, code):
    (text, unchanged, committed), _ = stub(shrink_until_refused, f"{call}:1:{code}")
    assert f"({code})" in text
    assert (unchanged, committed) == (True, UNIT)


def reserve_until_refused():
    with vmm.Device(0, driver="cuda") as device:
        with pytest.raises(vmm.OutOfMemoryError) as caught:
            vmm.GrowableRange(device, "16 MiB")
        vmm.GrowableRange(device, "16 MiB").close()
        return str(caught.value)


def test_no_addresses(stub):
    text, _ = stub(reserve_until_refused, STUB_FAIL="cuMemAddressReserve:1:2")
    assert text.startswith("cuMemAddressReserve(0x1000000, 0, 0) failed: CUDA_ERROR_OUT_OF_MEMORY (2)")


def record_until_refused():
    with vmm.Device(0, driver="cuda") as device:
        for _ in range(2):
            with pytest.raises(vmm.DriverError) as caught:
                device.submit(0, lambda: None, keepalive=None)
        return caught.value.code


def test_a_refused_event_is_destroyed(stub):
    """Once with a code that the bindings know, once with one that they do not."""
    code, calls = stub(record_until_refused, STUB_FAIL="cuEventRecord:1:700,cuEventRecord:2:4242")
    assert code == 4242
    assert len(calls.of("cuEventDestroy")) == 2


def open_until_refused():
    for _ in range(4):
        with pytest.raises(vmm.VmmError):
            vmm.Device(0, driver="cuda")
    vmm.Device(0, driver="cuda").close()


def test_a_device_that_cannot_be_opened_holds_nothing(stub):
    calls = ["cuDeviceGetName", "cuDeviceTotalMem", "cuMemGetAllocationGranularity", "cuDevicePrimaryCtxRetain"]
    _, made = stub(open_until_refused, STUB_FAIL=",".join(f"{call}:1:801" for call in calls))
    assert [call.code for call in made.of("cuDevicePrimaryCtxRetain")] == [801, 0]


def use_a_library_that_lacks_a_call():
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "16 MiB") as memory:
        with pytest.raises(vmm.DriverMissingError) as caught:
            memory.grow("4 MiB")
        return str(caught.value), memory.committed


@pytest.mark.parametrize("call", STEPS)
def test_a_call_that_the_library_lacks_is_one_line(stub, call):
    (text, committed), _ = stub(use_a_library_that_lacks_a_call, STUB_MISSING=call)
    assert text.startswith(f"the NVIDIA driver here has no {call}; update it, or use driver='host'")
    assert "\n" not in text
    assert committed == 0


def test_a_library_older_than_the_bindings_is_one_line_and_a_warning(monkeypatch):
    """Without cuGetProcAddress_v2 the bindings have no code of the driver to answer with."""

    def refuse(_flags):
        raise RuntimeError("Failed to get cuGetProcAddress_v2")

    monkeypatch.delenv("VMM_DRIVER", raising=False)
    monkeypatch.setattr("vmm.driver.cuda.cuInit", refuse)
    with pytest.warns(RuntimeWarning, match="cuGetProcAddress_v2; mend or update the NVIDIA driver"):
        vmm.Device(0).close()
    with pytest.raises(vmm.DriverMissingError, match="cuGetProcAddress_v2; mend or update the NVIDIA driver"):
        vmm.Device(0, driver="cuda")
