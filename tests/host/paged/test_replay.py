"""Whole replays as library calls: all policies on the same arrivals and budget, and what must hold of every one."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import vmm
from paged import replay
from paged.policies import CAUSES, POLICIES
from paged.replay.options import Options
from paged.replay.report import Report
from paged.replay.verdict import conclusion, rejections
from paged.serving.workload import Workload, generate

TRACES = Path(__file__).parents[4] / "shared" / "traces"
GIB = 1 << 30


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"{name} is not in ../shared/traces")
    return path


@pytest.fixture(scope="module")
def small() -> Report:
    """300 requests on 4.5 GiB for KV: static has room for 4 sequences, the others for ten times as many."""
    return replay(gpu_memory="22.75 GiB", limit=300, driver="host", driver_costs="kvcached")


def check_report(report: Report) -> None:
    """What must hold of any replay."""
    assert set(report.policies) <= set(POLICIES)
    for result in report.policies.values():
        assert result.completed + result.rejected == report.requests
        assert result.committed.mean == result.live.mean + sum(result.waste.values())  # to the byte
        assert set(result.waste) == set(CAUSES)
        assert min(result.waste.values()) >= 0
        assert result.live.peak <= result.committed.peak <= min(report.budget, result.reserved.peak)
        for figure in (result.reserved, result.committed, result.live, result.running):
            assert 0 <= figure.mean <= figure.peak
        assert sum(result.bound_steps.values()) == result.steps
        assert result.prefill_s + result.decode_s <= result.duration_s * (1 + 1e-9)
        assert len(result.timeline) <= 1024
        series = result.timeline.series("committed")
        edges = result.timeline.edges()
        if not len(edges):
            continue
        mean = np.average(series.mean, weights=np.diff(edges))
        assert mean == pytest.approx(result.committed.mean, rel=1e-6)
        assert series.high.max() == result.committed.peak
        assert edges[-1] == result.duration_s


def test_what_must_hold(small: Report) -> None:
    check_report(small)
    assert list(small.policies) == list(POLICIES)


def test_the_budget_is_what_vllm_would_leave(small: Report) -> None:
    """0.9 x 22.75 GiB - 8,030,261,248 parameters of 2 bytes - 1 GiB."""
    assert small.budget == int(22.75 * GIB * 0.9) - 2 * 8_030_261_248 - GIB
    assert small.options["budget_bytes"] == small.budget


def test_paging_serves_more_in_the_same_memory(small: Report) -> None:
    static, paged = small.policies["static"], small.policies["paged-vmm"]
    assert static.running.peak == small.budget // (8192 * 131_072)
    assert paged.running.peak > 5 * static.running.peak
    assert paged.tokens_per_s > 1.5 * static.tokens_per_s
    assert static.committed_over_live > 4 > 1.10 > paged.committed_over_live


def test_the_conclusion_names_who_served_more_and_why(small: Report) -> None:
    fast, static = small.policies["contiguous-vmm"], small.policies["static"]
    assert conclusion(small).startswith(
        f"In the same 4.52 GiB contiguous-vmm completed {fast.tokens_per_s / static.tokens_per_s:.2f} times the tokens "
        f"per second of static: it kept {fast.committed_over_live:.2f} bytes committed for each live byte, static "
        f"{static.committed_over_live:.2f};"
    )


def test_paged_policies_serve_alike(small: Report) -> None:
    """What memory is for decides who runs; where physical memory comes from does not."""
    prealloc, on_demand = small.policies["paged-prealloc"], small.policies["paged-vmm"]
    assert prealloc.running.mean == pytest.approx(on_demand.running.mean, rel=0.01)
    assert prealloc.committed.mean == prealloc.committed.peak
    assert on_demand.committed.mean < prealloc.committed.mean


def test_driver_time_is_calls_times_published_costs(small: Report) -> None:
    static = small.policies["static"]
    served = static.completed + static.preemptions
    calls = ("AddressFree", "AddressReserve", "Create", "Map", "Release", "SetAccess", "Unmap")
    assert static.driver_calls == {f"cuMem{call}": served for call in calls}
    assert static.driver_s == pytest.approx(served * (19 + 193.32 + 1.45 + 35.99 + 25.63) * 1e-6)
    assert static.uncosted == ("cuMemAddressFree", "cuMemRelease")


def test_tokens_per_second_are_completed_output(small: Report) -> None:
    load = generate(300)
    served = load.prompt + load.output <= 8192
    for result in small.policies.values():
        assert result.too_long == (~served).sum()
        assert result.never_fits == 0
        assert result.tokens_per_s == pytest.approx(load.output[served].sum() / result.duration_s)


def test_json_is_what_was_agreed(small: Report) -> None:
    found = json.loads(small.json_text())
    assert list(found) == [
        "schema", "trace", "requests", "model", "driver", "backing", "options", "lengths", "policies",
    ]  # fmt: skip
    assert (found["schema"], found["requests"], found["model"]) == (1, 300, "llama-3-8b")
    assert (found["driver"], found["backing"]) == ("host", "none")
    for name in POLICIES:
        policy = found["policies"][name]
        assert list(policy) == [
            "reserved_bytes", "committed_bytes", "live_bytes", "committed_over_live", "committed_over_live_and_cached",
            "waste_bytes", "running", "preemptions", "preemptions_by_kind", "swapped_bytes", "completed", "rejected",
            "duration_s", "prefill_s", "decode_s", "bound_steps", "tokens_per_s", "waited_s", "copied_bytes",
            "written_bytes", "moved_blocks", "prefix", "models", "driver_calls", "driver_time_s",
        ]  # fmt: skip
        for key in ("reserved_bytes", "committed_bytes", "live_bytes", "running"):
            assert list(policy[key]) == ["mean", "peak"]
        assert list(policy["waste_bytes"]) == ["tail", "row", "supply", "prefix", "retiring", "unused"]
        assert list(policy["bound_steps"]) == ["compute", "bandwidth", "overhead"]
        committed, live = policy["committed_bytes"]["mean"], policy["live_bytes"]["mean"]
        assert policy["committed_over_live"] == committed / live
        assert sum(policy["waste_bytes"].values()) == committed - live
    assert set(found["lengths"]) == {"prompt", "output"}


def same(first: Report, second: Report) -> bool:
    return first.to_json() == second.to_json() and all(
        np.array_equal(a.timeline.edges(), b.timeline.edges())
        for a, b in zip(first.policies.values(), second.policies.values(), strict=True)
    )


def test_processes_change_nothing(small: Report) -> None:
    options = Options(gpu_memory="22.75 GiB", limit=300, driver="host", driver_costs="kvcached")
    told: dict[str, int] = {}
    assert same(replay(None, options, processes=2, progress=told.__setitem__), small)
    assert set(told) == set(POLICIES)


def test_a_seed_decides_everything_that_is_drawn() -> None:
    options = Options(limit=60, driver="host", policies=("static",))
    first, again, other = (replay(None, dataclasses.replace(options, seed=seed)) for seed in (1, 1, 2))
    assert same(first, again)
    assert first.policies["static"].live.mean != other.policies["static"].live.mean


def test_rate_scale_and_limit_are_taken() -> None:
    load = generate(100, seed=5)
    slow = replay(load, driver="host", policies=("static",), limit=40)
    fast = replay(load, driver="host", policies=("static",), limit=40, rate_scale=2.0)
    assert slow.requests == fast.requests == 40
    edges = [report.policies["static"].duration_s for report in (slow, fast)]
    assert edges[1] < edges[0]


def test_what_is_measured_on_real_memory_is_what_is_committed() -> None:
    """backing="memory": the operating system's count of the memory file, once a bucket, between low and high."""
    report = replay(
        generate(40, rate=200.0),
        model="stories260k",
        gpu_memory="64 MiB",
        activation_memory=0,
        driver="host",
        backing="memory",
        measure=True,
        max_num_seqs=16,
    )
    check_report(report)
    for result in report.policies.values():
        measured, committed = result.timeline.series("measured"), result.timeline.series("committed")
        assert np.isfinite(measured.mean).all()
        assert (measured.high <= committed.high.max()).all()
        assert measured.high.max() > 0
    prealloc = report.policies["paged-prealloc"]
    assert set(prealloc.timeline.series("measured").mean) == {prealloc.committed.mean}


