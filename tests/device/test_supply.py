"""Prefetched chunks on a GPU: made in a thread without a context, mapped by another, and all of them given back."""

import vmm


def test_prefetched_chunks_are_the_gpus_memory(gpu):
    size, free = gpu.granularity, gpu.memory_info().free
    with vmm.ChunkSupply(gpu, prefetch=64 * size) as supply:
        assert supply.wait_prefetched(60)
        assert supply.prefetch_error is None
        assert free - gpu.memory_info().free >= 64 * size
        with vmm.GrowableRange(gpu, 256 * size, supply=supply) as memory, gpu.current():
            memory.grow(64 * size)
            gpu.driver.fill_async(memory.base, 0x5A, 64 * size)
            gpu.synchronize()
            found = bytearray(64 * size)
            gpu.driver.copy_out(found, memory.base, 64 * size)
            assert found == b"\x5a" * (64 * size)
            assert supply.wait_prefetched(60)
            assert supply.cached == 64 * size
    assert gpu.memory_info().free == free
