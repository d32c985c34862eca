"""A pool as FlashInfer's and vLLM's tensors: every element at the address that KVLayout gives it."""

import itertools

import numpy as np
import pytest

import paged
import vmm
from paged.interop import flashinfer, vllm

UNIT = 2 << 20
ORDERS = ("block", "layer")


def new_pool(device, *, order, layout, block_size=16, dtype="float16", kv_heads=2, head_dim=8, components=2):
    spec = paged.KVSpec(layers=2, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype, components=components)
    return paged.KVPool(device, paged.KVLayout(spec, block_size, order=order, layout=layout), blocks=3, prealloc=True)


def numbered(pool):
    """Every element of the pool's memory holds its own number in its range."""
    kind = {1: "uint8", 2: "uint16", 4: "uint32"}[pool.layout.spec.element_bytes]
    memory = pool.range.array(kind, pool.committed // pool.layout.spec.element_bytes)
    memory[:] = np.arange(len(memory)).astype(kind)
    return memory


def check_element_by_element(pool, tensor, address_of):
    """``tensor`` [...] has at each index what lies at ``address_of(*index)``."""
    memory = numbered(pool)
    found = np.asarray(tensor).view(memory.dtype)
    size = pool.layout.spec.element_bytes
    for index in itertools.product(*map(range, found.shape)):
        where = address_of(*index) - pool.range.base
        assert where % size == 0
        assert found[index] == memory[where // size], index
    del memory, found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layer", [pytest.param(0, marks=pytest.mark.exhaustive), 1])
@pytest.mark.parametrize(
    ("layout", "names", "extents"),
    [("nhd", ("slot", "head", "d"), (16, 2, 8)), ("hnd", ("head", "slot", "d"), (2, 16, 8))],
)
def test_flashinfers_caches(device, order, layer, layout, names, extents):
    with new_pool(device, order=order, layout=layout) as pool:

        def at(block, component, *inside):
            place = dict(zip(names, inside, strict=True))
            return pool.address(block=block, layer=layer, component=component, **place)

        assert flashinfer.kv_layout(pool) == layout.upper()
        tensor = flashinfer.cache(pool, layer)
        assert tensor.shape == (3, 2, *extents)
        check_element_by_element(pool, tensor, at)
        for component, each in enumerate(flashinfer.separate_caches(pool, layer)):
            assert each.shape == (3, *extents)
            check_element_by_element(pool, each, lambda block, *inside, c=component: at(block, c, *inside))
        del tensor, each


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", ["nhd", "hnd"])
@pytest.mark.parametrize("blocks_first", [False, True])
def test_vllms_cache_has_its_axes_whatever_lies_first_in_memory(device, order, layout, blocks_first):
    with new_pool(device, order=order, layout=layout) as pool:
        tensor = vllm.cache(pool, 1, blocks_first=blocks_first)
        assert tensor.shape == ((3, 2, 16, 2, 8) if blocks_first else (2, 3, 16, 2, 8))

        def at(first, second, slot, head, d):
            block, component = (first, second) if blocks_first else (second, first)
            return pool.address(block=block, layer=1, component=component, head=head, slot=slot, d=d)

        check_element_by_element(pool, tensor, at)
        del tensor


@pytest.mark.parametrize("order", ORDERS)
def test_vllms_split_cache(device, order):
    with new_pool(device, order=order, layout="vllm", head_dim=16) as pool:
        key, value = vllm.split_cache(pool, 1)
        assert (key.shape, value.shape) == ((3, 2, 2, 16, 8), (3, 2, 16, 16))
        place = {"layer": 1}
        check_element_by_element(
            pool, key, lambda b, h, piece, s, x: pool.address(block=b, head=h, slot=s, d=8 * piece + x, **place)
        )
        check_element_by_element(
            pool, value, lambda b, h, d, s: pool.address(block=b, component=1, head=h, slot=s, d=d, **place)
        )
        del key, value


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("block_size", [1, 7])
def test_flashinfers_latent_and_odd_pages(device, order, block_size):
    shape = {"kv_heads": 1, "head_dim": 12, "components": 1, "block_size": block_size}
    with new_pool(device, order=order, layout="nhd", **shape) as pool:
        tensor = flashinfer.mla_cache(pool, 1)
        assert tensor.shape == (3, block_size, 12)
        check_element_by_element(pool, tensor, lambda b, s, d: pool.address(block=b, layer=1, slot=s, d=d))
        del tensor


@pytest.mark.parametrize(("dtype", "expected"), [("bfloat16", "bfloat16"), ("e4m3", "float8_e4m3fn"), ("int8", "int8")])
def test_a_cache_has_the_type_of_its_numbers(device, dtype, expected):
    with new_pool(device, order="layer", layout="nhd", dtype=dtype) as pool:
        assert flashinfer.cache(pool, 0).dtype.name == expected


@pytest.mark.parametrize(
    ("made", "call", "text"),
    [
        ({"layout": "vllm"}, flashinfer.cache, "takes pools of layout 'nhd' or 'hnd', and this one is 'vllm'"),
        ({"layout": "vllm"}, flashinfer.separate_caches, "FlashInfer takes pools of layout"),
        ({"layout": "vllm"}, vllm.cache, "vLLM takes pools of layout"),
        ({"layout": "nhd"}, vllm.split_cache, "layout 'vllm', and this pool is 'nhd'"),
        ({"layout": "nhd", "block_size": 7}, vllm.cache, "a multiple of 16 tokens, and these have 7"),
        ({"layout": "nhd", "components": 1}, flashinfer.cache, "flashinfer.mla_cache"),
        ({"layout": "nhd", "components": 1}, vllm.cache, "holds one latent and no V"),
        ({"layout": "nhd"}, flashinfer.mla_cache, "take flashinfer.cache"),
    ],
)
def test_what_a_layout_cannot_be_is_one_line(device, made, call, text):
    with new_pool(device, order="block", **made) as pool:
        with pytest.raises(ValueError, match=text) as caught:
            call(pool, 0)
        assert "\n" not in str(caught.value)
        del caught


def test_a_layer_that_is_not_there_is_refused(device):
    with new_pool(device, order="block", layout="nhd") as pool, pytest.raises(vmm.RangeError, match="layer 2"):
        flashinfer.cache(pool, 2)


# -- lifetimes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_memory_comes_and_goes_beneath_a_cache(device, order):
    spec = paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16")
    with paged.KVPool(device, paged.KVLayout(spec, 16, order=order, layout="nhd"), budget="32 MiB") as pool:
        tensor = flashinfer.cache(pool, 1)
        assert pool.committed == 0
        array = np.asarray(tensor)
        blocks = pool.allocate(20)
        pool.view(blocks[3], 1, 1)[:] = 5
        assert (array[blocks[3], 1] == 5).all()
        pool.free(blocks)
        pool.collect(wait=True)
        assert pool.committed == 0
        with pytest.raises(vmm.StateError, match="somebody has its addresses"):
            pool.close()
        del tensor, array
