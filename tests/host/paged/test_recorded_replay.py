"""A replay that is recorded: the same figures, every request's blocks, and moments of the simulation."""

import contextlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import paged
from paged.commands.group import main
from paged.page.write import page_data
from paged.policies.paged_vmm import PagedVmm
from paged.recording import PoolRecorder, Recording
from paged.recording.kinds import Kind
from paged.recording.recorded_tables import record_tables
from paged.recording.replayed import record_policy
from paged.recording.state import State, split
from paged.replay.options import Options
from paged.replay.run import Run, load_workloads, run_policy
from paged.replay.setup import prepare
from paged.serving.driver_costs import driver_costs
from paged.serving.scheduler import Scheduler
from paged.serving.simulation import Simulation

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = (f"2023-11-16 18:15:{second:02}.5000000,{100 + 40 * second},{20 + second}\n" for second in range(30))
    path.write_text(HEADER + "".join(rows))
    return path


def make_run(trace: Path, policy: str = "paged-vmm", **changes: object) -> Run:
    options = Options(**{"policies": (policy,), "driver": "host", "gpu_memory": "20GiB", **changes})
    return Run(prepare(options), load_workloads(trace, options), driver_costs("vattention"))


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ("paged-vmm", {}),
        ("paged-prealloc", {}),
        ("paged-vmm", {"order": "layer", "compact": 1.05}),
        ("paged-vmm", {"block_size": 256}),
    ],
)
def test_a_recorded_replay_gives_the_same_figures(trace: Path, policy: str, changes: dict[str, object]) -> None:
    run = make_run(trace, policy, **changes)
    plain = run_policy(run, policy)
    result, recording = record_policy(run)
    assert result.to_json() == plain.to_json()
    counts = recording.marks[-1].counts
    assert {name: counts[name] for name in ("cuMemCreate", "cuMemMap")} == {
        name: result.driver_calls[name] for name in ("cuMemCreate", "cuMemMap")
    }
    assert int(recording.columns()["moment"].max()) <= result.duration_s * 1e9 + 1


