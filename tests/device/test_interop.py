"""Other libraries on memory of a range and of a heap, on a GPU. Each is skipped where its library is missing."""

import contextlib

import numpy as np
import pytest

import paged
import vmm

MIB = 1 << 20


@pytest.fixture
def heap(gpu):
    with gpu.current(), vmm.Heap(gpu, "8 GiB") as made:
        yield made


@pytest.fixture
def memory(gpu):
    with gpu.current(), vmm.GrowableRange(gpu, "1 GiB", name="kv") as made:
        made.grow("16 MiB")
        yield made


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="needs PyTorch: python -m pip install torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no GPU")
    return found


@pytest.fixture
def numba():
    pytest.importorskip("numba_cuda", reason="needs Numba: python -m pip install 'numba-cuda[cu13]'")
    from numba import cuda

    return cuda


def test_cupy_computes_on_blocks_of_a_heap(cupy, heap):
    with cupy.cuda.using_allocator(vmm.interop.cupy.allocator(heap)):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x = cupy.arange(1 << 20, dtype=cupy.float32)
            y = (x * 2)[::2]
            assert heap.range.base <= x.data.ptr < heap.range.base + heap.reserved
            total = float(y.sum().get())
        assert total == pytest.approx(float(np.arange(0, 1 << 20, 2, dtype=np.float64).sum() * 2), rel=1e-4)
        for _ in range(50):  # freed and taken again behind its stream, without a wait
            with stream:
                x = cupy.full(1 << 20, 7, dtype=cupy.float32)
                assert int((x == 7).sum()) == 1 << 20
        del x, y
    heap.range.collect(wait=True)


def test_cupys_array_and_a_tensor_view_are_the_same_memory(cupy, memory):
    view = memory.tensor("float32", (1024, 128))
    by_dlpack, by_interface = cupy.from_dlpack(view), cupy.asarray(view)
    by_dlpack[3] = 5
    assert by_dlpack.data.ptr == by_interface.data.ptr == memory.base
    assert float(by_interface[3].sum()) == 5 * 128
    del view, by_dlpack, by_interface


def test_cuda_core_copies_between_buffers_of_a_heap(heap):
    core = pytest.importorskip("cuda.core", reason="needs cuda.core: python -m pip install 'pagewalk[interop]'")
    device = core.Device(0)
    device.set_current()
    stream = device.create_stream()
    resource = vmm.interop.cuda_core.memory_resource(heap)
    one, other = resource.allocate(MIB, stream=stream), resource.allocate(MIB, stream=stream)
    one.fill(7, stream=stream)
    other.copy_from(one, stream=stream)
    stream.sync()
    found = bytearray(MIB)
    heap.range.device.driver.copy_out(found, int(other.handle), MIB)
    assert found == b"\7" * MIB
    one.close(stream)
    other.close(stream)


def test_rmm_copies_through_a_buffer_of_a_heap(heap):
    rmm = pytest.importorskip("rmm", reason="needs RMM: python -m pip install rmm-cu13")
    before = rmm.mr.get_current_device_resource()
    rmm.mr.set_current_device_resource(vmm.interop.rmm.memory_resource(heap))
    try:
        data = np.arange(MIB, dtype=np.uint8)
        buffer = rmm.DeviceBuffer.to_device(data.tobytes())
        assert heap.range.base <= buffer.ptr < heap.range.base + heap.reserved
        assert buffer.tobytes() == data.tobytes()
        del buffer
    finally:
        rmm.mr.set_current_device_resource(before)


def test_numba_computes_on_memory_of_a_range(numba, memory):
    @numba.jit
    def double(x):
        i = numba.grid(1)
        if i < x.size:
            x[i] *= 2

    array = vmm.interop.numba.array(memory, "float32", 4096)
    array[:] = 3
    double[16, 256](array)
    assert (array.copy_to_host() == 6).all()
    del array


def test_a_tensor_of_pytorch_is_the_memory_and_grows_in_place(torch, gpu):
    with gpu.current(), vmm.GrowableRange(gpu, "8 GiB") as memory:
        growing = vmm.interop.torch.GrowableTensor(memory, torch.bfloat16, (1024,))
        first = growing.append(1000)
        first.fill_(3)
        growing.append(100_000).fill_(1)
        assert growing.tensor.data_ptr() == first.data_ptr() == memory.base
        assert growing.tensor.is_cuda
        assert float(growing.tensor[:1001, 0].float().sum()) == 3001
        del first
        growing.resize(0)
        torch.cuda.synchronize()
        del growing


def test_a_mem_pool_of_pytorch_lies_in_a_heap(torch, heap, monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "release_lock_on_cudamalloc:True")  # what it says is read at import
    pool = vmm.interop.torch.mem_pool(heap)
    with torch.cuda.use_mem_pool(pool):
        x = torch.arange(1 << 22, device="cuda", dtype=torch.float32)
        y = x * 2
    assert heap.range.base <= x.data_ptr() < heap.range.base + heap.reserved
    assert float(y[-1]) == 2.0 * ((1 << 22) - 1)
    with pytest.raises(vmm.StateError, match="given to another library"):
        heap.close()
    del x, y, pool
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    vmm.interop.torch.allocator(heap).collect()
    assert heap.allocated == 0


@pytest.mark.parametrize("order", ["block", "layer"])
def test_flashinfer_decodes_over_a_pool(torch, gpu, order):
    flashinfer = pytest.importorskip("flashinfer", reason="needs FlashInfer: python -m pip install flashinfer-python")
    lengths, heads, kv_heads, dim = (1, 16, 300), 32, 8, 128
    spec = paged.KVSpec(layers=2, kv_heads=kv_heads, head_dim=dim, dtype="float16")
    layout = paged.KVLayout(spec, 16, order=order, layout="nhd")
    with contextlib.ExitStack() as undo:
        undo.enter_context(gpu.current())
        pool = undo.enter_context(paged.KVPool(gpu, layout, budget="64 MiB"))
        cache = torch.from_dlpack(paged.interop.flashinfer.cache(pool, 1))
        sequences = [pool.sequence() for _ in lengths]
        torch.manual_seed(1)
        for sequence, length in zip(sequences, lengths, strict=True):
            blocks, offsets = np.divmod(sequence.append(length), 16)
            for component in range(2):
                cache[blocks, component, offsets] = torch.randn(length, kv_heads, dim, device="cuda").half()
        query = torch.randn(len(lengths), heads, dim, device="cuda").half()
        table = paged.interop.flashinfer.page_table(pool, sequences)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(128 << 20, dtype=torch.uint8, device="cuda"), paged.interop.flashinfer.kv_layout(pool)
        )
        on_device = [torch.from_numpy(each).cuda() for each in (table.indptr, table.indices, table.last_page_len)]
        wrapper.plan(*on_device, heads, kv_heads, dim, 16, q_data_type=torch.float16, kv_data_type=torch.float16)
        found = wrapper.run(query, cache)
        for row, sequence in enumerate(sequences):
            blocks, offsets = np.divmod(np.asarray(paged.slots_of(sequence.table, 0, sequence.length, 16)), 16)
            key, value = (cache[blocks, component, offsets].double().repeat_interleave(4, 1) for component in range(2))
            score = torch.einsum("hd,thd->ht", query[row].double(), key) / dim**0.5
            expected = torch.einsum("ht,thd->hd", score.softmax(1), value)
            assert torch.allclose(found[row].double(), expected, rtol=2e-3, atol=2e-3)
        torch.cuda.synchronize()
        del cache
