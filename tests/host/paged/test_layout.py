"""Strides: every number of every block has one address, and the layouts are what their names say."""

import itertools

import numpy as np
import pytest

import paged
from paged.layout import LAYOUTS, ORDERS, K, V
from paged.place import Place, place_of
from vmm import RangeError

BASE = 1 << 40
BLOCKS = 3


def indices(spec, size):
    return itertools.product(
        range(BLOCKS),
        range(spec.layers),
        range(spec.components),
        range(spec.kv_heads),
        range(size),
        range(spec.head_dim),
    )


def address(layout, block, layer, component, head, slot, d):
    return layout.address(BASE, BLOCKS, block=block, layer=layer, component=component, head=head, slot=slot, d=d)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(
    ("spec", "size", "chunk"),
    [
        (paged.KVSpec(2, 2, 8, "float16"), 4, 512),  # blocks divide the chunk
        (paged.KVSpec(3, 2, 8, "float32"), 3, 1000),  # blocks straddle
        (paged.KVSpec(2, 1, 16, "float16"), 1, 64),  # blocks are larger than a chunk
        (paged.KVSpec(2, 1, 16, "bfloat16", components=1), 4, 100),  # one latent
    ],
)
def test_addresses_are_distinct_and_cover_exactly_the_blocks(order, name, spec, size, chunk):
    layout = paged.KVLayout(spec, size, order, name, chunk)
    seen = {}
    for place in indices(spec, size):
        found = address(layout, *place)
        assert found not in seen
        assert place_of(layout, found - BASE, BLOCKS) == Place(*place)
        seen[found] = place
    elements = BLOCKS * size * spec.token_bytes // spec.element_bytes
    assert len(seen) == elements
    for block in range(BLOCKS):
        for plane in range(layout.planes):
            start = BASE + plane * layout.plane_stride(BLOCKS) + block * layout.block_stride
            inside = set(range(start, start + layout.block_stride, spec.element_bytes))
            owned = {a for a, p in seen.items() if p[0] == block and layout.plane(p[1]) == plane}
            assert owned == inside