@pytest.mark.parametrize("changes", [{}, {"order": "layer", "compact": 1.05}])
def test_every_request_begins_ends_and_had_the_blocks_that_its_tokens_need(
    trace: Path, changes: dict[str, object]
) -> None:
    run = make_run(trace, **changes)
    _, recording = record_policy(run)
    state, labels, most = State(), Counter(), {}
    for event, ids in split(recording.rows, recording.ids):
        if event.kind == Kind.START:
            labels[event.a] += 1
            arrived = run.workloads[0].arrival_s[event.a]
            assert arrived - 1e-6 <= event.moment / 1e9 <= arrived + 1  # the simulation's clock, not this machine's
        if event.kind == Kind.END:
            one = state.sequences[event.sequence]
            most[one.label] = len(one.table)
        state.apply(event, ids)
        assert set(state.counts.values()) <= {1}
    assert labels == Counter(range(30))
    assert most == {n: -(-(100 + 40 * n + 20 + n - 1) // 16) for n in range(30)}
    assert state.sequences == {}


@pytest.mark.parametrize("compact", [None, 1.05])
def test_the_tables_of_the_recording_are_those_of_the_policy(device, compact: float | None) -> None:
    """After every operation, also of requests that were there before the recorder, and no longer when it is closed."""
    layout = paged.KVLayout(paged.KVSpec(2, 4, 64, "float16"), 16, chunk=2 << 20)
    policy = PagedVmm(device, 64 << 20, layout, compact=compact)
    random, held = np.random.default_rng(5), {}
    for request in (3, 4):
        policy.admit(request, 100 * request, 100 * request)
        held[request] = 100 * request
    with contextlib.closing(policy), PoolRecorder(policy.pool) as recorder:
        before = policy.tables
        record_tables(policy, recorder)
        for step in range(5, 300):
            request = int(random.choice(list(held)))
            if len(held) < 6:
                held[step] = int(random.integers(1, 900))
                policy.admit(step, held[step], held[step])
            elif random.random() < 0.25:
                policy.finish(request)
                del held[request]
            else:
                held[request] += int(random.integers(1, 60))
                policy.grow(request, held[request])
            policy.tidy()
            found = tables_of(recorder.recording())
            known = {one: policy.tables.blocks(one) for one in held}
            assert {one: len(table) for one, table in found.items() if one >= 5} == {
                one: count for one, count in known.items() if one >= 5
            }
            if compact is None:
                assert {one: policy.tables.lists[one] for one in found} == found
        assert len(found) >= 4
        told: Counter[int] = Counter()
        for event, ids in split(recorder.recording().rows, recorder.recording().ids):
            if event.kind == Kind.PUT:
                assert event.b == told[event.sequence]
                told[event.sequence] += len(ids)
        assert 0 < policy.pool.block_pool.used == sum(known.values())
        recorder.close()
        assert policy.tables is before
        for request in held:
            policy.finish(request)
        assert policy.pool.block_pool.used == 0


def tables_of(recording: Recording) -> dict[int, list[int]]:
    """The request of each table, and its blocks."""
    state = State()
    state.apply_all(recording.rows, recording.ids)
    return {sequence.label: sequence.held for sequence in state.sequences.values()}


def test_the_tokens_of_an_ended_sequence_are_gone_with_its_blocks(trace: Path) -> None:
    """What is held and not live is the tails: less than a block for each sequence that is left."""
    _result, recording = record_policy(make_run(trace))
    size, state, ends = recording.about["block_size"], State(), 0
    for event, ids in split(recording.rows, recording.ids):
        state.apply(event, ids)
        if event.kind == Kind.END:
            tails = len(state.counts) * size - state.live
            assert 0 <= tails <= size * len(state.sequences)
            ends += 1
    assert ends == 30


@pytest.fixture
def alike(tmp_path: Path) -> Path:
    """Prompts of which each begins like one before it, and which do not all fit at once."""
    path = tmp_path / "alike.jsonl"
    names = [[n % 3, 10 + n % 5, *range(100 * n, 100 * n + n % 4)] for n in range(40)]
    path.write_text(
        "".join(
            json.dumps(
                {
                    "timestamp": 150 * n,
                    "input_length": 512 * len(ids) - 7 * n,
                    "output_length": 300 + 20 * n,
                    "hash_ids": ids,
                }
            )
            + "\n"
            for n, ids in enumerate(names)
        )
    )
    return path


@pytest.mark.parametrize("memory", ["40GiB", "18842MiB"])
@pytest.mark.parametrize("policy", ["paged-vmm", "paged-prealloc"])
def test_live_is_that_of_the_meter_after_each_event_though_prompts_share_their_beginning(
    alike: Path, policy: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    composed: dict[int, int] = {}
    rested: dict[int, int] = {}
    compose, complete = Simulation.compose, Scheduler.complete
    made: list[Simulation] = []

    def composing(simulation: Simulation) -> float:
        made[:] = [simulation]
        seconds = compose(simulation)
        composed[int(simulation.now * 1e9)] = simulation.live
        return seconds

    def completing(scheduler: Scheduler) -> None:
        complete(scheduler)
        rested[int(made[0].now * 1e9)] = made[0].resting

    monkeypatch.setattr(Simulation, "compose", composing)
    monkeypatch.setattr(Scheduler, "complete", completing)
    run = make_run(alike, policy, prefix_cache=True, gpu_memory=memory, max_model_len=8192)
    result, recording = record_policy(run)
    assert result.prefix is not None
    assert result.prefix.hit_tokens > 0
    assert (result.preemptions > 0) is (memory == "18842MiB")
    before, state = 0, State()
    latest: dict[int, tuple[int, int]] = {}
    for event, ids in split(recording.rows, recording.ids):
        state.apply(event, ids)
        assert event.live >= before or event.kind == Kind.END, (state.what, event)
        before = event.live
        latest[event.moment] = event.kind, event.live
    token = recording.about["token_bytes"]
    for moment, (kind, live) in latest.items():
        found = {live * token}
        if kind == Kind.END:  # with the step, or preempted in the next
            assert found <= {rested.get(moment), composed.get(moment)}
        else:
            assert found == {composed[moment]}
    assert before == 0


def test_the_curves_have_the_peaks_that_the_meter_saw(trace: Path) -> None:
    result, recording = record_policy(make_run(trace))
    data = page_data(recording, 50, 0, recording.about["end"])
    for name, peak in (("committed", result.committed.peak), ("sequences", result.running.peak)):
        index = data["figures"].index(name)
        assert max(moment[3][index] for moment in data["moments"]) == peak


def test_the_calls_can_be_kept_one_by_one_inside_the_events_that_made_them(trace: Path) -> None:
    _, recording = record_policy(make_run(trace), each_call=True)
    assert Counter(call.call for call in recording.calls)["cuMemCreate"] == recording.marks[-1].counts["cuMemCreate"]
    moments = recording.call_moments()
    assert (np.diff(moments) >= 0).all()
    assert moments[0] >= 0
    assert moments[-1] <= recording.about["end"] + 1_000_000_000


def test_the_command_records_and_refuses_what_has_no_block_table(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.pagewalk"
    common = ["replay", str(trace), "--driver", "host", "--gpu-memory", "20GiB", "--record", str(path)]
    found = CliRunner().invoke(main, [*common, "--policy", "paged-vmm"])
    assert found.exit_code == 0, found.output
    assert f"{len(Recording.load(path)):,} events are in {path}" in found.stderr
    for wrong in (["--policy", "static"], []):
        found = CliRunner().invoke(main, [*common, *wrong])
        assert found.exit_code == 2
        assert "one policy with block tables" in found.stderr
        assert found.stderr.count("\n") == 1
    assert paged.recording.Recording is Recording
