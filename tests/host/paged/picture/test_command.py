"""python -m paged picture: what it prints and writes, and how it refuses."""

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from paged.commands.group import main


def run(*arguments):
    return CliRunner().invoke(main, ["picture", *map(str, arguments)], env={"VMM_DRIVER": "host"})


def test_the_text_says_on_what_and_shows_every_sequence():
    found = run()
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert re.match(r"driver host 1\d\.\d+, device 0 ", lines[0])  # the version of the bindings
    assert lines[2].startswith("KV pool 'kv': ")
    assert sum(line[1:6] == " seq " for line in lines) == 10
    assert max(map(len, lines)) <= 80
    assert found.stderr == ""
    again, once = (re.sub(r"handles? 0x.*", "", text) for text in (run().stdout, found.stdout))
    assert again == once


@pytest.mark.parametrize("ending", ["png", "svg", "SVG"])
def test_a_file_is_written_whole(tmp_path, ending):
    path = tmp_path / f"pool.{ending}"
    found = run("--sequences", 4, "--order", "block", "-o", path)
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[1] == f"The picture of 4 sequences is in {path}."
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("order", ["block", "layer"])
def test_json_has_both_tables(order):
    found = json.loads(run("--sequences", 7, "--order", order, "--json").stdout)
    assert (found["schema"], found["driver"], found["order"], len(found["sequences"])) == (1, "host", order, 7)
    assert sum(found["spending"].values()) == found["committed"]
    assert len(found["chunks"]) * found["chunk"] == found["committed"]
    blocks = {one["block"]: one for one in found["blocks"]}
    for one in found["sequences"]:
        assert len(one["table"]) + one["dropped"] == -(-one["tokens"] // found["block_size"])
        assert all(blocks[block]["kind"] in ("own", "shared") for block in one["table"])
    assert sum(one["filled"] for one in blocks.values()) == found["tokens"]


def test_json_beside_a_file_stands_alone(tmp_path):
    found = run("--sequences", 2, "--json", "-o", tmp_path / "pool.svg")
    assert len(json.loads(found.stdout)["sequences"]) == 2
    assert (tmp_path / "pool.svg").exists()


@pytest.mark.parametrize("sequences", [0, 1, 21, 150])
def test_any_number_of_sequences(sequences):
    found = run("--sequences", sequences, "--longest", 40, "--seed", 3)
    assert found.exit_code == 0, found.output
    assert f"{sequences} sequence" in found.stdout.replace("\n", " ")


def test_one_seed_gives_one_moment_and_another_another():
    one, same, other = (json.loads(run("--seed", seed, "--json").stdout)["sequences"] for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize("longest", [1, 2, 9, 700])
def test_any_length(longest):
    found = json.loads(run("--longest", longest, "--sequences", 24, "--json").stdout)
    assert len(found["sequences"]) == 24
    assert max(one["tokens"] for one in found["sequences"]) <= longest + 9


def test_bytes_are_kept_where_they_are_asked_for():
    found = run("--sequences", 3, "--driver", "host", "--backing", "memory", "--memory", "2 GiB")
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[0].endswith("backing memory")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-o", "pool.bmp"], 2, "a picture is written as png or svg"),
        (["-o", "/nowhere/pool.png"], 2, "the folder /nowhere is not there"),
        (["--sequences", "-1"], 2, "--sequences"),
        (["--order", "diagonal"], 2, "diagonal"),
        (["--model", "no-such"], 2, "no-such"),
        (["--block-size", "0"], 2, "block_size must be 1 to 256"),
        (["--memory", "64 MiB", "--sequences", "200"], 1, "error: "),
    ],
)
def test_errors_are_one_line_and_a_status(arguments, status, message):
    found = run(*arguments)
    assert found.exit_code == status, found.output
    assert message in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_importing_the_picture_brings_no_charts():
    code = "import sys, paged.picture; print([name for name in ('matplotlib', 'rich', 'click') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_moment_of_a_trace(tmp_path):
    trace, drawn = tmp_path / "trace.csv", tmp_path / "pool.svg"
    rows = (f"2023-11-16 18:15:{second:02}.0000000,{100 + 40 * second},900\n" for second in range(30))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    before = trace.read_bytes()
    arguments = ("--trace", trace, "--memory", "40 GiB", "--driver", "host", "--at")
    early, late = (json.loads(run(*arguments, at, "--json").stdout) for at in ("0.5", "2.5"))
    assert [len(moment["sequences"]) for moment in (early, late)] == [1, 3]
    assert (early["waiting"], early["trace"]) == (0, str(trace))
    assert 0.5 <= early["at_s"] < 1
    assert early["sequences"][0]["row"] == late["sequences"][0]["row"] == 0
    assert 100 < early["sequences"][0]["tokens"] < late["sequences"][0]["tokens"] < 1000
    assert sum(late["spending"].values()) == late["committed"]
    found = run(*arguments, "2.5", "-o", drawn)
    assert found.exit_code == 0, found.output
    assert re.fullmatch(r".*trace\.csv after 2\.5 s: 3 running, 0 waiting", found.stdout.splitlines()[1])
    assert ">seq 0<" in drawn.read_text()
    assert trace.read_bytes() == before
    ended = json.loads(run(*arguments, "100000", "--json").stdout)
    assert (ended["sequences"], ended["live"]) == ([], 0)


def test_prompts_of_a_trace_share_what_begins_alike(tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = ({"timestamp": 0, "input_length": 1024, "output_length": 500, "hash_ids": [1, at]} for at in range(2, 6))
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = json.loads(run("--trace", trace, "--driver", "host", "--at", "2", "--json").stdout)
    first, *others = (one["table"][:32] for one in found["sequences"])
    assert len(others) == 3
    assert all(one == first for one in others)
    assert sum(one["kind"] == "shared" for one in found["blocks"]) == 32


def test_what_makes_a_moment_up_is_refused_for_a_replay(tmp_path):
    for arguments in (("--at", "3", "--sequences", "4"), ("--trace", "a.csv", "--longest", "9")):
        found = run(*arguments)
        assert found.exit_code == 2
        assert "makes a moment up; leave it out with --trace and --at" in found.stderr
    found = run("--trace", tmp_path / "missing.csv")
    assert found.exit_code in (1, 2)
    assert len(found.stderr.splitlines()) == 1
