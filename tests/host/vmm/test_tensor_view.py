"""A typed view that every library takes: NumPy's answers, DLPack's rules, and what may happen to the memory beneath."""

import ctypes
import gc

import ml_dtypes
import numpy as np
import pytest

import vmm

UNIT = 2 << 20


@pytest.fixture
def memory(device):
    with vmm.GrowableRange(device, "16 MiB", name="kv") as made:
        made.grow(2 * UNIT)
        yield made


def test_numpy_sees_the_same_memory_by_both_ways(memory):
    tensor = memory.tensor("float16", (3, 128), 4096)
    by_dlpack, by_array = np.from_dlpack(tensor), np.asarray(tensor)
    by_array[1, 2] = 7  # NumPy before 2.1 lets nobody write to what it takes by DLPack
    assert by_dlpack[1, 2] == memory.array("float16", (3, 128), 4096)[1, 2] == 7
    assert by_array.ctypes.data == by_dlpack.ctypes.data == tensor.address == memory.base + 4096
    assert (by_dlpack.dtype, by_dlpack.shape, tensor.__dlpack_device__()) == (np.float16, (3, 128), (1, 0))


def test_numpy_copies_only_where_it_may(memory):
    tensor = memory.tensor("float32", 4)
    assert np.array(tensor).ctypes.data != tensor.address
    assert np.asarray(tensor, "float64").dtype == "float64"
    assert np.asarray(tensor, copy=False).ctypes.data == tensor.address
    with pytest.raises(ValueError, match="avoid copy"):
        np.asarray(tensor, "float64", copy=False)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float64", "complex64"])
def test_every_type_of_numpys_keeps_its_values(memory, dtype):
    memory.array(dtype, 4)[:] = [1, 0, 1, 1]
    found = np.from_dlpack(memory.tensor(dtype, 4))
    assert found.dtype == dtype
    assert found.tolist() == np.array([1, 0, 1, 1], dtype).tolist()


def test_strides_and_an_offset_are_numpys(memory):
    memory.array("int32", 100)[:] = np.arange(100)
    tensor = memory.tensor("int32", (3, 4), 8, strides=(40, 12))
    assert not tensor.contiguous
    expected = 2 + 10 * np.arange(3)[:, None] + 3 * np.arange(4)
    assert (np.asarray(tensor) == expected).all()
    assert (np.from_dlpack(tensor) == expected).all()


def test_a_strided_view_ends_at_its_last_number(memory):
    """Two rows of 4 bytes, 2 MiB apart: the third chunk is not needed, and is refused where it is."""
    assert np.asarray(memory.tensor("uint8", (2, 4), strides=(UNIT, 1))).shape == (2, 4)
    with pytest.raises(vmm.RangeError):
        memory.tensor("uint8", (3, 4), strides=(UNIT, 1))


@pytest.mark.parametrize(
    ("strides", "error", "text"),
    [
        ((4,), ValueError, "do not fit shape"),
        ((-16, 4), ValueError, "0 or more bytes"),
        ((16, 2), vmm.AlignmentError, "no multiples of the 4 bytes"),
    ],
)
def test_strides_that_cannot_be_are_refused(memory, strides, error, text):
    with pytest.raises(error, match=text):
        memory.tensor("float32", (4, 4), strides=strides)


# -- what a capsule says, read as a consumer written in C reads it ---------------------------------------------------


