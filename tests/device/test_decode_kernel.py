"""attention.decode on a GPU: the fast kernel where it has held, either one by name, and the same result from both."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import paged
from kernels_cu import net, reference
from paged import attention

LENGTHS = (1, 17, 333, 2000)


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_either_kernel_agrees_with_float64(gpu, dtype, order):
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    rng, bound = np.random.default_rng(0), {"float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    layout = paged.KVLayout(paged.KVSpec(2, 2, 128, dtype), 16, order)
    with paged.KVPool(gpu, layout, blocks=256) as pool:
        side = pool.range.array(dtype, 0)
        sequences, drawn = [pool.sequence() for _ in LENGTHS], []
        for sequence, length in zip(sequences, LENGTHS, strict=True):
            drawn.append(rng.standard_normal((2, length, 2, 128)).astype(kind))
            key, value = (np.asarray(rows, like=side) for rows in drawn[-1])
            attention.append(pool, 1, key, value, sequence.append(length))
        query = rng.standard_normal((len(LENGTHS), 8, 128)).astype(kind)
        wanted = reference.paged_attention(query, *zip(*drawn, strict=True))
        for kernel in (None, "fast", "simple"):
            out = attention.decode(pool, 1, np.asarray(query, like=side), sequences, kernel=kernel)
            gpu.synchronize()
            assert np.abs(out.get().astype(np.float64) - wanted).max() <= 5 * bound, kernel
        del side


@pytest.mark.parametrize("kernel", net.KERNELS)
def test_the_net_holds(gpu, cupy, kernel):
    layout = paged.KVLayout(paged.KVSpec(1, 8, 128, "bfloat16"))
    with paged.KVPool(gpu, layout, blocks=16) as pool:
        case = net.SmallCase(pool.kv(0), "bfloat16", 4, cupy.asarray, gpu.synchronize)
        assert case.difference(gpu, kernel) <= case.allowed
