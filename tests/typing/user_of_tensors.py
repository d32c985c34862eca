"""A user's program over tensors of ranges, and pools as other libraries take them."""

from __future__ import annotations

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


if __name__ == "__main__":
    views()
    pools()