class Fields(ctypes.Structure):
    """DLTensor as dlpack.h of version 1.1 has it."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def read(capsule):
    """(version or None, flags, fields, call of the deleter) of a capsule."""
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    at = ctypes.pythonapi.PyCapsule_GetPointer
    at.restype, at.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    kind = name(capsule)
    address = at(capsule, kind)
    if kind == b"dltensor":
        return None, 0, Fields.from_address(address)
    assert kind == b"dltensor_versioned"
    version = (ctypes.c_uint32 * 2).from_address(address)
    flags = ctypes.c_uint64.from_address(address + 24).value  # behind two pointers
    return tuple(version), flags, Fields.from_address(address + 32)


@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [
        ("int8", 0, 8),
        ("uint8", 1, 8),
        ("float32", 2, 32),
        ("bfloat16", 4, 16),
        ("complex128", 5, 128),
        ("bool", 6, 8),
        (ml_dtypes.float8_e4m3fn, 10, 8),
        (ml_dtypes.float8_e5m2, 12, 8),
    ],
)
@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 3)])
def test_a_capsule_says_what_dlpack_h_defines(memory, dtype, code, bits, max_version):
    tensor = memory.tensor(dtype, (2, 3), 64, strides=(16 * (bits // 8), bits // 8))
    capsule = tensor.__dlpack__(max_version=max_version)
    version, flags, fields = read(capsule)
    if max_version is None or max_version < (1, 0) or np.lib.NumpyVersion(np.__version__) < "2.1.0":
        assert version is None
    else:
        assert (version[0], flags) == (1, 0)
    assert (fields.code, fields.bits, fields.lanes) == (code, bits, 1)
    assert (tuple(fields.device), fields.ndim, fields.data + fields.byte_offset) == ((1, 0), 2, tensor.address)
    assert (fields.shape[:2], fields.strides[:2]) == ([2, 3], [16, 1])


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 makes no versioned capsule")
def test_memory_that_may_only_be_read_says_so(memory):
    memory.protect(0, UNIT, "r")
    tensor = memory.tensor("float32", 8)
    _version, flags, _fields = read(tensor.__dlpack__(max_version=(1, 0)))
    assert flags & 1  # DLPACK_FLAG_BITMASK_READ_ONLY
    with pytest.raises(BufferError, match="may only be read"):
        tensor.__dlpack__()
    assert not np.asarray(tensor).flags.writeable


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"copy": True}, "stays where it is"),
        ({"dl_device": (2, 0)}, "stays where it is"),
        ({"stream": 1}, "memory of the host, which has no stream 1"),
    ],
)
def test_what_dlpack_may_ask_and_cannot_have_is_a_buffer_error(memory, asked, text):
    with pytest.raises(BufferError, match=text):
        memory.tensor("float32", 8).__dlpack__(**asked)


def test_what_dlpack_may_ask_and_has_is_given(memory):
    tensor = memory.tensor("float32", 8)
    assert tensor.__dlpack__(copy=False, dl_device=(1, 0), max_version=(1, 0))


def test_a_type_that_dlpack_lacks_names_the_remedy(memory):
    with pytest.raises(BufferError, match="uint8 instead"):
        memory.tensor(ml_dtypes.int4, 8).__dlpack__()


def test_the_host_driver_has_no_cuda_array_interface(memory):
    assert not hasattr(memory.tensor("float32", 8), "__cuda_array_interface__")


# -- lifetimes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [np.asarray, np.from_dlpack, lambda tensor: tensor, lambda tensor: tensor.__dlpack__()]
)
def test_what_was_made_of_it_keeps_the_memory(memory, make):
    made = make(memory.tensor("float16", 8, UNIT))
    with pytest.raises(vmm.StateError, match=r"still views them \(float16\[8\] at offset 2097152 of kv\)"):
        memory.shrink(UNIT)
    del made
    memory.shrink(UNIT)


def test_a_capsule_that_nobody_takes_lets_go(memory):
    for _ in range(3):
        memory.tensor("bfloat16", 8).__dlpack__(max_version=(1, 0))
    gc.collect()
    memory.shrink(2 * UNIT)


def test_an_address_tensor_only_keeps_the_range_open(memory):
    tensor = memory.address_tensor("uint8", memory.reserved)
    memory.shrink(UNIT)
    memory.grow(2 * UNIT)  # memory comes and goes beneath it
    array = np.asarray(tensor)
    array[3] = 5
    assert memory.array("uint8", 8)[3] == 5
    del tensor
    with pytest.raises(vmm.StateError, match=r"cannot close kv: somebody has its addresses"):
        memory.close()
    del array
    memory.close()


def test_whoever_has_mere_addresses_is_not_looked_at_by_each_free(memory):
    tensor = memory.address_tensor("uint8", memory.reserved)
    memory.array("uint8", 8)  # dies at once
    memory.check_unused(0, UNIT, "free")
    assert not memory.relied_on
    array = np.asarray(memory.tensor("uint8", 8))
    memory.check_unused(UNIT, 2 * UNIT, "free")
    assert memory.relied_on
    del array, tensor


def test_an_address_tensor_ends_where_the_addresses_do(memory):
    with pytest.raises(vmm.RangeError, match="beyond the 16777216 reserved"):
        memory.address_tensor("uint8", memory.reserved, 1)


@pytest.mark.parametrize("device", ["deferred"], indirect=True)
@pytest.mark.parametrize("take", [np.asarray, np.from_dlpack])
def test_who_takes_it_sees_the_work_of_its_stream(device, memory, take):
    """Nothing runs on deferred streams until somebody waits; on the host driver the export does."""
    with device.current():
        device.driver.fill_async(memory.base, 9, 64, 0)
        tensor = memory.tensor("uint8", 64, stream=0)
        assert (take(tensor) == 9).all()


def test_rules_without_bytes_have_no_tensor(rules):
    with vmm.GrowableRange(rules, "16 MiB") as memory:
        memory.grow(UNIT)
        with pytest.raises(vmm.StateError, match="backing 'none'"):
            memory.tensor("uint8", 8)
        memory.shrink(UNIT)
