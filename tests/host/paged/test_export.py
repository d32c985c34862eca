"""Exports of a recording: each has the fields that its readers look at, and says what the pool was."""

import csv
import gzip
import importlib.util
import io
import json
import pickle
import urllib.request
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

import paged
import vmm
from paged.commands.group import main
from paged.export import FORMATS, export
from paged.export.chrome_trace import records
from paged.export.memory_snapshot import snapshot
from paged.recording import record
from paged.recording.kinds import Kind
from paged.recording.state import State, split

SPEC = paged.KVSpec(2, 2, 16, "float16")  # 256 bytes a token


@pytest.fixture(scope="module", params=[True, False], ids=["prefix cache", "none"])
def run(request):
    """(recording, what the pool was at its end): random work with forks, perhaps a prefix cache, and compaction."""
    random, calls = np.random.default_rng(3), vmm.Recorder()
    spec = paged.KVSpec(8, 4, 64, "float16")
    layout = paged.KVLayout(spec, 256, order="layer", chunk=2 << 20)  # 8 planes, 8 blocks a row
    host = vmm.HostDriver(memory="1 GiB", backing="none")
    with (
        vmm.Device(driver=host, recorder=calls) as device,
        paged.KVPool(device, layout, budget="384 MiB", prefix_cache=request.param) as pool,
        record(pool, calls=calls, source="a test") as recorder,
    ):
        alive, prompt = [], np.arange(20_000)
        for step in range(200):
            if step % 3 == 0 and len(alive) < 8:
                ids = prompt[: random.integers(300, 12_000)]
                sequence = pool.sequence(ids if request.param else None)
                if sequence.can_append(len(ids) - sequence.length):
                    sequence.append(ids[sequence.length :])
                alive.append(sequence)
            elif step % 7 == 1 and alive:
                alive.append(alive[0].fork())
            elif step % 5 == 2 and alive:
                alive.pop(random.integers(len(alive))).free()
            elif step % 11 == 3:
                pool.compact()
            elif alive and alive[-1].can_append(50):
                alive[-1].append(50)
        recording = recorder.recording()
        held = Counter(block for sequence in pool.sequences for block in sequence.held)
        every = range(pool.block_pool.rows.blocks)
        cached = {block for block in every if block in pool.prefix.cache} if pool.prefix else set()
        found = {"held": held, "cached": cached, "committed": pool.committed, "reserved": pool.reserved}
        found |= {
            "live": pool.live,
            "sequences": len(pool.sequences),
            "mapped": {mapping.address for mapping in pool.range.mappings()},
        }
        return recording, found


# -- Chrome's trace events --------------------------------------------------------------------------------------------


def test_every_trace_event_has_the_fields_of_its_phase(run, tmp_path):
    recording, _ = run
    path = tmp_path / "a.json.gz"
    export(recording, "chrome", path)
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    wanted = {
        "X": {"ts", "dur"},
        "i": {"ts", "s"},
        "C": {"ts"},
        "b": {"ts", "id", "cat"},
        "e": {"ts", "id", "cat"},
        "M": set(),
    }
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid", "args"} <= set(event)
        assert wanted[event["ph"]] <= set(event)
        assert all(event[name] >= 0 for name in ("ts", "dur") if name in event)
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
    assert {event["ph"] for event in trace["traceEvents"]} >= {"X", "C", "b", "e", "M"}


def test_events_of_one_thread_nest_and_sequences_begin_before_they_end(run):
    recording, _ = run
    found = list(records(recording))
    for thread in (1, 2):
        open_until = []
        spans = [
            (event["ts"], event["ts"] + event["dur"])
            for event in found
            if event["ph"] == "X" and event["tid"] == thread
        ]
        for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start + 0.002:
                open_until.pop()
            assert not open_until or stop <= open_until[-1] + 0.002
            open_until.append(stop)
    open_ = set()
    for event in found:
        if event["ph"] == "b":
            open_.add(event["id"])
        if event["ph"] == "e":
            open_.remove(event["id"])


