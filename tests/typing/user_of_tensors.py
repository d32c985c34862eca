"""A user's program over tensors of ranges, blocks by address, and pools as other libraries take them."""

from __future__ import annotations

from typing import Any

import numpy as np

import paged
import vmm
from paged.interop import flashinfer, vllm


def views() -> None:
    with vmm.Device(0, driver=vmm.HostDriver(memory="64 MiB")) as device, vmm.GrowableRange(device, "1 GiB") as kv:
        kv.grow("4 MiB")
        view: vmm.TensorView = kv.tensor("bfloat16", (1024, 128), stream=0)
        handle: int = vmm.stream_handle(0)
        assert view.contiguous and handle == 0
        array = vmm.interop.numba.array(kv, "float32", 8)
        assert isinstance(array, np.ndarray)
        del view, array


def blocks_by_address() -> None:
    with vmm.Device(0, driver=vmm.HostDriver(memory="64 MiB")) as device, vmm.Heap(device, "1 GiB") as heap:
        held: vmm.interop.malloc.Malloc = vmm.interop.malloc.of(heap)
        address: int = held.allocate(4096, stream=0)
        owner = vmm.interop.malloc.Held(held, address, 0)
        del owner
        assert len(held) == 0


def pools() -> None:
    spec = paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16")
    with vmm.Device(0, driver=vmm.HostDriver(memory="64 MiB")) as device:
        for layout in ("nhd", "vllm"):
            with paged.KVPool(device, paged.KVLayout(spec, 16, layout=layout), budget="16 MiB") as pool:
                sequence = pool.sequence()
                sequence.append(40)
                if layout == "vllm":
                    key, value = vllm.split_cache(pool, 0)
                    print(key.shape, value.shape)
                    del key, value
                    continue
                print(flashinfer.kv_layout(pool), flashinfer.cache(pool, 0).shape, vllm.cache(pool, 1).shape)
                apart: tuple[vmm.TensorView, vmm.TensorView] = flashinfer.separate_caches(pool, 0)
                pages: flashinfer.PageTable = flashinfer.page_table(pool, [sequence])
                table: vllm.BlockTable = vllm.block_table(pool, [sequence])
                print(apart[0].dtype, pages.indptr, table.seq_lens)
                del apart
        latent = paged.KVSpec(layers=2, kv_heads=1, head_dim=576, dtype="bfloat16", components=1)
        with paged.KVPool(device, paged.KVLayout(latent, 16, layout="nhd"), budget="16 MiB") as pool:
            print(flashinfer.mla_cache(pool, 0).shape)


def on_a_gpu(heap: vmm.Heap, memory: vmm.GrowableRange) -> list[Any]:
    """Not called here: each needs its library, and all but the last two a GPU."""
    allocator: vmm.interop.cupy.Allocator = vmm.interop.cupy.allocator(heap)
    pluggable: vmm.interop.torch.HeapAllocator = vmm.interop.torch.allocator(heap)
    growing = vmm.interop.torch.GrowableTensor(memory, "float16", (8, 128))
    return [
        allocator,
        pluggable.collect(),
        vmm.interop.torch.mem_pool(heap),
        vmm.interop.cuda_core.memory_resource(heap),
        vmm.interop.rmm.memory_resource(heap),
        vmm.interop.numba.memory_manager(heap),
        growing.append(4),
        vmm.interop.torch.tensor(memory, "bfloat16", (4, 8)),
    ]


if __name__ == "__main__":
    views()
    blocks_by_address()
    pools()