def test_everything_too_long_is_rejected_by_all() -> None:
    load = Workload("long", np.zeros(3), np.full(3, 8000), np.full(3, 500))
    report = replay(load, driver="host")
    check_report(report)
    assert {result.too_long for result in report.policies.values()} == {3}
    assert {result.committed_over_live for result in report.policies.values()} == {None}
    assert conclusion(report).startswith(
        "No policy served a request: every one was rejected; give a longer --max-model-len"
    )
    assert rejections(report) is not None
    assert "3 of 3 requests (100.0%) are longer than max-model-len 8,192" in str(rejections(report))


def test_a_budget_too_small_for_a_policy_rejects_there_only() -> None:
    """1 GiB - 1 chunk: static has no room for one sequence of 8,192 tokens, paging has for most of a prompt."""
    load = Workload("short", np.zeros(5), np.full(5, 500), np.full(5, 20))
    report = replay(load, driver="host", gpu_memory="18.75 GiB", policies=("static", "paged-vmm"))
    assert report.budget < GIB
    assert (report.policies["static"].never_fits, report.policies["static"].completed) == (5, 0)
    assert (report.policies["paged-vmm"].never_fits, report.policies["paged-vmm"].completed) == (0, 5)


def test_the_published_trace_in_short() -> None:
    report = replay(trace("azure_conv_2023.csv"), gpu_memory="80 GiB", driver="host", limit=400)
    check_report(report)
    assert report.requests == 400
    assert report.policies["paged-vmm"].committed_over_live <= 1.10
    assert report.policies["static"].committed_over_live > 4