def test_calls_lie_inside_the_commit_that_made_them(run):
    recording, _ = run
    found = [event for event in records(recording) if event["ph"] == "X"]
    commits = [(event["ts"], event["ts"] + event["dur"]) for event in found if event["name"] == "commit"]
    created = [event for event in found if event["name"] == "cuMemCreate"]
    assert created
    origin, last = recording.about["origin"], recording.calls[-1]
    assert found[-1]["ts"] == pytest.approx((last.time_ns - origin) / 1e3, abs=0.01)
    for event in created:
        assert any(start <= event["ts"] and event["ts"] + event["dur"] <= stop + 0.002 for start, stop in commits)


def test_the_trace_has_each_call_and_the_pools_own_counters(run):
    recording, pool = run
    found = list(records(recording))
    calls = Counter(event["name"] for event in found if event["ph"] == "X" and event["cat"] == "driver")
    assert calls == Counter(call.call for call in recording.calls)
    last = [event for event in found if event["ph"] == "C" and event["name"] == "bytes"][-1]["args"]
    assert last["committed"] == pool["committed"]
    assert [event for event in found if event["name"] == "sequences"][-1]["args"]["sequences"] == pool["sequences"]


# -- the snapshot of PyTorch's memory viewer --------------------------------------------------------------------------

FRAME = {"filename": str, "line": int, "name": str}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
SEGMENT = {
    "device": int,
    "address": int,
    "total_size": int,
    "allocated_size": int,
    "active_size": int,
    "requested_size": int,
    "stream": int,
    "segment_type": str,
    "segment_pool_id": tuple,
    "is_expandable": bool,
    "frames": list,
    "blocks": list,
}
ENTRY = {"action": str, "addr": int, "size": int, "stream": int, "time_us": int, "frames": list}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_map", "segment_unmap"}


def has(found, fields):
    assert {name: type(value) for name, value in found.items()} == fields
    for frame in found.get("frames", []):
        assert {name: type(value) for name, value in frame.items()} == FRAME


def test_the_snapshot_has_the_documented_fields(run, tmp_path):
    recording, _ = run
    path = tmp_path / "a.pickle"
    export(recording, "snapshot", path)
    found = pickle.loads(path.read_bytes())
    assert {"segments", "device_traces"} <= set(found)
    assert len(found["device_traces"]) == 1
    for segment in found["segments"]:
        has(segment, SEGMENT)
        assert segment["segment_type"] in ("small", "large")
        for block in segment["blocks"]:
            has(block, BLOCK)
            assert block["state"] in ("active_allocated", "active_awaiting_free", "inactive")
    for entry in found["device_traces"][0]:
        has(entry, ENTRY)
        assert entry["action"] in ACTIONS


