"""Ten ways to run out of blocks: each is explained by its cause, and the remedy that is named first works."""

import contextlib

import numpy as np
import pytest

import paged
import vmm
from paged.shortage.remedies import copy_of

MIB = 1 << 20
ROW = 2 * MIB


@contextlib.contextmanager
def pool_of(device, **options):
    """Blocks of 512 KiB, four a row of 2 MiB."""
    layout = paged.KVLayout(paged.KVSpec(1, 1, 4096, "float32"), 16, "block")
    with paged.KVPool(device, layout, **{"budget": 4 * ROW, "name": "kv", **options}) as pool:
        yield pool
        pool.check()


def sequence_of(pool, blocks):
    sequence = pool.sequence()
    sequence.append(16 * blocks)
    return sequence


def report_of(pool, blocks):
    """What the refused call says; the same as the question."""
    with pytest.raises(vmm.OutOfMemoryError) as refused:
        pool.allocate(blocks)
    assert refused.value.report == pool.shortage(blocks)
    return refused.value.report


def test_what_can_be_had_is_no_shortage(device):
    with pool_of(device) as pool:
        assert pool.shortage(16) is None
        assert pool.shortage(17).asked == 17


# -- ten situations ---------------------------------------------------------------------------------------------


def test_1_no_addresses(device):
    with pool_of(device, blocks=6) as pool:
        sequence_of(pool, 5)
        found = report_of(pool, 3)
        assert (found.cause, found.granted, found.limit.allows) == ("virtual range", 1, 1)
        assert found.remedies[0].action == "more blocks"
        with pool_of(device, blocks=found.remedies[0].value) as larger:
            sequence_of(larger, 5)
            assert len(larger.allocate(3)) == 3


