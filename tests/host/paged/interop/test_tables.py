"""Page tables as FlashInfer and vLLM take them, followed as their documentation says: to each token's K and V."""

import numpy as np
import pytest

import paged
from paged.interop import flashinfer, vllm

ORDERS = ("block", "layer")
LENGTHS = (1, 16, 17, 40, 5)


@pytest.fixture(params=ORDERS)
def pool(device, request):
    spec = paged.KVSpec(layers=2, kv_heads=2, head_dim=8, dtype="float32")
    layout = paged.KVLayout(spec, 16, order=request.param, layout="nhd")
    with paged.KVPool(device, layout, budget="16 MiB") as made:
        yield made


def key_of(sequence, token, head):
    """A K that is nobody else's."""
    return 1000 * sequence + token + head / 4 + np.arange(8) / 64


def filled(pool, lengths=LENGTHS):
    """Sequences whose K, written token by token, names the sequence and the token; V is its negative."""
    found = []
    for number, length in enumerate(lengths):
        sequence = pool.sequence()
        for token, slot in enumerate(sequence.append(length).tolist()):
            block, offset = divmod(slot, 16)
            for component, sign in enumerate((1, -1)):
                view = pool.view(block, 1, component)
                for head in range(2):
                    view[offset, head] = sign * key_of(number, token, head)
                del view
        found.append(sequence)
    return found


def test_flashinfers_table_leads_to_every_token(pool):
    sequences = filled(pool)
    table, cache = flashinfer.page_table(pool, sequences), np.asarray(flashinfer.cache(pool, 1))
    assert [array.dtype for array in (table.indptr, table.indices, table.last_page_len)] == [np.int32] * 3
    assert table.indptr.tolist() == [0, 1, 2, 4, 7, 8]
    assert table.last_page_len.tolist() == [1, 16, 1, 8, 5]
    for number, length in enumerate(LENGTHS):
        pages = table.indices[table.indptr[number] : table.indptr[number + 1]]
        assert 16 * (len(pages) - 1) + table.last_page_len[number] == length  # as FlashInfer counts
        tokens = cache[pages].swapaxes(1, 2).reshape(-1, 2, 2, 8)[:length]  # [token, K or V, head, d]
        expected = np.array([[key_of(number, token, head) for head in range(2)] for token in range(length)])
        assert (tokens[:, 0] == expected.astype(np.float32)).all()
        assert (tokens[:, 1] == -expected.astype(np.float32)).all()
    del cache


def test_vllms_table_and_slots_lead_to_every_token(pool):
    sequences = filled(pool)
    table, cache = vllm.block_table(pool, paged.Batch(pool, sequences)), np.asarray(vllm.cache(pool, 1))
    assert (table.block_table.dtype, table.block_table.shape) == (np.int32, (5, 3))
    assert table.seq_lens.tolist() == list(LENGTHS)
    for number, length in enumerate(LENGTHS):
        assert (table.block_table[number, -(-length // 16) :] == 0).all()
        for token in range(length):
            block = table.block_table[number, token // 16]
            for head in range(2):
                assert (cache[0, block, token % 16, head] == key_of(number, token, head).astype(np.float32)).all()
    slots = sequences[0].append(3)  # vLLM's slot_mapping: its reshape_and_cache_flash writes at block, offset
    assert slots.dtype == np.int64
    blocks, offsets = np.divmod(slots, 16)
    cache[0, blocks, offsets] = 7
    assert (pool.view(int(blocks[2]), 1)[offsets[2]] == 7).all()
    del cache


def test_a_row_that_was_anothers_has_no_blocks_of_it(pool):
    before = pool.sequence()
    before.append(100)
    row = before.row
    before.free()
    sequences = [pool.sequence(), pool.sequence()]
    assert row in [sequence.row for sequence in sequences]
    for sequence, length in zip(sequences, (3, 100), strict=True):
        sequence.append(length)
    found = vllm.block_table(pool, sequences).block_table
    for sequence, ids in zip(sequences, found.tolist(), strict=True):
        assert ids == sequence.table + [0] * (7 - len(sequence.table))
    assert flashinfer.page_table(pool, sequences).indices.tolist() == sequences[0].table + sequences[1].table


def test_a_sequence_that_dropped_its_front_begins_behind_it(pool):
    (sequence,) = filled(pool, lengths=(70,))
    sequence.drop_before(40)  # two whole blocks
    table, blocks = flashinfer.page_table(pool, [sequence]), vllm.block_table(pool, [sequence])
    assert (table.indptr.tolist(), table.last_page_len.tolist()) == ([0, 3], [6])
    assert table.indices.tolist() == sequence.held
    assert blocks.block_table.tolist() == [[0, 0, *sequence.held]]
    assert blocks.seq_lens.tolist() == [70]


def test_a_sequence_without_a_token_is_refused_by_flashinfer(pool):
    sequences = [*filled(pool, (3,)), pool.sequence()]
    with pytest.raises(ValueError, match="sequence 1 has no token"):
        flashinfer.page_table(pool, sequences)
    assert vllm.block_table(pool, sequences).seq_lens.tolist() == [3, 0]


def test_pytorch_attends_over_the_pool_through_these(pool):
    """Attention by PyTorch over FlashInfer's tensor and table, against our own kernel's meaning in float64."""
    torch = pytest.importorskip("torch", reason="needs PyTorch: python -m pip install torch")
    sequences = filled(pool)
    cache, table = torch.from_dlpack(flashinfer.cache(pool, 1)), flashinfer.page_table(pool, sequences)
    assert cache.data_ptr() == pool.address(block=0, layer=1)
    rng = np.random.default_rng(1)
    query = rng.standard_normal((len(LENGTHS), 4, 8)).astype(np.float32) / 1000
    for number, length in enumerate(LENGTHS):
        pages = torch.from_numpy(table.indices[table.indptr[number] : table.indptr[number + 1]].astype(np.int64))
        key, value = cache[pages].transpose(1, 2).reshape(-1, 2, 2, 8)[:length].unbind(1)
        of = torch.from_numpy(query[number]).reshape(2, 2, 8)  # two query heads a KV head
        found = torch.nn.functional.scaled_dot_product_attention(of, key.transpose(0, 1), value.transpose(0, 1))
        expected = attention(query[number], *by_address(pool, sequences[number]))
        assert np.allclose(found.reshape(4, 8).numpy(), expected, rtol=2e-5)
        del key, value
    del cache


def by_address(pool, sequence):
    """K and V of a sequence, each number read at its address; float64 [T, Hkv, D]."""
    found = np.empty((2, sequence.length, 2, 8))
    for component, token, head in np.ndindex(2, sequence.length, 2):
        block, slot = paged.locate(token, sequence.table, 16)
        at = pool.address(block=block, layer=1, component=component, head=head, slot=slot) - pool.range.base
        found[component, token, head] = pool.range.array("float32", 8, at)
    return found


def attention(query, key, value):
    """softmax(q k / sqrt(D)) v of one query token: Vaswani et al. 2017, equation 1."""
    out = np.empty(query.shape)
    for head in range(4):
        score = key[:, head // 2] @ query[head].astype(float) / np.sqrt(8)
        weight = np.exp(score - score.max())
        out[head] = weight @ value[:, head // 2] / weight.sum()
    return out
