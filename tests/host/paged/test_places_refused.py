"""Layers, blocks, heads, slots and sequences that are not there are refused before a byte is touched.

Most of them would otherwise be the address of another token, silently.
"""

import numpy as np
import pytest

import paged
import vmm
from paged import attention


@pytest.fixture(params=["block", "layer"])
def pool(device, request):
    layout = paged.KVLayout(paged.KVSpec(4, 2, 64, "float32"), 16, request.param)
    with paged.KVPool(device, layout, blocks=64) as found:
        yield found


@pytest.fixture
def one(pool):
    sequence = pool.sequence()
    slots = sequence.append(3)
    rows = np.ones((3, 2, 64), np.float32)
    return sequence, slots, rows, np.ones((1, 4, 64), np.float32)


@pytest.mark.parametrize("layer", [4, -1, 9])
def test_a_layer_that_is_not_there_is_refused_everywhere(pool, one, layer):
    sequence, slots, rows, query = one
    before = bytes(pool.range.array("uint8", pool.committed if pool.layout.planes == 1 else 4096))
    for use in (
        lambda: attention.append(pool, layer, rows, rows, slots),
        lambda: attention.decode(pool, layer, query, [sequence]),
        lambda: attention.gather(pool, layer, sequence),
        lambda: attention.gather(pool, layer, pool.sequence()),
        lambda: pool.kv(layer),
        lambda: pool.view(0, layer),
        lambda: pool.address(block=0, layer=layer),
    ):
        with pytest.raises(vmm.RangeError, match=rf"layer {layer} is not there; the pool has layer 0 to 3"):
            use()
    assert bytes(pool.range.array("uint8", len(before))) == before


@pytest.mark.parametrize(("place", "count"), [("block", None), ("component", 2), ("head", 2), ("slot", 16), ("d", 64)])
def test_an_address_beyond_its_block_or_pool_is_refused(pool, place, count):
    count = pool.block_pool.rows.blocks if count is None else count
    for value in (-1, count, 10**6):
        with pytest.raises(vmm.RangeError, match=f"{place} {value} is not there"):
            pool.address(**{"block": 0, place: value})
    assert pool.address(**{"block": 0, place: count - 1}) >= pool.range.base


def test_a_slot_beyond_the_pool_is_refused(pool, one):
    _, slots, rows, _ = one
    end = pool.block_pool.rows.blocks * 16
    with pytest.raises(vmm.RangeError, match=f"slot {end} is not there"):
        attention.append(pool, 0, rows, rows, np.array([slots[0], -1, end]))


def test_a_freed_or_foreign_sequence_is_refused(device, pool, one):
    sequence, _, _, query = one
    with paged.KVPool(device, pool.layout, blocks=64, name="other") as other:
        foreign = other.sequence()
        foreign.append(3)
        for use in (
            lambda: attention.decode(pool, 0, query, [foreign]),
            lambda: attention.gather(pool, 0, foreign),
        ):
            with pytest.raises(ValueError, match="'other' was given to 'kv', another pool"):
                use()
    sequence.free()
    for use in (
        lambda: attention.decode(pool, 0, query, [sequence]),
        lambda: attention.gather(pool, 0, sequence),
    ):
        with pytest.raises(vmm.ClosedError, match="freed"):
            use()


def test_a_query_needs_a_row_for_each_sequence(pool, one):
    sequence, _, _, query = one
    with pytest.raises(ValueError, match="query has 1 rows for 2 sequences"):
        attention.decode(pool, 0, query, [sequence, pool.sequence()])


def test_a_layout_of_a_whole_model_is_refused():
    with pytest.raises(ValueError, match=r"one KVSpec, not ModelSpec; a model has them in model\(\.\.\.\)\.groups"):
        paged.KVLayout(paged.model("llama-3-8b"))
