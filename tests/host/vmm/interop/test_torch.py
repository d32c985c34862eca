"""PyTorch on memory of a range: the true library, on the CPU; what needs a GPU is in tests/device."""

import gc

import ml_dtypes
import numpy as np
import pytest

import vmm

torch = pytest.importorskip("torch", reason="needs PyTorch: python -m pip install torch")
UNIT = 2 << 20


@pytest.fixture
def memory(device):
    with vmm.GrowableRange(device, "32 MiB", name="kv") as made:
        yield made


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
        (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
        (torch.float8_e5m2, torch.float8_e5m2),
        (torch.bfloat16, torch.bfloat16),
        (np.int64, torch.int64),
        ("bool", torch.bool),
        ("complex64", torch.complex64),
    ],
)
def test_a_tensor_has_the_type_and_the_bytes_of_the_memory(memory, dtype, expected):
    memory.grow(UNIT)
    tensor = vmm.interop.torch.tensor(memory, dtype, (4, 8), 4096)
    assert (tensor.dtype, tuple(tensor.shape), tensor.data_ptr()) == (expected, (4, 8), memory.base + 4096)
    tensor.fill_(1)
    again = torch.from_dlpack(memory.tensor("uint8", 32 * tensor.element_size(), 4096))
    assert (again.view(expected).to(torch.complex64) == 1).all()


def test_a_strided_view_is_a_strided_tensor(memory):
    memory.grow(UNIT)
    memory.array("float32", 64)[:] = np.arange(64)
    tensor = torch.from_dlpack(memory.tensor("float32", (3, 2), 8, strides=(64, 12)))
    assert tensor.stride() == (16, 3)
    assert tensor.tolist() == [[2, 5], [18, 21], [34, 37]]


def test_a_tensor_and_its_views_keep_the_memory(memory):
    memory.grow(UNIT)
    part = vmm.interop.torch.tensor(memory, "float16", (4, 8))[1:, ::2].T
    with pytest.raises(vmm.StateError, match=r"float16\[4, 8\] at offset 0 of kv"):
        memory.shrink(UNIT)
    del part
    memory.shrink(UNIT)


def test_pytorch_sees_a_cpu_tensor_of_a_heaps_block(device):
    with vmm.Heap(device, "16 MiB") as heap:
        block = heap.allocate(4096)
        array = block.array("float32", 1024)
        tensor = torch.from_dlpack(block.tensor("float32", 1024))
        tensor.fill_(3)
        assert (array == 3).all()
        with pytest.raises(vmm.RangeError, match="there are 4096"):
            block.tensor("float32", 1025)
        del array
        with pytest.raises(vmm.StateError, match="cannot free"):
            block.free()
        del tensor
        block.free()
        with pytest.raises(vmm.StateError, match="freed before"):
            block.tensor("float32", 1024)


# -- a tensor that grows in place ---------------------------------------------------------------------------------


def test_it_grows_in_place_and_old_tensors_stay(memory):
    growing = vmm.interop.torch.GrowableTensor(memory, torch.float32, (256,))
    first = growing.append(3)
    first[:] = torch.arange(3)[:, None]
    start, before = growing.tensor.data_ptr(), growing.tensor
    growing.append(10_000)[:] = 9
    assert growing.tensor.data_ptr() == before.data_ptr() == start == memory.base
    assert growing.tensor.shape == (10_003, 256)
    assert before.shape == (3, 256)
    before[1] = 7
    assert growing.tensor[:4, 0].tolist() == [0, 7, 2, 9]
    assert memory.committed == -(-10_003 * 1024 // UNIT) * UNIT


def test_rows_go_unless_another_tensor_views_them(memory):
    growing = vmm.interop.torch.GrowableTensor(memory, "float16", (1024,))
    growing.resize(4096)
    tail = growing.tensor[3000:]
    with pytest.raises(vmm.StateError, match="delete that array first"):
        growing.resize(1000)
    assert (len(growing), growing.tensor.shape) == (4096, (4096, 1024))
    assert memory.size == 4096 * 2048
    del tail
    assert growing.resize(1000).shape == (1000, 1024)
    memory.collect(wait=True)
    assert memory.committed == UNIT
    growing.resize(0)
    assert growing.tensor.shape == (0, 1024)


def test_a_growth_that_is_refused_changes_nothing(device):
    supply = vmm.ChunkSupply(device, budget=2 * UNIT)
    with supply, vmm.GrowableRange(device, "32 MiB", supply=supply) as memory:
        growing = vmm.interop.torch.GrowableTensor(memory, "float16", (1024,))
        growing.resize(1000)
        growing.tensor.fill_(2)
        with pytest.raises(vmm.OutOfMemoryError):
            growing.resize(3000)
        assert (len(growing), growing.tensor.float().sum().item()) == (1000, 2 * 1000 * 1024)
        with pytest.raises(vmm.RangeError, match="16385 rows are more than the 16384"):
            growing.resize(16385)
        with pytest.raises(vmm.SizeError, match="-1 rows"):
            growing.resize(-1)
        assert len(growing) == 1000
        del growing
        gc.collect()  # an error's frames hold it


def test_a_row_without_a_byte_is_refused(memory):
    with pytest.raises(vmm.RangeError, match="has no byte"):
        vmm.interop.torch.GrowableTensor(memory, "float16", (0, 4))
