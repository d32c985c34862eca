"""benchmarks/gpu_check.py without a GPU: the dry run, the cases, and what becomes of an item that fails."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kernels_cu.compiler import find_compiler
from kernels_cu.errors import CompilerMissingError
from paged.driver_costs import driver_costs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.fixture
def _compiler():
    try:
        find_compiler()
    except CompilerMissingError as error:
        pytest.skip(str(error))


def _dry_run(tmp_path, *arguments):
    path = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--dry-run", "--json", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, json.loads(path.read_text()), path


@pytest.mark.usefixtures("_compiler")
def test_a_dry_run_checks_one_item_of_each_kind(tmp_path):
    wanted = {
        "copy": ["copy 256 MiB"],
        "programs": ["example 01_reserve_map_unmap"],
        "decode": ["base", "dtype e4m3", "order layer", "layout vllm, simple"],
        "kernels": [
            "first look at paged_decode",
            "contiguous decode, base",
            "append 256 tokens",
            "gather 65536 tokens",
            "copy blocks",
        ],
        "costs": ["driver calls"],
    }
    patterns = [f"--cases={item}" for items in wanted.values() for item in items]
    done, found, path = _dry_run(tmp_path, "--only", ",".join(wanted), *patterns)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found["dry_run"] is True
    assert found["steps"]["device"]["device"]["name"] == "software device"
    assert {step: list(items) for step, items in found["steps"].items() if step != "device"} == wanted
    assert all(row["ok"] for items in found["steps"].values() for row in items.values() if "ok" in row)
    base = found["steps"]["decode"]["base"]
    assert 0 < base["error_float64"] <= base["allowed"]
    assert base["us"] > 0
    assert "base" in done.stdout
    assert "times mean nothing" in done.stdout
    costs = driver_costs(str(path.with_suffix(".costs.json")))
    assert "software device" in costs.source
    assert not costs.missing(dict.fromkeys(driver_costs("vattention").microseconds, 1))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_compiler")
def test_the_whole_dry_run(tmp_path):
    done, found, _ = _dry_run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not found["skipped"]


def test_what_there_is_no_time_for_is_named(tmp_path):
    done, found, _ = _dry_run(tmp_path, "--only", "copy", "--seconds", "0")
    assert done.returncode == 0, done.stderr
    assert found["skipped"]["copy"]["items"] == ["copy 256 MiB", "copy 1024 MiB", "copy 4096 MiB"]
    assert "3 skipped (no time was left)" in done.stdout


def test_cases_begin_with_the_base_and_have_every_axis():
    from gpu.cases import BASE, MOST_KV_BYTES, decode_cases

    cases = decode_cases()
    assert cases[0] == BASE
    assert len({case.name for case in cases}) == len(cases) <= 120
    assert max(case.kv_bytes for case in cases) <= MOST_KV_BYTES
    alone = {
        field.name: {getattr(case, field.name) for case in cases if _differs_only_in(case, BASE, field.name)}
        for field in dataclasses.fields(BASE)
    }
    assert alone["batch"] >= {1, 2, 4, 8, 16, 64, 128}
    assert alone["context"] >= {128, 512, 2048, 32768}
    assert alone["group"] >= {1, 8}
    assert alone["dtype"] == {"float16", "e4m3"}
    assert alone["shuffled"] == {False}
    assert alone["order"] == {"layer"}
    assert alone["layout"] == {"nhd"}
    assert {256, 131072} <= {case.batch for case in cases} | {case.context for case in cases}


def _differs_only_in(case, base, axis):
    return dataclasses.replace(case, **{axis: getattr(base, axis)}) == base != case


def test_bytes_are_those_of_the_formula():
    from gpu.cases import vary

    case = vary(batch=2, context=20, group=4, kv_heads=2, head_dim=64, block_size=16)
    assert case.lengths == [20, 13]
    kv, queries, tables = 2 * 2 * 64 * 2 * 33, 2 * 2 * 64 * 8 * 2, 4 * (2 + 1)
    assert case.moved_bytes() == kv + queries + tables
    assert case.moved_bytes(partial_rows=3) == kv + queries + tables + 2 * 3 * (4 * 64 + 4)


@pytest.mark.usefixtures("_compiler")
def test_a_kernel_that_misses_a_block_is_wrong(monkeypatch):
    from gpu import decode
    from gpu.bench import Bench

    right = decode.launch.paged_decode

    def wrong(target, kv, plan, query, tables, *rest, **options):
        right(target, kv, plan, query, np.roll(tables, 1, axis=1), *rest, **options)

    def found():
        bench = Bench(dry=True, deadline=0)
        try:
            return decode.run("base", bench)
        finally:
            bench.close()

    assert found()["ok"]
    monkeypatch.setattr(decode.launch, "paged_decode", wrong)
    assert not found()["ok"]


def test_a_launch_outside_the_captured_stream_is_noticed():
    from gpu.side import Side

    side = Side(dry=True)
    try:
        calls = [lambda stream: side.submit(stream, lambda: None, None)]
        side.capture(calls)()
        with pytest.raises(AssertionError, match="a launch went to stream 0"):
            side.capture([*calls, lambda _: side.submit(0, lambda: None, None)])
    finally:
        side.close()


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


def test_files_are_named_after_the_device_and_written_whole(tmp_path):
    from gpu.record import file_name, write

    assert file_name("NVIDIA H200 (MIG 1g)") == "NVIDIA-H200-MIG-1g.json"
    write(tmp_path / "a" / "b.json", {"x": 1})
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]