@pytest.mark.parametrize("order", ORDERS)
def test_planes_are_whole_chunks_and_rows_hold_the_blocks(order):
    layout = paged.KVLayout(paged.KVSpec(3, 2, 8, "float32"), 3, order, "hnd", 1000)
    assert layout.planes == {"block": 1, "layer": 3}[order]
    assert layout.block_bytes == 3 * 3 * 2 * 2 * 8 * 4  # slots, layers, K and V, heads, numbers, bytes
    assert layout.block_stride * layout.planes == layout.block_bytes
    assert layout.plane_stride(BLOCKS) % layout.chunk == 0
    assert layout.reserve_bytes(BLOCKS) == layout.planes * layout.plane_stride(BLOCKS)
    for block, layer in itertools.product(range(BLOCKS), range(3)):
        first, last = (address(layout, block, layer, *end) - BASE for end in ((K, 0, 0, 0), (V, 1, 2, 7)))
        chunks = {chunk for row in layout.rows(BLOCKS).of(block) for chunk in layout.chunks_of(row, BLOCKS)}
        assert {first // layout.chunk, (last + 3) // layout.chunk} <= chunks


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layouts_are_arrays_of_the_stated_axes(dtype):
    """The axes of each layout as NumPy strides them."""
    spec, size = paged.KVSpec(1, 2, 16, dtype), 4
    e, x = spec.element_bytes, 16 // spec.element_bytes
    for name, component, axes in [
        ("hnd", K, lambda h, s, d: ((2, size, 16), (h, s, d))),
        ("nhd", V, lambda h, s, d: ((size, 2, 16), (s, h, d))),
        ("vllm", K, lambda h, s, d: ((2, 16 // x, size, x), (h, d // x, s, d % x))),
        ("vllm", V, lambda h, s, d: ((2, 16, size), (h, d, s))),
    ]:
        layout = paged.KVLayout(spec, size, "block", name, 1 << 20)
        start = address(layout, 0, 0, component, 0, 0, 0)
        for head, slot, d in itertools.product(range(2), range(size), range(16)):
            shape, index = axes(head, slot, d)
            assert layout.component_shape(component) == shape
            expected = start + e * int(np.ravel_multi_index(index, shape))
            assert address(layout, 0, 0, component, head, slot, d) == expected


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_kernels_are_given_the_same_addresses(order, name):
    spec, size = paged.KVSpec(2, 2, 16, "float16"), 4
    layout = paged.KVLayout(spec, size, order, name, 1 << 10)
    x = layout.vector
    for place in indices(spec, size):
        block, layer, component, head, slot, d = place
        kv = layout.kv(BASE, BLOCKS, layer)
        inside = slot * kv.slot_stride + d
        if name == "vllm":
            inside = d // x * size * x + slot * x + d % x if component == K else d * size + slot
        element = block * kv.block_stride + head * kv.head_stride + inside
        assert (kv.value if component else kv.key) + 2 * element == address(layout, *place)


def test_offsets_pass_32_bits():
    layout = paged.KVLayout(paged.model("llama-3-8b").groups[0], 16, "layer")
    blocks = 1 << 20
    kv = layout.kv(BASE, blocks, 31)
    assert kv.key == BASE + 31 * (blocks << 16)  # 64 KiB of a layer a block
    assert layout.address(BASE, blocks, block=blocks - 1, layer=31) == kv.key + (blocks - 1) * 65536


@pytest.mark.parametrize(
    ("name", "order", "stride", "row", "blocks"),
    [
        ("llama-3-8b", "block", 2 << 20, 2 << 20, 32768),
        ("llama-3-8b", "layer", 64 << 10, 64 << 20, 32768),
        ("llama-3-70b", "block", 5 << 20, 2 << 20, 13107),  # 2.5 chunks: 65536 / 5 rounded down
        ("qwen2.5-7b", "block", 896 << 10, 2 << 20, 74898),
    ],
)
def test_sizes_of_real_models_in_64_gib(name, order, stride, row, blocks):
    layout = paged.KVLayout(paged.model(name).groups[0], 16, order)
    assert (layout.block_stride, layout.row_bytes) == (stride, row)
    assert layout.blocks_in(64 << 30) == blocks


def test_bytes_that_belong_to_no_block():
    layout = paged.KVLayout(paged.KVSpec(1, 1, 8, "float16"), 1, chunk=100)  # blocks of 32 bytes, 3 in a row
    assert place_of(layout, 96, 3) is None
    with pytest.raises(RangeError, match="offset 100 is outside the 100 bytes"):
        place_of(layout, 100, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_size": 0}, "block_size must be 1 to 256 tokens, not 0"),
        ({"block_size": 257}, "not 257"),
        ({"order": "head"}, "order 'head' is unknown"),
        ({"layout": "nhdx"}, "layout 'nhdx' is unknown"),
        ({"chunk": 0}, "chunk must be at least 1 byte, not 0"),
        ({"layout": "vllm", "spec": paged.KVSpec(1, 1, 10, "float16")}, "splits heads by 8; head_dim 10 cannot be"),
    ],
)
def test_a_wrong_value_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        paged.KVLayout(**{"spec": paged.KVSpec(1, 1, 16, "float16")} | change)


def test_a_latent_has_no_value_for_the_kernels():
    layout = paged.KVLayout(paged.KVSpec(1, 1, 64, "float16", components=1))
    with pytest.raises(ValueError, match="one latent component is not supported yet"):
        layout.kv(BASE, BLOCKS, 0)


@pytest.mark.parametrize("name", ["block_size", "chunk"])
@pytest.mark.parametrize("value", [16.0, "16", True, None])
def test_counts_are_whole_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        paged.KVLayout(paged.KVSpec(2, 2, 64), **{name: value})


def test_numpy_counts_become_ints():
    layout = paged.KVLayout(paged.KVSpec(2, 2, 64), np.int16(16), chunk=np.int32(2 << 20))
    assert (type(layout.block_size), type(layout.chunk)) == (int, int)