def test_mooncake_in_short() -> None:
    report = replay(trace("mooncake_conversation.jsonl"), driver="host", limit=200, policies=("static", "paged-vmm"))
    check_report(report)
    assert report.policies["static"].too_long > 50  # prompts beyond 8,192 tokens


class RealDriver(vmm.HostDriver):
    """Stands for the real driver: the same calls under its name, on a device of which a part is taken already."""

    driver_name = "cuda"


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch):
    """Every device that is asked for by name is on one RealDriver of 24 GiB, 2 GiB of it in use."""
    driver, device = RealDriver(memory="24 GiB", backing="none"), vmm.Device

    def open_device(ordinal: int = 0, *, driver=driver, given=driver, recorder=None) -> vmm.Device:
        named = driver is None or isinstance(driver, str)
        return device(ordinal, driver=given if named else driver, recorder=recorder)

    monkeypatch.delenv("VMM_DRIVER", raising=False)
    monkeypatch.setattr("vmm.Device", open_device)
    with device(0, driver=driver) as other, vmm.PhysicalMemory(other, "2 GiB"):
        yield driver


def test_a_real_device_gives_what_is_free_and_its_calls_are_timed(real: RealDriver) -> None:
    report = replay(generate(30), activation_memory=0, gpu_memory_utilization=1.0, policies=("static", "paged-vmm"))
    check_report(report)
    assert (report.driver, report.options["gpu_memory"]) == ("cuda", 22 << 30)
    assert report.budget == (22 << 30) - 2 * 8_030_261_248
    assert report.options["driver_costs"] == "measured"
    for result in report.policies.values():
        assert 0 < result.driver_s < 10
        assert result.uncosted == ()
    assert real.live().allocations == 1  # the other's


def test_a_real_device_is_shared_by_one_policy_at_a_time(real: RealDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["paged.replay.run"], "run_in_processes", None)
    assert replay(generate(5), processes=4).driver == real.driver_name


def test_a_real_device_never_gives_more_than_is_free(real: RealDriver) -> None:
    with pytest.raises(
        ValueError, match=r"GPU memory 23 GiB is more than the 22 GiB free on .*; lower it, leave it out"
    ):
        replay(generate(5), gpu_memory="23 GiB")
    assert replay(generate(5), gpu_memory="21 GiB", policies=("static",)).options["gpu_memory"] == 21 << 30
    with pytest.raises(ValueError, match="backing 'none' is the host driver's; leave it out on driver 'cuda'"):
        replay(generate(5), backing="none")
    assert real.live().allocations == 1


def test_the_host_driver_can_be_had_beside_a_real_one(real: RealDriver) -> None:
    report = replay(generate(5), driver="host", policies=("static",))
    assert (report.driver, report.options["gpu_memory"]) == ("host", 80 << 30)
    assert real.live().allocations == 1


@pytest.mark.exhaustive
def test_the_whole_published_trace() -> None:
    """Order block; that of layers, and other chunks, are in test_replay_serving."""
    report = replay(trace("azure_conv_2023.csv"), gpu_memory="80 GiB", driver="host", processes=2)
    check_report(report)
    assert report.requests == 19_366
    assert report.policies["paged-vmm"].committed_over_live <= 1.05
    assert report.policies["static"].committed_over_live > 4
    assert report.policies["paged-vmm"].running.mean == pytest.approx(7.3, abs=0.1)
    assert report.policies["paged-vmm"].running.peak == 28


@pytest.mark.exhaustive
def test_the_whole_published_trace_where_the_budget_binds() -> None:
    policies = ("paged-prealloc", "paged-vmm")
    report = replay(trace("azure_conv_2023.csv"), driver="host", rate_scale=12.0, policies=policies, processes=2)
    check_report(report)
    prealloc, on_demand = (report.policies[name] for name in policies)
    assert prealloc.preemptions > 100
    assert on_demand.running.mean == pytest.approx(prealloc.running.mean, rel=0.01)
