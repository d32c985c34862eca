"""Arrays on memory of the real driver: CuPy's, as far as it works without one, and what is said without CuPy."""

import importlib.util
import sys

import pytest

import vmm

UNIT = 2 << 20


def view(device_ordinal):
    device = vmm.Device(device_ordinal, driver="cuda")
    with device, vmm.GrowableRange(device, "16 MiB", name="kv") as memory:
        memory.grow("4 MiB")
        array = memory.array("float16", (3, 128), offset=4096)
        part = array[1:, ::2].T
        seen = (
            type(array).__module__.split(".")[0],
            array.data.ptr - memory.base,
            array.data.device_id,
            array.data.mem.size,
            array.shape,
            str(array.dtype),
            part.data.ptr - memory.base,
            part.strides,
        )
        del array
        with pytest.raises(vmm.StateError, match=r"float16\[3, 128\] at offset 4096 of kv"):
            memory.shrink("4 MiB")  # the slice still views it
        del part
        memory.shrink("4 MiB")
        return seen


@pytest.mark.skipif(not importlib.util.find_spec("cupy"), reason="CuPy is not installed")
@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_view_has_the_address_and_the_device_of_its_memory(stub, ordinal):
    seen, _ = stub(view, ordinal, STUB_DEVICES=2)
    assert seen == ("cupy", 4096, ordinal, 3 * 128 * 2, (3, 128), "float16", 4096 + 256, (4, 256))


def view_without_cupy():
    sys.modules["cupy"] = None  # as if it were not installed
    with vmm.Device(0, driver="cuda") as device, vmm.GrowableRange(device, "16 MiB") as memory:
        memory.grow("2 MiB")
        with pytest.raises(vmm.DriverMissingError) as caught:
            memory.array("float16", 8)
        memory.shrink("2 MiB")  # no view is left behind by the error
        return str(caught.value)


def test_without_cupy_the_error_has_the_pip_line(stub):
    text, _ = stub(view_without_cupy)
    assert text.startswith("arrays on a GPU need CuPy: pip install 'pagewalk[cuda13]'")
    assert "\n" not in text
