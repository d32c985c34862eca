"""Explain: the way back from an address to tokens, against the way down, and what no token has."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import paged
import vmm
from paged.commands.group import main
from paged.explain import Holder, explain_chunk, live_block
from paged.explain_text import explanation_json, explanation_lines
from paged.layout import LAYOUTS, ORDERS
from paged.walk import walk

MIB = 1 << 20


@pytest.fixture
def pool(device):
    layout = paged.KVLayout(paged.KVSpec(1, 2, 256, "float32"), 16, "block")  # 64 KiB a block, 32 blocks a row
    with paged.KVPool(device, layout, budget=16 * MIB, prefix_cache=True, name="kv") as made:
        yield made


def sequence_of(pool, tokens):
    sequence = pool.sequence()
    sequence.append(tokens)
    return sequence


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_walk_leads_back(device, order, name):
    layout = paged.KVLayout(paged.KVSpec(3, 4, 64, "float16"), 16, order, name)
    with paged.KVPool(device, layout, blocks=200) as pool:
        sequences = [sequence_of(pool, tokens) for tokens in (5, 40, 33)]
        for sequence in sequences:
            for token in (0, sequence.length // 2, sequence.length - 1):
                for stop in walk(pool, sequence.table, token, layer=2, head=3).stops:
                    found = pool.explain(stop.translation.address)
                    assert (found.offset, found.chunk.chunk) == (stop.translation.offset, stop.translation.chunk)
                    assert (found.chunk.row, found.chunk.plane) == (stop.row, stop.plane)
                    assert (found.chunk.state, found.chunk.handle) == ("committed", stop.translation.handle)
                    assert (found.place.layer, found.place.head, found.place.d) == (2, 3, 0)
                    assert found.block.holders[0].row == sequence.row
                    assert found.block.holders[0].token(found.place.slot) == token


def test_a_chunk_knows_who_lives_in_it(pool):
    first, second = sequence_of(pool, 40), sequence_of(pool, 16)
    contents = explain_chunk(pool, 0)
    assert [(block.block, block.count) for block in contents.blocks] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert contents.blocks[2].holders == (Holder(first.row, 32, 40),)
    assert contents.blocks[3].holders == (Holder(second.row, 0, 16),)
    assert (contents.free, contents.state, contents.row, contents.plane) == (28, "committed", 0, 0)


def test_a_block_that_straddles_is_in_both_chunks(device, make_layout):
    with paged.KVPool(device, make_layout(80), budget=16 * MIB) as pool:  # 25.6 blocks a chunk
        table = sequence_of(pool, 26 * 16).table
        assert 25 in table
        assert [25 in [one.block for one in explain_chunk(pool, chunk).blocks] for chunk in (0, 1, 2)] == [1, 1, 0]


def test_everybody_who_holds_a_block_is_named(pool):
    prompt = np.arange(40, dtype=np.int32)
    parent = pool.sequence(prompt)
    parent.append(40)
    parent.publish()
    child = parent.fork()
    pool.fork([0])
    found = live_block(pool, 0)
    assert (found.count, found.others, found.cached) == (3, 1, True)
    assert [holder.row for holder in found.holders] == [parent.row, child.row]
    tail = live_block(pool, 2)
    assert (tail.count, tail.others, tail.cached) == (2, 0, False)
    assert [(one.token(7), one.token(8)) for one in tail.holders] == [(39, None), (39, None)]
    text = "\n".join(explanation_lines(pool.explain(pool.address(block=0, slot=3))))
    assert f"sequence {child.row}".ljust(34) + "token 3" in text
    assert "1 more hold it".ljust(34) + "by its id" in text
    assert "the prefix cache has it" in text
    for sequence in (parent, child):
        sequence.free()
    pool.free([0])
    idle = live_block(pool, 0)
    assert (idle.count, idle.cached, idle.holders) == (0, True, ())


def test_dropped_blocks_are_no_longer_a_sequences(pool):
    sequence = sequence_of(pool, 40)
    sequence.drop_before(32)
    assert [holder.start for block in explain_chunk(pool, 0).blocks for holder in block.holders] == [32]
    assert live_block(pool, 0) is None


@pytest.mark.parametrize("device", ["deferred"], indirect=True)
def test_memory_without_tokens_says_what_it_is(pool, device):
    sequence = sequence_of(pool, 40 * 16)  # two rows
    base, chunk = pool.range.base, pool.layout.chunk
    tail = pool.explain(pool.address(block=45))
    assert (tail.chunk.state, tail.block, tail.place.block) == ("committed", None, 45)
    assert "block 45 is free: nobody holds it" in "\n".join(explanation_lines(tail))
    assert pool.explain(base + 5 * chunk).chunk.state == "reserved"
    assert pool.explain(base + 5 * chunk).chunk.handle == 0
    with device.current():
        device.driver.fill_async(pool.address(block=0), 1, 16)
    sequence.free()
    assert [explain_chunk(pool, place).state for place in (0, 1)] == ["retiring", "retiring"]
    pool.collect(wait=True)
    assert explain_chunk(pool, 0).state == "reserved"
    sequence_of(pool, 16)
    residency = vmm.Residency(device)
    residency.add(pool.range, "kv")
    residency.sleep("kv", backup=True)
    assert explain_chunk(pool, 0).state == "asleep"
    residency.wake("kv")
    assert explain_chunk(pool, 0).state == "committed"


def test_what_is_left_over_belongs_to_no_block(device, make_layout):
    with paged.KVPool(device, make_layout(80), blocks=26) as pool:  # 26 x 80 KiB end 16 KiB before the second chunk's
        found = pool.explain(pool.range.base + 26 * 80 * 1024)
        assert (found.place, found.block) == (None, None)
        assert "no block" in "\n".join(explanation_lines(found))


def test_what_is_not_of_the_pool_is_refused(pool):
    base = pool.range.base
    for address in (base - 1, base + pool.reserved, 0):
        with pytest.raises(vmm.RangeError, match=f"address {address:#x} is not of this pool; 'kv' has {base:#x} to"):
            pool.explain(address)
    for chunk in (-1, pool.block_pool.rows.count):
        with pytest.raises(vmm.RangeError, match=f"chunk {chunk} is not there; 'kv' has chunks 0 to"):
            explain_chunk(pool, chunk)


def test_the_command_goes_up_from_an_address():
    def run(*arguments):
        return CliRunner().invoke(main, ["walk", *arguments], env={"VMM_DRIVER": "host"})

    down = json.loads(run("--table", "7,42,9,103", "--token", "37", "--json").stdout)
    offset = down["stops"][1]["offset"]
    up = run("--table", "7,42,9,103", "--address", f"+{offset:#x}")
    assert up.exit_code == 0, up.output
    assert "V of layer 0, head 0" in up.stdout
    assert "sequence 0".ljust(34) + "token 37" in up.stdout
    values = json.loads(run("--address", f"+{offset}", "--json").stdout)
    assert (values["place"]["block"], values["place"]["slot"], values["chunk"]["state"]) == (9, 5, "committed")
    for bad, message in (("x", "'x' is no address"), ("0x12", "address 0x12 is not of this pool")):
        failed = run("--address", bad)
        assert failed.exit_code in (1, 2)
        assert message in failed.stderr
        assert len(failed.stderr.splitlines()) == 1
    assert run("--step", "--address", "+0").exit_code == 2


def test_json_has_every_field(pool):
    sequence_of(pool, 3)
    values = explanation_json(pool.explain(pool.address(block=0, slot=2)))
    assert values["block"] == {
        "block": 0, "count": 1, "cached": False, "holders": ({"row": 0, "start": 0, "stop": 3},),
    }  # fmt: skip
    assert json.loads(json.dumps(values))["chunk"]["blocks"][0]["block"] == 0