def test_blocks_tile_their_segments_and_are_the_pools(run):
    recording, pool = run
    found, about = snapshot(recording), recording.about
    active = set()
    for segment in found["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
            if block["state"] == "active_allocated":
                active.add(block["address"])
        assert at == segment["address"] + segment["total_size"]
        used = sum(block["size"] for block in segment["blocks"] if block["state"] == "active_allocated")
        assert used == segment["allocated_size"] == segment["active_size"]
    assert pool["mapped"] == {
        segment["address"] + offset
        for segment in found["segments"]
        for offset in range(0, segment["total_size"], 2 << 20)
    }
    assert active == {
        about["base"] + plane * about["plane_stride"] + block * about["block_stride"]
        for block in {*pool["held"], *pool["cached"]}
        for plane in range(about["planes"])
    }


def lies_in(mapped, address, size):
    """Whether what is allocated is mapped."""
    return {address >> 21 << 21, (address + size - 1) >> 21 << 21} <= mapped


def walk_back(found):
    """What the viewer does: from the segments at the end back through the history. Every step must be possible."""
    mapped = {
        segment["address"] + offset
        for segment in found["segments"]
        for offset in range(0, segment["total_size"], 2 << 20)
    }
    blocks = {b["address"]: b["size"] for s in found["segments"] for b in s["blocks"] if b["state"] != "inactive"}
    assert all(lies_in(mapped, address, size) for address, size in blocks.items())
    for entry in reversed(found["device_traces"][0]):
        chunks = range(entry["addr"], entry["addr"] + entry["size"], 2 << 20)
        if entry["action"] == "alloc":
            assert blocks.pop(entry["addr"]) == entry["size"]
        elif entry["action"] == "free_completed":
            assert entry["addr"] not in blocks
            blocks[entry["addr"]] = entry["size"]
            assert lies_in(mapped, entry["addr"], entry["size"])
        elif entry["action"] == "segment_map":
            assert all(chunk in mapped for chunk in chunks)
            mapped -= set(chunks)
            assert all(lies_in(mapped, address, size) for address, size in blocks.items())
        elif entry["action"] == "segment_unmap":
            assert not mapped & set(chunks)
            mapped |= set(chunks)
    return mapped, blocks


def test_the_history_leads_back_to_nothing_step_by_step(run):
    recording, _ = run
    found = snapshot(recording)
    assert len(found["device_traces"][0]) > 300
    assert walk_back(found) == (set(), {})


def test_a_history_that_is_cut_still_leads_back(run):
    recording, _ = run
    found = snapshot(recording, most=100)
    assert len(found["device_traces"][0]) == 100
    mapped, blocks = walk_back(found)
    assert mapped
    assert blocks


def test_a_row_that_goes_back_twice_in_a_damaged_recording_ends_no_export(device):
    layout = paged.KVLayout(paged.KVSpec(8, 4, 64, "float16"), 256)  # a block a chunk
    with paged.KVPool(device, layout, blocks=8) as pool, record(pool) as recorder:
        sequence = pool.sequence()
        sequence.append(600)
        sequence.free()
        recording = recorder.recording()
    at = list(recording.columns()["kind"]).index(Kind.DECOMMIT)
    place = int(recording.columns()["named"][:at].sum())
    assert recording.columns()["named"][at] == 3
    recording.ids[place + 1] = recording.ids[place]
    assert len(snapshot(recording)["segments"]) == 1


def test_torchs_own_code_reads_the_snapshot(run):
    """The functions of torch.cuda._memory_viz, loaded by themselves: they need no built torch."""
    torch = importlib.util.find_spec("torch")
    if torch is None or not torch.submodule_search_locations:
        pytest.skip("torch is not installed; the fields are checked above")
    path = f"{torch.submodule_search_locations[0]}/cuda/_memory_viz.py"
    spec = importlib.util.spec_from_file_location("memory_viz", path)
    viewer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viewer)
    found = snapshot(run[0])
    summary = viewer.segsum(found)
    assert f"segments: {len(found['segments'])}" in summary
    assert f"{len(found['device_traces'][0])} entries" in viewer.trace(found)
    assert "Memory" in viewer.trace_plot(found)
    lines = viewer.memory(found, format_flamegraph=lambda text: text)
    assert "active_allocated" in lines


# -- CSV, metrics, the command ----------------------------------------------------------------------------------------


def test_csv_has_a_line_an_event_and_call_and_ends_with_what_the_pool_had(run, tmp_path):
    recording, pool = run
    path = tmp_path / "a.csv"
    export(recording, "csv", path)
    lines = list(csv.DictReader(io.StringIO(path.read_text())))
    names = Counter(line["event"] for line in lines)
    assert sum(names.values()) == len(recording) + len(recording.calls)
    assert names["commit"] == sum(event.kind == Kind.COMMIT for event, _ in split(recording.rows, recording.ids))
    times = [float(line["time_s"]) for line in lines]
    assert times == sorted(times)
    last = lines[-1]
    assert (int(last["committed_bytes"]), int(last["reserved_bytes"])) == (pool["committed"], pool["reserved"])
    assert int(last["held_bytes"]) == len(pool["held"]) * recording.about["block_bytes"]
    assert int(last["cached_bytes"]) == len(pool["cached"] - set(pool["held"])) * recording.about["block_bytes"]


def test_events_are_named_for_what_they_were(device):
    layout = paged.KVLayout(SPEC, 256, chunk=2 << 20)
    with paged.KVPool(device, layout, budget="16 MiB", prefix_cache=True) as pool, record(pool) as recorder:
        ids = np.arange(1000)
        first = pool.sequence(ids)
        first.append(ids)
        first.fork().append(np.arange(3))
        pool.sequence(ids)
        state, said = State(), []
        for event, named in split(recorder.recording().rows, recorder.recording().ids):
            state.apply(event, named)
            said.append(state.what)
    assert [what for what in said if not what.startswith("prefix")] == [
        *("start", "commit", "append"),
        *("start", "share", "copy on write"),
        *("start", "share"),
    ]
    assert said.count("prefix hit") == 2
    assert said.count("prefix store") == 1


