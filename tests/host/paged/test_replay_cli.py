"""python -m paged replay: what it prints and writes, and how it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from paged.commands.group import main
from paged.policies import POLICIES

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PNG = b"\x89PNG\r\n\x1a\n"


def run(*args: object) -> Result:
    """A replay in this process: what several processes do is tested by commands of their own."""
    return CliRunner().invoke(main, ["replay", "--processes", "1", *(str(arg) for arg in args)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = (f"2023-11-16 18:15:{second:02}.5000000,{100 + 40 * second},{20 + second}\n" for second in range(30))
    path.write_text(HEADER + "".join(rows))
    return path


def test_the_text_says_on_what_with_which_budget_and_what_to_conclude(trace: Path) -> None:
    found = run(trace, "--driver", "host", "--gpu-memory", "20GiB")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[0].startswith("Driver host, device ")
    assert lines[0].endswith("backing none (the driver's rules, no bytes)")
    text = " ".join(found.stdout.split())
    assert "KV budget 2.04 GiB = 0.9 x 20 GiB - 14.96 GiB weights - 1 GiB activations" in text
    assert "30 requests in 29 s; prompts of 680 tokens" in text
    for name in POLICIES:
        assert name in text
    for row in ("reserved, mean", "committed over live", "waste: tail", "preemptions", "driver calls", "driver time"):
        assert row in text
    assert "by the published costs 'vattention' (A100, 2 MiB; vAttention" in text
    assert re.search(r"All served the same \d+ tokens/s; for each live byte \S+-vmm kept 1\.\d\d bytes committed", text)
    assert found.stderr == ""


def test_json_and_picture_are_written_whole(trace: Path, tmp_path: Path) -> None:
    before = trace.read_bytes()
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    out.write_text("old")
    found = run(trace, "--driver", "host", "--json-output", out, "--plot", picture, "--policy", "static")
    assert found.exit_code == 0, found.output
    report = json.loads(out.read_text())
    assert (report["schema"], report["requests"], list(report["policies"])) == (1, 30, ["static"])
    assert report["trace"] == str(trace)
    assert picture.read_bytes().startswith(PNG)
    assert len(picture.read_bytes()) > 10_000
    assert {path.name for path in tmp_path.iterdir()} == {"trace.csv", "out.json", "out.png"}
    assert trace.read_bytes() == before


def test_json_on_standard_output_stands_alone(trace: Path) -> None:
    found = run(trace, "--driver", "host", "--json", "--policy", "static")
    assert json.loads(found.stdout)["policies"]["static"]["completed"] == 30
    assert found.stderr.startswith("Driver host")


@pytest.mark.parametrize("ending", ["svg", "pdf", "PNG"])
def test_other_pictures(trace: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"growth.{ending}"
    assert run(trace, "--driver", "host", "--plot", path, "--policy", "static").exit_code == 0
    assert path.read_bytes()[:4] in (b"<?xm", b"%PDF", PNG[:4])


def test_without_a_trace_a_workload_is_made() -> None:
    found = run("--driver", "host", "--limit", 20, "--policy", "static", "--seed", 3, "--rate", 7)
    assert found.exit_code == 0, found.output
    assert "generated from azure_conv 2023 quantiles, 7 requests/s, seed 3: 20 requests" in " ".join(
        found.stdout.split()
    )


def test_what_was_changed_in_a_trace_is_said(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n100,20\n")
    found = run(path, "--driver", "host", "--policy", "static")
    mean = "5.53 requests/s, the mean of azure_conv 2023"
    assert f"note: lengths.csv has no arrival times; Poisson arrivals of {mean}, seed 0" in found.stdout


def test_help_has_examples() -> None:
    found = run("--help")
    assert found.exit_code == 0
    assert "python -m paged replay --plot growth.png" in found.stdout
    assert "--gpu-memory-utilization" in found.stdout


def refused(found: Result, *words: str) -> None:
    """Status 2, one line on standard error that has all the words, nothing else."""
    assert found.exit_code == 2, found.output
    assert found.stdout == ""
    assert len(found.stderr.splitlines()) == 1
    for word in words:
        assert word in found.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--policy", "pagd-vmm"], ["unknown policy 'pagd-vmm'", "did you mean 'paged-vmm'?"]),
        (["--model", "gpt-9"], ["unknown model 'gpt-9'", "llama-3-8b"]),
        (["--gpu-memory", "many"], ["GPU memory 'many' is not a size", "MiB"]),
        (["--gpu-memory", "16GiB"], ["KV budget", "less than one block"]),
        (["--chunk", "1MiB"], ["chunk '1MiB' is no multiple of the device's granularity"]),
        (["--max-model-len", "99999"], ["99999", "8192 positions"]),
        (["--driver-costs", "none"], ["unknown driver costs 'none'"]),
        (["--rate-scale", "0"], ["rate scale must be a number above 0, not 0"]),
        (["--limit", "-3"], ["must be at least 1, not -3"]),
        (["--block-size", "many"], ["'--block-size'", "'many' is not a valid integer"]),
        (["--processes", "0"], ["'--processes'", "0 is not in the range"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["--plot", "growth.txt"], ["growth.txt", "png, svg, pdf"]),
        (["--plot", "nowhere/growth.png"], ["nowhere/growth.png: the folder nowhere is not there"]),
        (["--json-output", "."], [". is a folder"]),
        (["--reserve", "1e308"], ["reserve must be 0 to 1e+06, not 1e+308"]),
        (["--gpu-memory", "999999TiB"], ["KV budget", "blocks of 16 tokens are more than", "give less GPU memory"]),
        (["--limit", "12345678901234567890"], ["at most 10,000,000, not 12,345,678,901,234,567,890"]),
        (["--compact", "0.5"], ["compact must be 1 to 1e+06, not 0.5"]),
        (["--compact", "nan"], ["compact must be a ratio of 1 or more, not nan"]),
        (["--compact-blocks", "0"], ["compact_blocks must be at least 1, not 0"]),
        (["--watermark", "1"], ["watermark must be 0 or more and below 1, not 1"]),
        (["--scheduling", "random"], ["scheduling must be one of 'fcfs', 'priority', not 'random'"]),
        (["--preemption", "drop"], ["preemption must be one of 'recompute', 'swap', not 'drop'"]),
        (["--swap-space", "much"], ["swap space 'much' is not a size"]),
        (["--pcie-bandwidth", "0"], ["PCIe bandwidth must be a number above 0, not 0"]),
        (["--prefix-cache"], ["says of no prompt how it begins", "leave the prefix cache out"]),
        (["--json-output", "x.png", "--plot", "./x.png"], ["x.png is named for the JSON and for the picture"]),
        (["--record", "x", "--json-output", "./x"], ["x is named for the JSON and for the recording; give each a"]),
    ],
)
def test_bad_usage_is_one_line_and_status_2(args: list[str], words: list[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run("--driver", "host", *args), *words)
    assert list(tmp_path.iterdir()) == []


def test_two_models_share_the_gpu(trace: Path) -> None:
    """Each is named with its trace; the text says when each had ended, the JSON what became of its requests."""
    models = ["--model", "llama-3-8b", "--trace", trace, "--model", "qwen2.5-7b", "--trace", trace]
    found = run(*models, "--driver", "host", "--gpu-memory", "40GiB", "--policy", "paged-vmm", "--policy", "static")
    assert found.exit_code == 0, found.output
    text = " ".join(found.stdout.split())
    assert "KV budget 5.86 GiB = 0.9 x 40 GiB - 29.14 GiB weights - 1 GiB activations" in text
    assert re.search(r"1: llama-3-8b done at [\d.]+ s [\d.]+ s 1: output tokens/s .* 2: qwen2.5-7b done at", text)
    report = json.loads(run(*models, "--driver", "host", "--policy", "paged-vmm", "--json").stdout)
    assert (report["model"], report["requests"]) == ("llama-3-8b + qwen2.5-7b", 60)
    assert [one["completed"] for one in report["policies"]["paged-vmm"]["models"]] == [30, 30]


def test_a_trace_for_each_model(trace: Path) -> None:
    refused(run("--driver", "host", "--trace", trace, "--trace", trace), "1 models and 2 traces are given")
    refused(run(trace, "--driver", "host", "--model", "llama-3-8b", "--model", "qwen2.5-7b"), "2 models and 1 traces")
    refused(run("--driver", "host", "--trace", trace, "--json-output", trace), "is the trace itself")


def test_the_table_says_what_was_swapped_moved_and_found(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix.jsonl"
    rows = ({"timestamp": t * 1000, "input_length": 1024, "output_length": 9, "hash_ids": [1, t]} for t in range(9))
    prefix.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = run(prefix, "--driver", "host", "--gpu-memory", "20GiB", "--prefix-cache", "--policy", "paged-vmm")
    assert re.search(r"prompt blocks of 512 found +8 \(44\.4%\)", found.stdout), found.output  # 8 of 18
    assert re.search(r"prompt tokens found +4,096 \(44\.4%\)", found.stdout)  # the first block of 8 of 9 prompts
    plain = run(prefix, "--driver", "host", "--gpu-memory", "20GiB", "--policy", "paged-vmm")
    assert "note: the trace says which prompts begin alike; with --prefix-cache" in plain.stdout
    layer = ["--order", "layer", "--compact", "1", "--reserve", "0", "--policy", "paged-vmm"]
    found = run("--driver", "host", "--limit", 60, "--rate", 4, *layer, "--charge-driver-time", "--preemption", "swap")
    for row in ("copied/KV written", "of them by swap", "swapped, out and back", "of it for bus and driver"):
        assert row in found.stdout
    assert "in the duration from the first step on" in " ".join(found.stdout.split())


@pytest.mark.parametrize("option", ["--json-output", "--plot", "-o", "--output"])
def test_the_trace_is_never_written_over(trace: Path, tmp_path: Path, option: str) -> None:
    link = tmp_path / "link.png"
    link.symlink_to(trace)
    before = trace.read_bytes()
    for path in (trace, link):
        refused(run(trace, "--driver", "host", option, path), "is the trace itself")
    assert trace.read_bytes() == before


def test_a_bad_trace_names_line_value_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "2023-11-16 18:15:46.68,374,-4\n")
    out = tmp_path / "out.json"
    refused(run(path, "--driver", "host", "--json-output", out), "trace.csv, line 2", "'-4'", "whole number from 1")
    assert not out.exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    out = tmp_path / "out.json"
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    refused(
        run("--driver", "host", "--json-output", out),
        "out.json: cannot be written (Read-only file system); name another",
    )


def test_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out.json"
    out.touch()
    monkeypatch.setattr("os.access", lambda *_: False)
    refused(run("--driver", "host", "--json-output", out), "out.json: cannot be written; check its permissions")


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    """255 bytes is the longest; a temporary file beside it would need some more."""
    refused(run("--driver", "host", "--json-output", tmp_path / ("x" * 300)), "cannot be written (File name too long)")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_fails_half_way_leaves_nothing(trace: Path, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    found = run(trace, "--driver", "host", "--policy", "static", "--plot", tmp_path / "growth.png")
    assert found.exit_code == 1
    assert found.stderr.strip() == f"error: cannot write {tmp_path / 'growth.png'}: No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_a_run_that_fails_is_one_line_and_status_1(trace: Path, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(sys.modules["paged.replay.run"], "make_policies", broken)
    found = run(trace, "--driver", "host", "--policy", "static")
    assert (found.exit_code, found.stderr) == (1, "error: no room\n")


def test_as_a_command_of_its_own(trace: Path) -> None:
    policies = ["--policy", "static", "--policy", "paged-vmm", "--processes", "2"]
    command = [sys.executable, "-m", "paged", "replay", str(trace), "--driver", "host", "--json", *policies]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    report = json.loads(found.stdout)
    assert [policy["completed"] + policy["rejected"] for policy in report["policies"].values()] == [30, 30]
    assert "\x1b" not in found.stderr  # no bar and no colours in a pipe


def alive(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("delay", [0.05, 1.0], ids=["while they start", "while they run"])
def test_an_interrupt_stops_every_process_and_is_one_line(delay: float) -> None:
    command = [sys.executable, "-m", "paged", "replay", "--driver", "host", "--limit", "200000", "--processes", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    heard = "import signal, runpy; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command[1:3] = ["-c", f"{heard}runpy.run_module('paged', run_name='__main__', alter_sys=True)"]
    with subprocess.Popen(command, start_new_session=True, **pipes) as found:
        try:
            assert found.stdout is not None
            assert found.stdout.readline().startswith("Driver host")
            time.sleep(delay)
            os.killpg(found.pid, signal.SIGINT)  # as a terminal does: every process of the group hears it
            _, errors = found.communicate(timeout=30)
        except BaseException:
            os.killpg(found.pid, signal.SIGKILL)
            raise
    assert (found.returncode, errors.strip()) == (1, "error: stopped")
    deadline = time.monotonic() + 10
    while alive(found.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(found.pid)


def test_a_name_that_looks_like_markup_is_printed_as_it_is(trace: Path, tmp_path: Path) -> None:
    odd = tmp_path / "[red]a[" / "red].csv"
    odd.parent.mkdir()
    odd.write_bytes(trace.read_bytes())
    plain = run(odd, "--driver", "host", "--policy", "static")
    assert plain.exit_code == 0, plain.output
    assert "red].csv" in plain.stdout


def test_a_run_that_serves_nobody_says_why_and_fails(trace: Path) -> None:
    found = run(trace, "--driver", "host", "--policy", "static", "--max-model-len", "10")
    assert found.exit_code == 1
    assert "are longer than max-model-len 10 and were rejected" in " ".join(found.stdout.split())
    assert "whatever its size" in found.stdout


def test_a_trace_named_like_a_formula_is_drawn_as_it_is(trace: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a$x_{$.csv"
    odd.write_bytes(trace.read_bytes())
    found = run(odd, "--driver", "host", "--policy", "static", "--plot", tmp_path / "growth.png")
    assert found.exit_code == 0, found.output
    assert (tmp_path / "growth.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["replay", "walk", "picture", "plan", "doctor", "view", "export"])
def test_every_command_has_json_without_a_value(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    (option,) = [one for one in command.params if "--json" in one.opts]
    assert isinstance(option, click.Option)
    assert option.is_flag


def test_without_a_command_the_help_is_printed() -> None:
    found = CliRunner().invoke(main, [])
    assert (found.exit_code, found.stderr) == (0, "")
    assert "Commands:" in found.stdout
