"""Append, decode and gather on a pool, against the reference, in every layout and order."""

import ml_dtypes
import numpy as np
import pytest

import kernels_cu
import paged
import vmm
from kernels_cu import reference
from paged import attention
from paged.layout import LAYOUTS, ORDERS

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
BOUNDS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # relative to max |V|

pytestmark = pytest.mark.usefixtures("compiler")


def filled(pool, lengths, seed):
    """Sequences of these lengths with random K and V in every layer, in blocks that interleave; NaN elsewhere."""
    draw = np.random.default_rng(seed)
    spec = pool.layout.spec
    sequences = [pool.sequence() for _ in lengths]
    slots = [[] for _ in lengths]
    for step in range(0, max(lengths), 16):  # in turns, so that their blocks interleave
        for sequence, length, found in zip(sequences, lengths, slots, strict=True):
            found.append(sequence.append(max(0, min(16, length - step))))
    for run in pool.range.runs():
        pool.range.array(spec.dtype, (run.stop - run.start) // spec.element_bytes, run.start)[...] = np.nan
    content = []
    for layer in range(spec.layers):
        drawn = [draw.standard_normal((2, n, spec.kv_heads, spec.head_dim)).astype(DTYPES[spec.dtype]) for n in lengths]
        for (key, value), found in zip(drawn, slots, strict=True):
            attention.append(pool, layer, key, value, np.concatenate(found))
        content.append(drawn)
    return sequences, content


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_decode_and_gather_agree_with_the_reference(device, order, name, dtype):
    spec = paged.KVSpec(2, 2, 16, dtype)
    layout = paged.KVLayout(spec, 16, order, name)
    with paged.KVPool(device, layout, budget=8 * layout.row_bytes) as pool:
        sequences, content = filled(pool, [1, 16, 17, 100], seed=1)
        query = np.random.default_rng(2).standard_normal((4, 8, 16)).astype(DTYPES[dtype])
        for layer in range(2):
            keys, values = ([kv[part] for kv in content[layer]] for part in (0, 1))
            expected = reference.paged_attention(query, keys, values)
            out = attention.decode(pool, layer, query, sequences)
            assert out.dtype == query.dtype
            largest = max(np.abs(value.astype(np.float64)).max() for value in values)
            assert np.abs(out.astype(np.float64) - expected).max() <= BOUNDS[dtype] * largest
            for sequence, key, value in zip(sequences, keys, values, strict=True):
                found = attention.gather(pool, layer, sequence)
                assert np.array_equal(found[0], key)
                assert np.array_equal(found[1], value)
        pool.check()


def test_a_sequence_without_tokens_gives_zeros(device):
    layout = paged.KVLayout(paged.KVSpec(1, 1, 8, "float32"))
    with paged.KVPool(device, layout, budget="2 MiB") as pool:
        sequence = pool.sequence()
        assert not attention.decode(pool, 0, np.ones((1, 1, 8), np.float32), [sequence]).any()
        assert [part.shape for part in attention.gather(pool, 0, sequence)] == [(0, 1, 8)] * 2


def test_a_forked_sequence_attends_to_what_it_shares_and_what_it_adds(device):
    layout = paged.KVLayout(paged.KVSpec(1, 2, 8, "float32"))
    with paged.KVPool(device, layout, budget="2 MiB") as pool:
        (parent,), content = filled(pool, [20], seed=3)
        key, value = content[0][0]
        child = parent.fork()
        more = np.random.default_rng(4).standard_normal((2, 1, 2, 8)).astype(np.float32)
        attention.append(pool, 0, more[0], more[1], child.append(1))
        query = np.random.default_rng(5).standard_normal((2, 4, 8)).astype(np.float32)
        keys, values = [key, np.concatenate([key, more[0]])], [value, np.concatenate([value, more[1]])]
        expected = reference.paged_attention(query, keys, values)
        np.testing.assert_allclose(attention.decode(pool, 0, query, [parent, child]), expected, atol=1e-5)


def test_a_block_without_memory_is_a_fault_that_names_the_range(device):
    layout = paged.KVLayout(paged.KVSpec(1, 1, 8, "float32"), chunk=device.granularity)
    with paged.KVPool(device, layout, blocks=100_000) as pool:
        pool.sequence().append(1)
        token, far = np.ones((1, 1, 8), np.float32), np.array([90_000 * 16], np.int64)
        address = pool.address(block=90_000)
        with pytest.raises(vmm.DriverError, match=f"ILLEGAL_ADDRESS.*write of {address:#x}") as info:
            attention.append(pool, 0, token, token, far)
        assert info.value.code == 700


def test_arrays_that_do_not_fit_are_refused(device):
    layout = paged.KVLayout(paged.KVSpec(1, 1, 8, "float32"))
    with paged.KVPool(device, layout, budget="2 MiB") as pool:
        sequence = pool.sequence()
        slots = sequence.append(2)
        wrong = np.ones((1, 1, 8), np.float32)
        with pytest.raises(kernels_cu.LaunchError, match="key must have shape"):
            attention.append(pool, 0, wrong, wrong, slots)


def test_a_latent_has_no_attention_yet(device):
    layout = paged.KVLayout(paged.KVSpec(1, 1, 64, "float32", components=1))
    with (
        paged.KVPool(device, layout, budget="2 MiB") as pool,
        pytest.raises(ValueError, match="one latent component is not supported yet"),
    ):
        attention.decode(pool, 0, np.ones((0, 1, 64), np.float32), [])
