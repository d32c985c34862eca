"""python -m paged doctor: what it prints, its JSON, and how it refuses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from paged.commands.group import main


def run(*args: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["doctor", *(str(arg) for arg in args)], input=stdin)


@pytest.fixture
def log(logs: Any) -> Path:
    """A V0 server whose KV cache is too small."""
    path: Path = logs.file(
        [
            *logs.start["0.6"],
            logs.served_v0("12:01:00", 3541.9, 245.9, 30, 28, 97.6),
            "WARNING 10-02 12:01:03 scheduler.py:1439] Sequence group c-1 is preempted by PreemptionMode.RECOMPUTE "
            "mode "
            "because there is not enough KV cache space. total_num_cumulative_preemption=1",
            *(logs.served_v0(logs.clock(n, 5), 0.0, 2000.0, 33, 25, 99.6) for n in range(4)),
            "INFO 10-02 12:01:16 somebody.py:345] A line of something else",
        ]
    )
    return path


def test_the_text_has_every_section(log: Path, lengths: Callable[..., Path]) -> None:
    found = run(log, "--lengths", lengths(80, 900, 200), "--gpu-memory", "24GiB")
    assert found.exit_code == 0, found.output
    text = " ".join(found.stdout.split())
    for part in (
        "16 read: 15 understood, 0 passed over",
        "vLLM 0.6.3, engine V0, meta-llama/Meta-Llama-3-8B: 128 KiB of KV a token",
        "KV cache 4.88 GiB (estimate)",
        "KV cache holds 40,000 tokens (blocks of the log; bytes from the model's), 4.9 sequences of the longest, 8,192",
        "most running 33 running, 25 waiting, KV cache 99.6% in use (line 12)",
        "prefill / decode",
        "preemptions at least 1; the first after 30 running, 28 waiting, KV cache 97.6% in use (line 10)",
        "given: prompts median 900, 90% 900",
        "requests arrive all at once, as in the log sequences waited for 100% of the busy time",
        "running sequences lost their KV cache at least 1 times (1 by recompute)",
        "process VLLM::EngineCore",
        "how full the KV cache was: 99.2% on average and 99.6% at its peak, same number",
        "line 16 A line of something else",
        "1. --gpu-memory-utilization 0.95: 1.20 GiB a GPU more",
        "as it was remedy 1 remedy 2 remedy 3",
        "Assumed, as the log does not say: max_num_batched_tokens 8192.",
        "is the cheapest that mends it: it serves",
    ):
        assert part in text, part
    assert found.stderr == ""
    assert max(map(len, found.stdout.splitlines())) <= 120


def test_json_stands_alone_and_has_its_schema(log: Path, lengths: Callable[..., Path]) -> None:
    found = run(log, "--lengths", lengths(30, 900, 60), "--json")
    assert (found.exit_code, found.stderr) == (0, "")
    report = json.loads(found.stdout)
    assert list(report) == [
        "schema",
        "log",
        "lines",
        "starts",
        "versions",
        "server",
        "memory",
        "serving",
        "lengths",
        "failures",
        "findings",
        "replay",
        "nvidia_smi",
    ]
    assert (report["schema"], report["log"], report["versions"]) == (1, str(log), ["0.6.3"])
    assert report["lines"] == {
        "read": 16,
        "understood": 15,
        "passed_over": 0,
        "not_understood": 1,
        "damaged": 0,
        "samples": [{"line": 16, "text": "A line of something else"}],
    }
    assert report["memory"]["parts"] == {"weights": round(14.9595 * 2**30), "kv": 40_000 * 131_072}
    assert report["memory"]["estimates"] == ["kv"]
    assert report["memory"]["lines"]["weights"] == 5
    assert report["serving"]["preemptions_by_kind"] == {"recompute": 1}
    assert report["serving"]["at_first_preemption"]["running"] == 30
    assert report["findings"][0]["cause"] == "KV cache"
    assert report["lengths"]["given"]["requests"] == 30
    assert report["lengths"]["given"]["prompt"]["p50"] == 900
    assert report["replay"]["before"]["completed"] == 30
    assert report["replay"]["remedies"][0]["options"] == "--kv-cache-dtype fp8"
    assert report["replay"]["remedies"][0]["after"]["completed"] == 30
    assert report["replay"]["remedies"][1]["why_not"] == ("the memory of the GPU is not known: give --gpu-memory")


def test_failures_in_json(logs: Any) -> None:
    path = logs.file([*logs.start["0.11"], logs.out_of_memory("2.00 GiB", "1.00 GiB", "79.00 GiB", "77.00 GiB")])
    failure = json.loads(run(path, "--json").stdout)["failures"][0]
    assert (failure["kind"], failure["phase"], failure["line"]) == ("torch", "serving", 12)
    assert (failure["asked"], failure["in_use"], failure["sample"]) == (2 << 30, 77 << 30, None)


def test_a_log_of_a_pipe(log: Path) -> None:
    found = run("-", "--no-replay", stdin=log.read_bytes())
    assert found.exit_code == 0
    assert "lost their KV cache at least 1 times" in " ".join(found.stdout.split())


def test_nothing_wrong_is_said_too(logs: Any) -> None:
    found = run(logs.file([*logs.start["0.11"], logs.served_v1("06:34:00", 1.0, 9.0, 1, 0, 1.0)]))
    assert found.exit_code == 0
    assert "memory did not run out: the KV cache was 1.0% full at most" in " ".join(found.stdout.split())
    assert "Remedies" not in found.stdout


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (300, "Remedy 1 is the cheapest that serves more: it serves 1."),  # more than 128 would run
        (40, "On these lengths no remedy serves more; a larger load, or the log's own lengths, may tell more."),
    ],
)
def test_the_conclusion_of_a_replay(count: int, said: str, logs: Any, lengths: Callable[..., Path]) -> None:
    waits = [logs.served_v1(logs.clock(n), 500.0, 9000.0, 128, 40, 30.0) for n in range(6)]
    found = run(logs.file([*logs.start["0.11"], *waits]), "--lengths", lengths(count, 200, 40))
    text = " ".join(found.stdout.split())
    assert "1. --max-num-seqs 256: the KV cache has room for more sequences" in text
    assert said in text


def test_prefix_hits_of_either_generation(logs: Any) -> None:
    hits = "INFO 10-02 12:01:01 metrics.py:367] Prefix cache hit rate: GPU: 26.05%, CPU: 0.00%"
    v0 = run(logs.file([*logs.start["0.6"], logs.served_v0("12:01:00", 1.0, 2.0, 1, 0, 1.0), hits]))
    assert "prefix cache 26.1% hit rate" in " ".join(v0.stdout.split())
    served = logs.served_v1("06:34:00", 1.0, 9.0, 1, 0, 1.0).replace("hit rate: 0.0%", "hit rate: 12.5%")
    v1 = run(logs.file([*logs.start["0.11"], served]))
    assert "prefix cache 12.5% hit rate" in " ".join(v1.stdout.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{folder}/none.log"], "error: {folder}/none.log: there is no such file; give the log of a vLLM server, or -"),
        (["{log}", "--lengths", "{folder}/none.csv"], "error: {folder}/none.csv: there is no such file"),
        (["{log}", "--model", "nothing"], "error: unknown model 'nothing'"),
        (["{log}", "--gpu-memory", "many"], "error: --gpu-memory"),
        (["{log}", "--bandwidth", "0"], "error: bandwidth must be a number above 0, not 0.0"),
        (["{log}", "--limit", "0"], "error: Invalid value for '--limit'"),
        (["{log}", "--rate", "x"], "error: Invalid value for '--rate'"),
        ([], "error: Missing argument 'LOG'"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(args: list[str], said: str, log: Path) -> None:
    names = {"folder": log.parent, "log": log}
    found = run(*(arg.format(**names) for arg in args))
    assert found.exit_code == 2
    assert found.stderr.startswith(said.format(**names))
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""


def test_help_has_an_example_and_the_group_lists_it() -> None:
    assert "docker logs vllm 2>&1 | python -m paged doctor -" in run("--help").stdout
    assert "doctor" in CliRunner().invoke(main, ["--help"]).stdout


def test_the_real_command(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "paged", "doctor", str(log), "--no-replay"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("The log\n")
