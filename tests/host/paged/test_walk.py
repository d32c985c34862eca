"""Walk: each stop of the chain against the layout, the mapping and the operating system; and the command."""

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import paged
import vmm
from paged.commands.group import main
from paged.layout import LAYOUTS, ORDERS
from paged.place import place_of
from paged.walk import translate, walk

TABLE = [7, 42, 9, 103]


@pytest.fixture
def run():
    def call(*arguments, environment=None):
        return CliRunner().invoke(main, ["walk", *arguments], env={"VMM_DRIVER": "host", **(environment or {})})

    return call


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_stop_agrees_with_its_source(device, order, name):
    layout = paged.KVLayout(paged.KVSpec(3, 4, 64, "float16"), 16, order, name)
    with paged.KVPool(device, layout, blocks=200) as pool:
        pool.claim(TABLE)
        found = walk(pool, TABLE, 37, layer=2, head=3)
        assert (found.logical_block, found.block, found.slot, found.slot_index) == (2, 9, 5, 9 * 16 + 5)
        assert [stop.component for stop in found.stops] == ["K", "V"]
        for component, stop in enumerate(found.stops):
            there = stop.translation
            place = place_of(layout, there.address - pool.range.base, 200)
            assert place == paged.place.Place(9, 2, component, 3, 5, 0)
            mapping = pool.range.mapping(there.chunk)
            assert mapping.address + there.handle_offset == there.address
            assert (there.handle, there.access, there.device) == (mapping.handle, vmm.Access.READWRITE, 0)
            assert there.chunk in layout.chunks_of(stop.row, 200)
            sum_ = there.base + stop.plane * stop.plane_stride + found.block * stop.block_stride + stop.inner
            assert sum_ == there.address


def test_the_operating_system_holds_the_byte_at_that_place(device):
    """Written through the address, read back from the file behind it, at the offset that the system names."""
    layout = paged.KVLayout(paged.KVSpec(1, 1, 8, "float32"))
    with paged.KVPool(device, layout, blocks=8) as pool:
        pool.claim([5])
        stop = walk(pool, [5], 3).stops[0]
        pool.view(5, 0)[0, 3, 0] = 42.5
        system = stop.translation.system
        assert system.permission == "rw-s"
        offset = system.offset + stop.translation.address - system.start
        raw = os.pread(memory_files()[system.inode], 4, offset)
        assert pool.view(5, 0)[0, 3, :1].tobytes() == raw


def memory_files():
    """This process's open memory files: inode -> descriptor."""
    found = {}
    for path in list(Path("/proc/self/fd").iterdir()):
        try:
            if "memfd" in str(path.readlink()):
                found[path.stat().st_ino] = int(path.name)
        except OSError:
            continue  # the descriptor that listed the folder
    return found


def test_without_bytes_there_is_no_system_view(rules):
    with paged.KVPool(rules, paged.KVLayout(paged.KVSpec(1, 1, 8)), blocks=8) as pool:
        pool.claim([0])
        assert walk(pool, [0], 0).stops[0].translation.system is None


def test_a_latent_has_one_stop(rules):
    with paged.KVPool(rules, paged.KVLayout(paged.KVSpec(2, 1, 64, components=1)), blocks=8) as pool:
        pool.claim([0])
        assert [stop.component for stop in walk(pool, [0], 0, layer=1).stops] == ["latent"]


def test_what_is_not_there_is_named(rules):
    with paged.KVPool(rules, paged.KVLayout(paged.KVSpec(2, 2, 64)), blocks=600) as pool:
        pool.claim([0])
        for arguments, message in [
            ({"token": 16}, "token 16 is outside the block table"),
            ({"token": 0, "layer": 2}, "layer 2 is not there; the pool has layers 0 to 1"),
            ({"token": 0, "head": -1}, "head -1 is not there; the pool has heads 0 to 1"),
        ]:
            with pytest.raises(vmm.RangeError, match=message):
                walk(pool, [0], **arguments)
        with pytest.raises(vmm.StateError, match="chunk 4 of kv is not committed"):
            walk(pool, [599], 0)
        with pytest.raises(vmm.StateError, match="is not committed"):
            translate(pool, pool.range.base + (2 << 20))


def test_the_command_answers_block_9_slot_5(run):
    done = run("--table", "7,42,9,103", "--token", "37", "--block-size", "16")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith("driver host")
    assert "backing memory" in lines[0]
    text = " ".join(done.output.split())
    assert "logical block 2, slot 5" in text
    assert "block 9 entry 2 of the block table [7, 42, 9, 103]" in text
    assert "slot index 149 9 x 16 + 5" in text
    assert "access readwrite on device 0" in text
    assert "memfd" in text
    assert "\x1b" not in done.output


