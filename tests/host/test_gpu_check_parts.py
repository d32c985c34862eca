"""The parts of benchmarks/gpu_check.py: what becomes of an item that dies, of a wrong result, and of a goal."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


WORKER = """
import json, os, signal, sys, time
order = json.loads(sys.argv[2])
for item in order["items"]:
    if item == "dies":
        sys.stderr.write("last words")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "hangs":
        time.sleep(60)
    result = {"error": "E: no"} if item == "fails" else {"us": 1}
    print(json.dumps({"item": item, "result": result}), flush=True)
    if item == "fails":
        break
"""


def test_an_item_that_dies_hangs_or_fails_does_not_end_the_run(monkeypatch, tmp_path):
    from gpu import supervisor
    from gpu.record import Record

    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    monkeypatch.setattr(supervisor, "SCRIPT", script)
    monkeypatch.setattr(supervisor, "START_S", 0)
    step = dataclasses.replace(supervisor.STEPS["copy"], item_timeout_s=2)
    monkeypatch.setitem(supervisor.STEPS, "copy", step)
    record = Record(tmp_path / "found.json")
    items = ["one", "dies", "two", "hangs", "three", "fails", "four"]
    supervisor.run_step("copy", items, record, dry=True, deadline=time.monotonic() + 60, said=lambda _: None)
    found = json.loads((tmp_path / "found.json").read_text())["steps"]["copy"]
    assert list(found) == items
    assert [item for item, row in found.items() if "error" in row] == ["dies", "hangs", "fails"]
    assert found["dies"] == {"error": f"the process ended with {-signal.SIGSEGV}", "trace": ["last words"]}
    assert found["hangs"]["error"] == "took longer than 2 s"
    assert record.failures() == ["copy: dies", "copy: hangs", "copy: fails"]


def test_a_step_in_which_everything_fails_is_given_up(monkeypatch, tmp_path):
    from gpu import supervisor
    from gpu.record import Record

    script = tmp_path / "worker.py"
    script.write_text(WORKER.replace('"fails"', "item"))
    monkeypatch.setattr(supervisor, "SCRIPT", script)
    record = Record(None)
    items = [f"item {number}" for number in range(supervisor.MOST_FAILURES + 2)]
    supervisor.run_step("copy", items, record, dry=True, deadline=time.monotonic() + 60, said=lambda _: None)
    assert list(record.results("copy")) == items[:-2]
    assert record.data["skipped"]["copy"]["items"] == items[-2:]


def test_wrong_results_and_errors_are_failures_and_shares_are_of_the_best_copy():
    from gpu.record import Record
    from gpu.table import copy_bandwidth, row_of

    record = Record(None)
    record.put("copy", "small", {"us": 1.0, "bytes": 3_000_000, "ok": True})
    record.put("copy", "large", {"us": 2.0, "bytes": 8_000_000, "ok": True})
    wrong = {"us": 1.0, "bytes": 2_000_000, "kv_bytes": 1, "ok": False, "error_simple": 4.0, "allowed": 2.0}
    record.put("decode", "base", wrong)
    assert record.failures() == ["decode: base"]
    assert copy_bandwidth(record) == 4e12
    cells = row_of("base", wrong, copy_bandwidth(record))
    assert "50%" in cells
    assert cells[-2:] == ("2.00", "WRONG")


def test_goals_are_judged_by_the_worst_of_their_items():
    from gpu.cases import decode_cases
    from gpu.goals import outcomes
    from gpu.record import Record

    record = Record(None)
    for case in decode_cases():
        slow = case.name in {"group 8", "context 1536"}
        rate = (0.87 if slow else 0.95) * 4e12
        record.put("decode", case.name, {"us": case.moved_bytes() / rate * 1e6, "bytes": case.moved_bytes()})
    record.put("decode", "batch 1, context 128", {"us": 11.0, "bytes": 1})
    record.put("kernels", "append 65536 tokens", {"us": 1.0, "bytes": 3_500_000})
    found = {outcome.goal.name: outcome for outcome in outcomes(record, 4e12)}
    assert len(found) == 5
    large, medium = (found[f"decode of 2-byte KV from {size} MB"] for size in (800, 200))
    assert (large.worst, large.reached) == ("group 8", False)
    assert medium.reached
    assert medium.items > large.items >= 6
    assert found["decode of e4m3 from 400 MB"].reached
    assert found["append, gather, copies of blocks"].reached
    assert found["decode of one sequence of 128"].row() == {
        "items": 1, "worst": "batch 1, context 128", "us": 11.0, "wanted": 10, "reached": False
    }  # fmt: skip


def test_files_are_named_after_the_device_and_written_whole(tmp_path):
    from gpu.record import file_name, write

    assert file_name("NVIDIA H200 (MIG 1g)") == "NVIDIA-H200-MIG-1g.json"
    write(tmp_path / "a" / "b.json", {"x": 1})
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]
