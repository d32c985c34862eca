"""JAX on memory of a range: the true library on the CPU, by DLPack alone."""

import gc

import numpy as np
import pytest

import vmm

jax = pytest.importorskip("jax", reason="needs JAX: python -m pip install jax")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_jax_takes_the_memory_without_a_copy_and_keeps_it(device, dtype):
    with vmm.GrowableRange(device, "16 MiB", name="kv") as memory:
        memory.grow("2 MiB")
        memory.array(dtype, (4, 8))[:] = np.arange(8)
        array = jax.dlpack.from_dlpack(memory.tensor(dtype, (4, 8)))
        assert (str(array.dtype), array.unsafe_buffer_pointer()) == (dtype, memory.base)
        assert float(array.sum()) == 4 * 28
        with pytest.raises(vmm.StateError, match="still views them"):
            memory.shrink("2 MiB")
        del array
        gc.collect()
        memory.shrink("2 MiB")