def test_counts_of_a_state_follow_its_tables(run):
    recording, pool = run
    state = State()
    for event, ids in split(recording.rows, recording.ids):
        state.apply(event, ids)
        assert state.counts == Counter(block for one in state.sequences.values() for block in one.held)
        assert state.idle == len(state.cached - set(state.counts))
    assert state.counts == pool["held"]


def test_metrics_are_text_and_an_endpoint_on_localhost(run, tmp_path):
    pytest.importorskip(
        "prometheus_client", reason="prometheus-client is not installed; pip install 'pagewalk[metrics]'"
    )
    from paged.export.metrics import registry_of, serve, values_of

    recording, pool = run
    path = tmp_path / "a.txt"
    export(recording, "prometheus", path)
    text = path.read_text()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values['pagewalk_committed_bytes{pool="kv"}']) == pool["committed"]
    assert float(values['pagewalk_sequences{pool="kv"}']) == pool["sequences"]
    created = recording.marks[-1].counts["cuMemCreate"]
    assert float(values['pagewalk_driver_calls_total{call="cuMemCreate",pool="kv"}']) == created
    server, port = serve(registry_of("kv", lambda: values_of(recording)), 0)
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert answer.read().decode() == text
        assert server.server_address[0] == "127.0.0.1"
    finally:
        server.shutdown()
        server.server_close()


def test_metrics_of_a_pool_that_runs_are_asked_of_the_pool(device):
    from paged.export.metrics import live_values

    with paged.KVPool(device, paged.KVLayout(SPEC, 256, chunk=2 << 20), blocks=64) as pool, record(pool) as recorder:
        pool.sequence().append(1000)
        now, counts, _ = live_values(recorder)
        assert (now.live, now.committed, now.sequences, counts) == (1000 * 256, 2 << 20, 1, {})


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "prometheus"])
def test_the_command_writes_each_form(run, tmp_path, form):
    run[0].save(tmp_path / "a.pagewalk")
    found = CliRunner().invoke(
        main, ["export", str(tmp_path / "a.pagewalk"), "--to", form, "--output", str(tmp_path / "out"), "--json"]
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["bytes"] == (tmp_path / "out").stat().st_size > 1000


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "prometheus"])
def test_the_command_writes_to_standard_output_and_nothing_else_there(run, tmp_path, monkeypatch, form):
    recording, _ = run
    monkeypatch.chdir(tmp_path)
    recording.save("run.pagewalk")
    export(recording, form, "written")
    done = CliRunner().invoke(main, ["export", "run.pagewalk", "--to", form, "-o", "-"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout_bytes == (tmp_path / "written").read_bytes()
    assert not (tmp_path / "-").exists()
    done = CliRunner().invoke(main, ["export", "run.pagewalk", "--to", form, "-o", "-", "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: -o - and --json are both for standard output; name a file\n"


def test_no_other_file_is_named_like_standard_output(run, tmp_path, monkeypatch):
    recording, _ = run
    monkeypatch.chdir(tmp_path)
    recording.save("run.pagewalk")
    for arguments in (["view", "run.pagewalk", "-o", "-"], ["replay", "--policy", "paged-vmm", "--record", "-"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2
        assert done.stderr == "error: -: this is not written to standard output; name a file\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run.pagewalk"]


def test_a_recording_that_is_not_there_is_one_line(tmp_path):
    found = CliRunner().invoke(main, ["export", "none.pagewalk", "--to", "csv", "-o", str(tmp_path / "x")])
    assert found.exit_code == 2
    assert found.stderr == ("error: none.pagewalk: there is no such file; make one with paged replay --record\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give -o FILE"),
        (("-o", "x", "--serve", "0"), "give -o FILE"),
        (("-o", "no/such/x"), "is not there"),
    ],
)
def test_the_command_refuses_in_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    run[0].save("a.pagewalk")
    found = CliRunner().invoke(main, ["export", "a.pagewalk", "--to", "csv", *arguments])
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_an_unknown_form_is_refused(run, tmp_path):
    with pytest.raises(ValueError, match="unknown form 'xml'"):
        export(run[0], "xml", tmp_path / "x")