def test_2_sequences_fill_the_budget(device):
    with pool_of(device) as pool:
        sequences = [sequence_of(pool, blocks) for blocks in (6, 3, 7)]
        found = report_of(pool, 3)
        assert (found.cause, found.granted) == ("budget", 0)
        assert [(one.name, one.bytes) for one in found.holders] == [
            (f"sequence {one.row}", len(one.table) * MIB // 2) for one in sequences
        ]
        free = next(one for one in found.remedies if one.action == "free")
        assert (free.value, free.allows) == ((sequences[1].row,), 3)  # the shortest that is enough
        assert "48 tokens to compute again" in free.cost
        sequences[1].free()
        assert len(pool.allocate(3)) == 3


def test_3_the_budget_is_too_small_for_the_request(device):
    with pool_of(device) as pool:
        found = report_of(pool, 30)
        assert (found.cause, found.granted) == ("budget", 16)
        first = found.remedies[0]
        assert (first.action, first.value) == ("raise budget", 8 * ROW)  # 30 blocks are 7.5 rows
        assert [one.action for one in found.remedies] == ["raise budget"]  # there is no sequence to end
        pool.set_budget(first.value)
        assert len(pool.allocate(30)) == 30


def test_4_several_sequences_must_go(device):
    with pool_of(device) as pool:
        sequences = [sequence_of(pool, 4) for _ in range(4)]
        found = report_of(pool, 7)
        free = next(one for one in found.remedies if one.action == "free")
        assert free.value == tuple(one.row for one in sequences[2:])  # the youngest
        for one in sequences[2:]:
            one.free()
        assert len(pool.allocate(7)) == 7


def test_5_fragments_of_a_lowered_budget(device):
    with pool_of(device) as pool:
        sequences = [sequence_of(pool, 1) for _ in range(16)]
        for one in sequences[1:4] + sequences[5:8] + sequences[9:12] + sequences[13:]:
            one.free()
        assert not pool.set_budget(2 * ROW)
        found = report_of(pool, 2)
        assert (found.cause, found.limit.name, found.granted) == ("fragmentation", "lowered budget", 0)
        assert found.remedies[0].action == "compact"
        assert found.remedies[0].cost == "copies 1.50 MiB"
        pool.compact()
        assert len(pool.allocate(2)) == 2


def test_6_pins_keep_the_fragments_where_they_are(device):
    with pool_of(device) as pool:
        sequences = [sequence_of(pool, 1) for _ in range(16)]
        pins = [pool.range.pin(row * ROW, (row + 1) * ROW, f"graph {row}") for row in range(4)]
        for one in sequences[1:4] + sequences[5:8] + sequences[9:12] + sequences[13:]:
            one.free()
        assert not pool.set_budget(2 * ROW)
        found = report_of(pool, 2)
        assert (found.cause, found.limit.name) == ("pinned", "lowered budget")
        assert (found.remedies[0].action, found.remedies[0].value) == (
            "unpin",
            ("graph 0", "graph 1", "graph 2", "graph 3"),
        )
        for pin in pins:
            pin.close()
        pool.compact()
        assert len(pool.allocate(2)) == 2


def test_7_the_ceiling_of_a_share(device):
    with vmm.ChunkSupply(device, ROW, budget=20 * ROW) as supply:
        share = supply.share("llama", ceiling=2 * ROW)
        with pool_of(device, budget=16 * ROW, supply=share) as pool:
            sequence_of(pool, 8)
            found = report_of(pool, 2)
            assert (found.cause, found.granted) == ("ceiling", 0)
            assert "share 'llama' has 4 MiB of its ceiling 4 MiB" in found.limit.text
            assert (found.remedies[0].action, found.remedies[0].value) == ("raise ceiling", 3 * ROW)
            share.set_bounds(ceiling=found.remedies[0].value)
            assert len(pool.allocate(2)) == 2
        share.close()


def test_8_another_pool_fills_the_shared_budget(device):
    with vmm.ChunkSupply(device, ROW, budget=4 * ROW) as supply:
        shares = supply.share("llama"), supply.share("qwen")
        with pool_of(device, supply=shares[0]) as mine, pool_of(device, supply=shares[1], name="other") as other:
            theirs = sequence_of(other, 12)
            sequence_of(mine, 4)
            found = report_of(mine, 5)
            assert (found.cause, found.granted) == ("shared budget", 0)
            assert {(one.name, one.bytes) for one in found.holders} == {("llama", ROW), ("qwen", 3 * ROW)}
            assert (found.remedies[0].action, found.remedies[0].value) == ("raise shared budget", 2 * ROW)
            theirs.free()  # that much elsewhere, and more
            assert len(mine.allocate(5)) == 5
        for share in shares:
            share.close()


def test_9_a_floor_that_another_was_promised(device):
    with vmm.ChunkSupply(device, ROW, budget=4 * ROW) as supply:
        mine, other = supply.share("llama"), supply.share("qwen", floor=3 * ROW)
        with pool_of(device, supply=mine) as pool:
            sequence_of(pool, 4)
            found = report_of(pool, 1)
            assert (found.cause, found.limit.name, found.granted) == ("floor", "shared budget", 0)
            assert "2 MiB of 8 MiB are in use, 6 MiB more are promised to others" in found.limit.text
            assert (found.remedies[0].action, found.remedies[0].value) == ("lower floor", ("qwen", 2 * ROW))
            other.set_bounds(floor=found.remedies[0].value[1])
            assert len(pool.allocate(1)) == 1
        mine.close()
        other.close()


def test_10_others_fill_the_device(device):
    with pool_of(device, budget=100 * ROW) as pool, vmm.GrowableRange(device, "256 MiB", name="b") as other:
        sequence_of(pool, 4)
        other.grow(device.memory_info().free - ROW)
        found = report_of(pool, 9)
        assert (found.cause, found.granted) == ("device", 4)
        assert {(one.name, one.bytes) for one in found.holders} == {
            ("range 'kv'", ROW),
            ("range 'b'", other.committed),
        }
        assert (found.remedies[0].action, found.remedies[0].value) == ("free elsewhere", 2 * ROW)
        other.shrink(found.remedies[0].value)
        assert len(pool.allocate(9)) == 9


# -- the books --------------------------------------------------------------------------------------------------


def test_portions_add_up(device):
    with pool_of(device, prefix_cache=True, reserve_rows=1) as pool:
        prompt = np.arange(64, dtype=np.int32)
        ended = pool.sequence(prompt)
        ended.append(64)
        ended.free()
        parent = pool.sequence()
        parent.append(24)
        parent.fork()
        raw = pool.allocate(4)
        found = pool.shortage(100)
        sizes = {one.name: one.bytes for one in found.portions}
        block, token = MIB // 2, MIB // 32
        assert sizes["live"] == 24 * token
        assert sizes["tails"] == 8 * token
        assert sizes["by id"] == 4 * block
        assert sizes["cached"] == 4 * block
        assert sum(sizes.values()) == pool.committed
        pool.free(raw)


def test_what_another_pool_of_the_share_spares_is_to_be_had(device):
    with (
        vmm.ChunkSupply(device, ROW) as supply,
        supply.share("llama", ceiling=3 * ROW) as share,
        pool_of(device, supply=share) as mine,
        pool_of(device, supply=share, reserve_rows=2) as other,
    ):
        sequence_of(other, 4)
        other.free(other.allocate(8))
        assert (other.empty_rows, mine.blocks_free) == (2, 8)
        assert mine.shortage(8) is None
        found = mine.shortage(9)
        assert (found.cause, found.granted) == ("ceiling", 8)
        assert (found.remedies[0].action, found.remedies[0].value) == ("raise ceiling", 4 * ROW)
        share.set_bounds(ceiling=found.remedies[0].value)
        assert len(mine.allocate(9)) == 9


def test_the_text_is_five_lines_with_the_numbers(device):
    with pool_of(device) as pool:
        sequence_of(pool, 15).append(0)
        lines = str(pool.shortage(3)).splitlines()
        assert len(lines) == 5
        assert lines[0] == "kv: 3 blocks asked, 1 can be had: budget; 8 MiB of 8 MiB committed"
        assert lines[1] == "in use: live 7.50 MiB, free places 512 KiB"
        assert lines[2] == "the other limits allow: device enough, virtual range enough"
        assert lines[3] == "held by sequence 0 7.50 MiB"
        assert lines[4].startswith(
            "raise the budget to 10 MiB (10485760 bytes) (2 MiB more of the device); or free seq"
        )


def test_a_copy_of_the_books_is_the_books(device):
    with pool_of(device) as pool:
        blocks = pool.allocate(9)
        pool.fork(blocks[:2])
        pool.free(blocks[4:6])
        copy = copy_of(pool.block_pool)
        copy.check()
        assert (copy.used, copy.shared, copy.available) == (7, 2, pool.block_pool.available)
        assert list(copy.committed) == list(pool.block_pool.committed)


def test_a_step_of_a_batch_is_explained_too(device):
    with pool_of(device) as pool:
        batch = paged.Batch(pool, [sequence_of(pool, 8), sequence_of(pool, 8)])
        with pytest.raises(vmm.OutOfMemoryError) as refused:
            batch.append()
        assert (refused.value.report.asked, refused.value.report.cause) == (2, "budget")


@pytest.fixture
def share(device):
    with vmm.ChunkSupply(device, ROW, budget=20 * ROW) as supply, supply.share("llama", ceiling=2 * ROW) as made:
        yield made


def test_the_error_itself_says_what_binds_and_what_helps(device, share):
    with pool_of(device, budget=16 * ROW, supply=share) as pool:
        sequence_of(pool, 8)
        with pytest.raises(
            vmm.OutOfMemoryError, match="0 can be had: ceiling; share 'llama' has 4 MiB of its"
        ) as error:
            pool.allocate(2)
        assert "raise the ceiling of 'llama' to 6 MiB" in str(error.value)
        assert "raise the budget" not in str(error.value)


def test_a_pool_on_a_share_needs_no_bound_of_its_own(device, share):
    with pool_of(device, budget=None, supply=share) as pool:
        assert (pool.blocks_total, pool.blocks_free) == (8, 8)
        assert pool.block_pool.rows.blocks == 16
        assert len(pool.allocate(8)) == 8
    with pool_of(device, budget=None, blocks=2000, supply=share) as pool:
        assert pool.blocks_total == 8
    unbounded = vmm.ChunkSupply(device, ROW)
    with unbounded, pytest.raises(ValueError, match="needs blocks=, budget= or both, or a supply= with a budget"):
        paged.KVPool(device, pool.layout, supply=unbounded)
