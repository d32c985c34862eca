"""What a replay says: a verdict that does not mislead, notes on options that do nothing, the calls only when asked."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from paged import replay
from paged.commands.group import main
from paged.replay.report import Report
from paged.replay.table import driver_time_source, uncosted_calls
from paged.replay.verdict import conclusion, rejections
from paged.serving.driver_costs import SETS


def lines(*args: object) -> list[str]:
    found = CliRunner().invoke(main, ["replay", "--driver", "host", "--processes", "1", *map(str, args)])
    assert found.exit_code == 0, found.output
    return found.stdout.splitlines()


def text(*args: object) -> str:
    return " ".join(" ".join(lines(*args)).split())


def notes(*args: object) -> str:
    """The notes of a run of a few requests."""
    return " ".join(re.findall(r"note: (.*?)(?= note: | [a-z-]+ reserved, mean)", text("--limit", 5, *args)))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """20 prompts that begin with the same 1,024 tokens, and 10 that are too long, seconds apart."""
    path = tmp_path / "prompts.jsonl"
    rows = [{"timestamp": 2000 * t, "input_length": 1536, "output_length": 9, "hash_ids": [1, 2, t]} for t in range(20)]
    long = list(range(100, 120))
    rows += [{"timestamp": 40_000, "input_length": 10_000, "output_length": 9, "hash_ids": long}] * 10
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def cached(prompts: Path) -> Report:
    return replay(prompts, driver="host", gpu_memory="20 GiB", prefix_cache=True, policies=("paged-vmm",))


def test_what_a_prefix_cache_keeps_counts_as_useful(cached: Report) -> None:
    result = cached.policies["paged-vmm"]
    assert result.prefix is not None
    assert result.committed_over_live > 3  # the cache holds what sequences that have ended wrote
    kept = result.committed.mean / (result.live.mean + result.waste["prefix"])
    assert result.committed_over_kept == kept < 1.2
    told = conclusion(cached)
    assert f"paged-vmm kept {kept:.2f} bytes committed for each byte that is live or a cached prefix." in told
    assert f"{result.committed_over_live:.2f} bytes" not in told
    assert cached.to_json()["policies"]["paged-vmm"]["committed_over_live_and_cached"] == kept


def test_the_verdict_says_what_the_cache_saved(cached: Report) -> None:
    """19 prompts of 1,536 tokens find the first 1,024."""
    assert "found 19,456 of 30,720 prompt tokens (63.3%), which were not computed again." in conclusion(cached)


def test_the_verdict_says_how_many_were_not_served(cached: Report, prompts: Path) -> None:
    assert conclusion(cached).startswith("Only 20 of 30 requests were served. ")
    assert str(rejections(cached)).startswith("warning: 10 of 30 requests (33.3%) are longer than max-model-len 8,192 ")
    *_, last = text(prompts, "--prefix-cache", "--policy", "paged-vmm").split("warning: ")
    assert "Only 20 of 30 requests were served. paged-vmm kept" in last


def test_what_only_one_policy_could_not_hold_is_said() -> None:
    report = replay(driver="host", limit=50, gpu_memory="18.75 GiB", policies=("static", "paged-vmm"))
    completed = report.policies["paged-vmm"].completed
    assert conclusion(report).startswith(f"Only 0 (static) to {completed} (paged-vmm) of 50 requests were served. ")
    assert "static rejected 50 of 50 requests, each more than its budget can hold." in str(rejections(report))


def test_calls_are_counted_by_name_only_when_asked() -> None:
    plain, asked = (lines("--limit", 20, "--policy", "paged-vmm", *calls) for calls in ([], ["--calls"]))
    assert not any(line.startswith("cu") for line in plain)
    counts = {line.split()[0].rstrip(","): int(line.split()[-1].replace(",", "")) for line in asked if line[:2] == "cu"}
    assert counts["cuMemCreate"] > 0
    total = next(line for line in plain if line.startswith("driver calls"))
    assert int(total.split()[-1].replace(",", "")) == sum(counts.values())
    assert any(line.startswith("cuEventQuery, no cost ") for line in asked)
    report = json.loads("\n".join(lines("--limit", 20, "--policy", "paged-vmm", "--json")))
    assert report["policies"]["paged-vmm"]["driver_calls"] == counts


@pytest.mark.parametrize("charged", [False, True])
def test_the_footnote_is_two_lines_at_most(charged: bool) -> None:
    report = replay(driver="host", limit=20, policies=("paged-vmm",), charge_driver_time=charged)
    source = f"by the published costs 'vattention' ({SETS['vattention'].source})"
    assert len(driver_time_source(report, source)) <= 2 * 119
    assert re.fullmatch(r"\d kinds of driver call have no known cost and count as 0; .*", str(uncosted_calls(report)))


def test_each_of_several_models_has_its_throughput_and_preemptions() -> None:
    models = ["--model", "llama-3-8b", "--model", "qwen2.5-7b", "--limit", 100, "--gpu-memory", "40GiB"]
    found = text(*models, "--policy", "grow-copy")
    report = json.loads("\n".join(lines(*models, "--policy", "grow-copy", "--json")))
    for number, served in enumerate(report["policies"]["grow-copy"]["models"], 1):
        assert served["tokens_per_s"] == served["output_tokens"] / served["finished_s"] > 0
        rate, count = served["tokens_per_s"], served["preemptions"]
        assert f"{number}: output tokens/s {rate:,.1f} {number}: preemptions {count:,} " in found
    assert count > 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--policy", "static", "--compact", 1.1], "--compact does nothing: it is paged-vmm's, which is not among"),
        (["--policy", "static", "--reserve", 1], "--reserve does nothing: it is paged-vmm's, which is not among"),
        (["--policy", "paged-vmm", "--compact", 1.1], "--compact does nothing: a block of 2 MiB has its rows of 2 MiB"),
        (["--policy", "paged-vmm", "--compact-blocks", 2], "--compact-blocks does nothing without --compact"),
        (["--policy", "static", "--scheduling", "priority"], "no trace has a column priority, so it is first come"),
        (["--policy", "static", "--swap-space", "1GiB"], "--swap-space does nothing without --preemption swap"),
        (["--policy", "static", "--pcie-bandwidth", 1e9], "--pcie-bandwidth does nothing without --preemption swap"),
    ],
)
def test_an_option_that_does_nothing_is_noted(args: list, words: str) -> None:
    assert words in notes(*args)


def test_a_prefix_cache_that_no_policy_has_is_noted(prompts: Path) -> None:
    assert "--prefix-cache does nothing: only paged-prealloc and paged-vmm share blocks" in notes(
        prompts, "--policy", "static", "--policy", "grow-copy", "--prefix-cache"
    )
    report = replay(prompts, driver="host", policies=("static",), prefix_cache=True, limit=2)
    assert any("--prefix-cache does nothing" in note for note in report.notes)  # for a program too


def test_options_that_do_something_are_not_noted(prompts: Path, tmp_path: Path) -> None:
    some = ["--policy", "paged-vmm", "--reserve", 1, "--compact", 1.1, "--compact-blocks", 2, "--prefix-cache"]
    swap = ["--preemption", "swap", "--swap-space", "1GiB", "--pcie-bandwidth", 1e9]
    ranked = tmp_path / "ranked.jsonl"
    rows = [json.loads(row) for row in prompts.read_text().splitlines()]
    ranked.write_text("".join(json.dumps({**row, "priority": n}) + "\n" for n, row in enumerate(rows)))
    assert notes(ranked, *some, *swap, "--order", "layer", "--scheduling", "priority") == ""


def test_the_blocks_that_compaction_moved_are_counted() -> None:
    options = {"order": "layer", "compact": 1.0, "reserve": 0.0, "limit": 60, "rate": 4.0}
    result = replay(driver="host", policies=("paged-vmm",), **options).policies["paged-vmm"]
    assert result.moved_blocks > 0
    assert result.copied_bytes == result.moved_blocks * 16 * 131_072  # nothing else copies: 16 tokens of 128 KiB
    shown = lines("--policy", "paged-vmm", *[part for name in options for part in (f"--{name}", options[name])])
    assert any(re.fullmatch(rf"blocks compaction moved +{result.moved_blocks:,}", line) for line in shown)
    assert not any(line.startswith("blocks compaction") for line in lines("--limit", 5, "--policy", "paged-vmm"))
