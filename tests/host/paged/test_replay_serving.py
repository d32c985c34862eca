"""Replays with compaction, prefix caching, swap, priorities, the driver's time on the clock, and several models."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import paged
from paged import replay
from paged.replay import load_workloads
from paged.replay.options import Options
from paged.replay.report import PolicyResult
from paged.replay.setup import prepare
from paged.serving.workload import TraceError, Workload, generate, together

TRACES = Path(__file__).parents[4] / "shared" / "traces"
GIB, MIB = 1 << 30, 1 << 20
SMALL = {"gpu_memory": "20 GiB", "driver": "host"}
"""2.04 GiB for KV of llama-3-8b."""
PAGED = ("paged-prealloc", "paged-vmm")


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"{name} is not in ../shared/traces")
    return path


def check(result: PolicyResult) -> PolicyResult:
    """The causes add up, to the byte."""
    assert result.committed.mean == result.live.mean + sum(result.waste.values())
    assert min(result.waste.values()) >= 0
    return result


# -- compaction ---------------------------------------------------------------------------------------------------


def test_compaction_commits_less_and_says_what_it_moved() -> None:
    load = generate(120, rate=4.0)
    plain, compact = (
        check(
            replay(load, driver="host", order="layer", reserve=0.0, policies="paged-vmm", compact=ratio).policies[name]
        )
        for name, ratio in (("paged-vmm", None), ("paged-vmm", 1.1))
    )
    assert plain.copied_bytes == 0
    assert compact.copied_bytes % (2 * MIB) == 0
    assert 0 < compact.copied_share == compact.copied_bytes / compact.written_bytes < 0.05
    assert compact.committed_over_live < plain.committed_over_live
    assert compact.live.mean == pytest.approx(plain.live.mean, rel=1e-3)
    assert compact.tokens_per_s == pytest.approx(plain.tokens_per_s, rel=1e-3)
    served = load.prompt + load.output <= 8192
    computed = int((load.prompt + load.output - 1)[served].sum())
    assert plain.written_bytes == computed * 128 * 1024  # llama-3-8b: 128 KiB a token


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "ratio", "copied", "driver"),
    [
        ({"order": "layer", "reserve": 0.0}, 1.25, 0.0, 1.0),
        ({"order": "layer", "reserve": 0.0, "compact": 1.1}, 1.12, 0.05, 1.0),
        ({"order": "block", "chunk": "8MiB", "reserve": 0.0}, 1.08, 0.0, 0.01),
    ],
    ids=str,
)
def test_how_little_is_committed_for_the_published_trace(options, ratio, copied, driver) -> None:
    report = replay(trace("azure_conv_2023.csv"), driver="host", policies="paged-vmm", **options)
    found = check(report.policies["paged-vmm"])
    assert found.committed_over_live <= ratio
    assert found.copied_share <= copied
    assert found.driver_s <= driver * found.duration_s


@pytest.mark.exhaustive
@pytest.mark.parametrize(("order", "ratio"), [("block", 1.02), ("layer", 1.03)])
def test_the_published_trace_where_the_budget_binds_with_the_driver_on_the_clock(order: str, ratio: float) -> None:
    options = {"order": order, "rate_scale": 12.0, "charge_driver_time": True, "policies": PAGED, "processes": 2}
    found = replay(trace("azure_conv_2023.csv"), driver="host", **options).policies
    assert found["paged-vmm"].committed_over_live <= ratio
    assert found["paged-vmm"].driver_s < 0.01 * found["paged-vmm"].duration_s
    assert found["paged-vmm"].tokens_per_s >= 0.99 * found["paged-prealloc"].tokens_per_s


# -- the driver's time --------------------------------------------------------------------------------------------


def test_driver_time_on_the_clock_lengthens_the_run_by_as_much(tmp_path: Path) -> None:
    """One sequence and no gaps: the run is longer by what its calls cost, but for what came after the last step."""
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps({"source": "made up", "microseconds": {"cuMemCreate": 1000, "cuMemRelease": 7}}))
    load = Workload("one", np.zeros(1), np.array([100]), np.array([50]))
    free, charged = (
        replay(load, policies=PAGED, driver_costs=str(costs), charge_driver_time=charge, **SMALL).policies
        for charge in (False, True)
    )
    created = charged["paged-vmm"].driver_calls["cuMemCreate"]
    assert created == 10  # 149 tokens in blocks of 16
    assert charged["paged-vmm"].waited_s == pytest.approx(10e-3)
    assert charged["paged-vmm"].duration_s == pytest.approx(free["paged-vmm"].duration_s + 10e-3)
    assert charged["paged-prealloc"].duration_s == free["paged-prealloc"].duration_s  # all of it before the first step


# -- preemption ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd() -> Workload:
    """60 prompts at once, of which a budget of 2 GiB has room for some fifteen."""
    rng = np.random.default_rng(5)
    return Workload("crowd", np.zeros(60), rng.integers(500, 1500, 60), rng.integers(100, 300, 60))


def test_swap_computes_nothing_twice_and_is_charged(crowd: Workload) -> None:
    memory = {"gpu_memory": "20 GiB", "driver": "host", "policies": "paged-vmm"}
    again = check(replay(crowd, **memory).policies["paged-vmm"])
    swap = check(replay(crowd, preemption="swap", swap_space="8 GiB", **memory).policies["paged-vmm"])
    computed = int((crowd.prompt + crowd.output - 1).sum()) * 128 * 1024
    assert again.preemptions > 5
    assert again.swapped == again.swapped_bytes == 0
    assert again.written_bytes > computed
    assert 5 < swap.swapped == swap.preemptions
    assert swap.written_bytes == computed
    assert swap.swapped_bytes % (2 * 128 * 1024) == 0  # out and back
    assert swap.waited_s == pytest.approx(swap.swapped_bytes / 64e9)
    none = replay(crowd, preemption="swap", swap_space=0, **memory).policies["paged-vmm"]
    assert (none.preemptions, none.written_bytes) == (again.preemptions, again.written_bytes)


def test_a_watermark_preempts_less(crowd: Workload) -> None:
    memory = {"gpu_memory": "20 GiB", "driver": "host", "policies": "paged-vmm"}
    found = [replay(crowd, watermark=mark, **memory).policies["paged-vmm"] for mark in (0.0, 0.2)]
    assert found[1].preemptions < found[0].preemptions
    assert found[1].completed == found[0].completed == 60


# -- prefix caching -----------------------------------------------------------------------------------------------


def seen_before(workload: Workload) -> tuple[int, int]:
    """Whole blocks of 512 tokens that an earlier prompt had, of all, if at least one token is left to compute."""
    seen: set[int] = set()
    hit = asked = 0
    for ids, prompt in zip(workload.hash_ids, workload.prompt.tolist(), strict=True):
        known = next((place for place, name in enumerate(ids) if name not in seen), len(ids))
        asked += len(ids)
        hit += min(known * 512, prompt - 1) // 512
        seen.update(ids)
    return hit, asked


def conversations(count: int, seed: int) -> Workload:
    """Prompts that go on where earlier ones ended, some the same to the last token."""
    rng = np.random.default_rng(seed)
    made, fresh, histories = [], iter(range(10**6)), [()]
    for _ in range(count):
        before = histories[rng.integers(len(histories))]
        ids = (*before, *(next(fresh) for _ in range(rng.integers(0, 3))))
        length = 512 * len(ids) - (0 if ids == before else int(rng.integers(0, 512)))
        if not length:
            ids, length = (next(fresh),), 512
        whole = ids if length % 512 == 0 else ids[:-1]
        histories.append(whole)
        made.append((ids, length))
    prompts = np.array([length for _, length in made])
    arrivals = np.sort(rng.uniform(0, count / 4, count))
    return Workload("talks", arrivals, prompts, rng.integers(1, 80, count), hash_ids=tuple(ids for ids, _ in made))


@pytest.mark.parametrize("block_size", [16, 128, 256])
def test_without_a_bound_every_block_that_was_seen_is_found(block_size: int) -> None:
    load = conversations(120, block_size)
    options = {"model": "qwen2.5-7b", "gpu_memory": "40 GiB", "chunk": "14 MiB", "driver": "host", "policies": PAGED}
    found = replay(load, prefix_cache=True, block_size=block_size, **options).policies
    plain = replay(load, block_size=block_size, **options).policies
    hit, asked = seen_before(load)
    assert hit > 50
    for name, result in found.items():
        check(result)
        assert (result.prefix.hit_blocks, result.prefix.asked_blocks) == (hit, asked)
        assert result.prefix.asked_tokens == load.prompt.sum()
        assert result.written_bytes == plain[name].written_bytes - result.prefix.hit_tokens * 57_344
        assert result.waste["prefix"] > 0
        assert result.completed == 120
        assert plain[name].prefix is None
    assert found["paged-prealloc"].prefix == found["paged-vmm"].prefix


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_bounded_cache_finds_less_and_serves_all(preemption: str) -> None:
    load = conversations(150, 3)
    rates = []
    for gib in (19, 24, 40):
        options = {"model": "qwen2.5-7b", "gpu_memory": f"{gib} GiB", "driver": "host", "policies": "paged-vmm"}
        result = check(
            replay(load, prefix_cache=True, block_size=64, preemption=preemption, **options).policies["paged-vmm"]
        )
        assert result.completed == 150
        rates.append(result.prefix.hit_rate)
    assert rates == sorted(rates)
    assert rates[0] < rates[-1] == seen_before(load)[0] / seen_before(load)[1]


@pytest.mark.exhaustive
def test_the_conversation_trace_without_a_bound() -> None:
    path = trace("mooncake_conversation.jsonl")
    options = {
        "model": "qwen2.5-7b",
        "block_size": 256,
        "chunk": "14 MiB",
        "driver": "host",
        "policies": "paged-prealloc",
    }
    rates = []
    for memory in ("64 GiB", "256 GiB", "1 TiB", "8 TiB"):
        result = check(replay(path, prefix_cache=True, gpu_memory=memory, **options).policies["paged-prealloc"])
        assert result.completed == 12_031
        rates.append(result.prefix.hit_rate)
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(0.366, abs=0.0005)


def test_prompts_that_come_at_once_share_what_the_first_has_computed() -> None:
    load = dataclasses.replace(conversations(60, 9), arrival_s=np.zeros(60))
    options = {"model": "qwen2.5-7b", "gpu_memory": "80 GiB", "driver": "host", "policies": "paged-vmm"}
    found = check(replay(load, prefix_cache=True, block_size=256, chunk="14 MiB", **options).policies["paged-vmm"])
    assert (found.prefix.hit_blocks, found.prefix.asked_blocks) == seen_before(load)
    assert found.running.peak > 30


def test_a_trace_without_hash_ids_has_no_prefixes() -> None:
    with pytest.raises(TraceError, match="says of no prompt how it begins"):
        replay(generate(5), driver="host", prefix_cache=True)


# -- several models -----------------------------------------------------------------------------------------------


def alternating() -> list[Workload]:
    """Two models, one busy in the first half of each 20 s and the other in the second."""
    loads = []
    for model in (0, 1):
        rng = np.random.default_rng(model)
        arrivals = np.sort(np.repeat([0.0, 20.0], 30) + 10 * model + rng.uniform(0, 1, 60))
        loads.append(Workload(f"{model}", arrivals, rng.integers(800, 1200, 60), rng.integers(200, 400, 60)))
    return loads


def shared(policy: str, kv: int, **options) -> PolicyResult:
    weights = 2 * paged.model("llama-3-8b").weight_bytes
    setup = {"gpu_memory": kv + weights, "gpu_memory_utilization": 1.0, "activation_memory": 0, "driver": "host"}
    models = ("llama-3-8b", "llama-3-8b")
    return check(replay(alternating(), model=models, policies=policy, **setup, **options).policies[policy])


def test_memory_flows_between_models_whose_loads_alternate() -> None:
    """On one budget both end as early as on halves of twice the memory, and earlier than on halves of the same."""
    one, halves, double = (
        shared("paged-vmm", 2 * GIB),
        shared("paged-prealloc", 2 * GIB),
        shared("paged-prealloc", 4 * GIB),
    )
    assert [served.completed for served in one.models] == [60, 60]
    assert one.committed.peak <= 2 * GIB
    assert one.duration_s == pytest.approx(double.duration_s, rel=0.01)
    assert halves.duration_s > 1.03 * one.duration_s
    assert max(served.finished_s for served in one.models) == one.duration_s


def test_models_that_are_busy_at_once_share_the_clock_and_the_memory() -> None:
    load = Workload("crowd", np.zeros(30), np.full(30, 900), np.full(30, 150))
    weights = 2 * paged.model("llama-3-8b").weight_bytes
    setup = {"gpu_memory": 2 * GIB + weights, "gpu_memory_utilization": 1.0, "activation_memory": 0, "driver": "host"}
    result = check(replay([load, load], model=("llama-3-8b",) * 2, policies="paged-vmm", **setup).policies["paged-vmm"])
    alone = replay(load, policies="paged-vmm", **{**setup, "gpu_memory": 2 * GIB + weights // 2}).policies["paged-vmm"]
    assert [served.completed for served in result.models] == [30, 30]
    assert result.duration_s > 1.8 * alone.duration_s
    assert result.committed.peak <= 2 * GIB
    first, second = (served.finished_s for served in result.models)
    assert first == pytest.approx(second, rel=0.3)


def test_one_model_takes_no_more_turns_than_it_has_steps() -> None:
    """The other has nothing to do: everything is as if it ran alone."""
    load = generate(40, seed=1)
    late = Workload("late", np.array([1e4]), np.array([10]), np.array([2]))
    one = replay(load, driver="host", policies="paged-vmm", gpu_memory="40 GiB").policies["paged-vmm"]
    two = replay([load, late], driver="host", model=("llama-3-8b",) * 2, policies="paged-vmm", gpu_memory="60 GiB")
    found = two.policies["paged-vmm"]
    assert found.models[0].finished_s == pytest.approx(one.duration_s, rel=1e-12)
    assert found.models[1].finished_s > 1e4
    assert found.steps == one.steps + 2
    assert two.model == "llama-3-8b + llama-3-8b"
    assert two.requests == 41


def test_each_model_needs_a_trace() -> None:
    options = Options(model=("llama-3-8b", "qwen2.5-7b"), limit=5)
    with pytest.raises(TraceError, match="2 models and 1 traces are given; name a trace for each model"):
        load_workloads([generate(5)], options)
    made = load_workloads(None, options)
    assert made[0].name != made[1].name
    assert len(together(made)) == 10
    assert (np.diff(together(made).arrival_s) >= 0).all()


def test_the_budget_of_several_models_is_less_the_weights_of_all() -> None:
    setup = prepare(Options(model=("llama-3-8b", "qwen2.5-7b"), driver="host"))
    weights = [paged.model(name).weight_bytes for name in ("llama-3-8b", "qwen2.5-7b")]
    assert setup.budget == int(80 * GIB * 0.9) - sum(weights) - GIB
    assert [member.model.weight_bytes for member in setup.members] == weights
    assert {member.budget for member in setup.members} == {setup.budget}


@pytest.mark.parametrize("name", ["static", "grow-copy", "contiguous-vmm"])
def test_every_policy_serves_several_models_from_equal_parts(name: str) -> None:
    result = shared(name, 4 * GIB, max_model_len=2048, max_num_seqs=64, max_num_batched_tokens=2048)
    assert [served.completed for served in result.models] == [60, 60]
    assert result.committed.peak <= 4 * GIB


def test_models_may_be_named_one_by_one() -> None:
    assert Options(model=["llama-3-8b"]).model == "llama-3-8b"
    with pytest.raises(ValueError, match="no model is named"):
        Options(model=())