def test_the_command_as_json(run):
    done = run("--json", "--order", "layer", "--layer", "31", "--head", "7", "--backing", "none")
    found = json.loads(done.output)
    assert (found["schema"], found["driver"], found["backing"]) == (1, "host", "none")
    assert (found["logical_block"], found["block"], found["slot"], found["slot_index"]) == (2, 9, 5, 149)
    key, value = found["stops"]
    assert (key["component"], key["layer"], key["head"], key["plane"], key["row"]) == ("K", 31, 7, 31, 0)
    # 64 KiB a block and layer; head 7 of [8, 16, 128] bfloat16, slot 5; V is 32 KiB behind K
    assert key["inner"] == (7 * 16 + 5) * 128 * 2
    assert value["address"] - key["address"] == 32 << 10
    assert key["offset"] == 31 * key["plane_stride"] + 9 * 65536 + key["inner"]
    assert (key["access"], key["device"], key["system"], key["range"]) == ("readwrite", 0, None, "kv")


def test_a_step_is_five_steps_with_real_values(run):
    done = run("--step", "--token", "48", "--budget", "64 MiB", "--json")
    pool, driver, blocks, addresses, translation = (step["values"] for step in json.loads(done.output)["steps"])
    assert (pool["budget"], pool["row_bytes"], pool["blocks_total"]) == (64 << 20, 2 << 20, 32)
    assert (driver["committed"], driver["newly_committed"], len(driver["mappings"])) == (8 << 20, 2 << 20, 4)
    assert (blocks["length"], blocks["logical_block"], blocks["slot"], blocks["block_is_new"]) == (49, 3, 0, True)
    assert blocks["slot_index"] == blocks["table"][3] * 16
    assert addresses["K"] == driver["base"] + blocks["block"] * (2 << 20)
    assert translation["K"]["address"] == addresses["K"]
    last = driver["mappings"][3]
    assert (last["address"], last["handle"]) == (addresses["K"], translation["K"]["handle"])


def test_a_step_as_text(run):
    done = run("--step", "--token", "40")
    assert done.exit_code == 0
    titles = [line for line in done.output.splitlines() if line[:2] in {"1.", "2.", "3.", "4.", "5."}]
    assert [title.split(":")[0] for title in titles] == [
        "1. Pool",
        "2. Driver",
        "3. Blocks",
        "4. Addresses",
        "5. Translation",
    ]
    assert "the new token needed no more memory" in done.output
    assert "token 40: logical block 2, slot 8; block 2 had room" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--token", "64"], "token 64 is outside the block table: 4 blocks of 16 tokens hold tokens 0 to 63"),
        (["--token", "-1"], "-1 is not in the range"),
        (["--table", "7,x"], "'7,x' is no list of block ids; write for example 7,42,9,103"),
        (["--table", ""], "is no list of block ids"),
        (["--table", "7,-1"], "block id -1 must be 0 to 999999"),
        (["--table", "99999999999"], "block id 99999999999 must be 0 to 999999"),
        (["--layer", "32"], "layer 32 is not there"),
        (["--head", "8"], "head 8 is not there"),
        (["--block-size", "0"], "block_size must be 1 to 256 tokens, not 0"),
        (["--model", "llama"], "unknown model 'llama'"),
        (["--kv-cache-dtype", "fp8_e5m2"], "'fp8_e5m2' is not supported yet"),
        (["--chunk", "3MiB"], "no multiple of the granularity"),
        (["--chunk", "much"], "--chunk 'much' is not a size"),
        (["--order", "head"], "'head' is not one of 'block', 'layer'"),
        (["--step", "--table", "7"], "--step lets the pool choose the blocks"),
        (["--step", "--token", "9999"], "token 9999 needs more than the pool's 128 blocks; raise the budget"),
        (["--step", "--budget", "1 MiB"], "budget 1 MiB holds no block"),
        (["--frobnicate"], "No such option"),
        (["--driver", "cuda", "--backing", "none"], "--backing and --memory are for --driver host"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(run, arguments, message):
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_what_fails_is_one_line_and_status_1(run):
    done = run("--table", "0,1,2", "--memory", "4 MiB")
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "cuMemCreate" in done.stderr


def test_a_forced_driver_that_is_not_there(run, monkeypatch):
    def missing(*_):
        raise vmm.DriverMissingError("driver 'cuda' cannot be used: no libcuda")

    monkeypatch.setattr("vmm.choice._open_cuda", missing)
    done = run(environment={"VMM_DRIVER": "cuda"})
    assert (done.exit_code, done.stderr) == (2, "error: driver 'cuda' cannot be used: no libcuda\n")


def test_the_group_shows_its_commands_and_help():
    runner = CliRunner()
    done = runner.invoke(main, ["--help"])
    assert done.exit_code == 0
    assert done.output.index("\n  replay ") < done.output.index("\n  walk ")
    assert isinstance(main, click.Group)
    assert runner.invoke(main, []).stdout == runner.invoke(main, ["--help"]).stdout
    done = runner.invoke(main, ["nothing"])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    done = runner.invoke(main, ["walk", "--help"])
    assert "python -m paged walk --table 7,42,9,103 --token 37 --block-size 16" in done.output
