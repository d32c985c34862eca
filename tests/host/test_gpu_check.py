"""benchmarks/gpu_check.py without a GPU: the dry run, the cases, and what it notices."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paged.serving.driver_costs import driver_costs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _folder(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def _dry_run(tmp_path, *arguments):
    path = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--dry-run", "--json", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, json.loads(path.read_text()), path


@pytest.mark.exhaustive
@pytest.mark.usefixtures("compiler")
def test_a_dry_run_checks_one_item_of_each_kind(tmp_path):
    wanted = {
        "copy": ["copy 256 MiB"],
        "programs": ["example 01_reserve_map_unmap"],
        "decode": ["base", "dtype e4m3", "order layer", "layout vllm, simple"],
        "kernels": [
            "first look at paged_decode",
            "attention.prefill",
            "span_attention.decode",
            "contiguous decode, base",
            "append 256 tokens",
            "gather 65536 tokens",
            "copy blocks",
            "translation over 256 MiB, shuffled",
        ],
        "costs": ["driver calls"],
        "libraries": ["cupy", "allocations by address"],
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
    replay = [sys.executable, "-m", "paged", "replay", "--limit", "20", "--driver-costs", costs.name]
    assert "no cost published" not in subprocess.run(replay, capture_output=True, text=True, check=True).stdout


@pytest.mark.exhaustive
@pytest.mark.usefixtures("compiler")
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
    assert alone["batch"] >= {1, 2, 4, 8, 16, 64, 128, 256}
    assert alone["context"] >= {128, 512, 2048, 32768, 65536}
    assert alone["group"] >= {1, 8}
    assert alone["dtype"] == {"float16", "e4m3"}
    assert alone["shuffled"] == {False}
    assert alone["order"] == {"layer"}
    assert alone["layout"] == {"nhd"}
    assert any(case.context == 131072 and case.kv_bytes > 15e9 for case in cases)  # with as many as there is room for


def _differs_only_in(case, base, axis):
    return dataclasses.replace(case, **{axis: getattr(base, axis)}) == base != case


def test_bytes_are_those_of_the_formula():
    from gpu.cases import vary

    case = vary(batch=2, context=20, group=4, kv_heads=2, head_dim=64, block_size=16)
    assert case.lengths == [20, 13]
    kv, queries, tables = 2 * 2 * 64 * 2 * 33, 2 * 2 * 64 * 8 * 2, 4 * (2 + 1)
    assert case.moved_bytes() == kv + queries + tables
    assert case.moved_bytes(partial_rows=3) == kv + queries + tables + 2 * 3 * (4 * 64 + 4)


@pytest.mark.usefixtures("compiler")
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


def test_chunks_are_kept_from_one_case_to_the_next_and_hold_nothing_of_it():
    from gpu.cases import vary
    from gpu.kv_memory import KVMemory
    from gpu.side import Side

    side, case = Side(dry=True), vary(batch=2, context=40)
    try:
        for other in (case, vary(batch=2, context=40, layout="nhd"), vary(batch=2, context=40, chunk_mib=4)):
            free = side.free
            memory = KVMemory(side, other)
            assert side.free < free
            key, value = memory.rows(0, 1, 0, other.lengths[1])
            assert np.isfinite(key.astype(np.float32)).all()
            assert (key.astype(np.float32) != 0).mean() > 0.99
            assert key.shape == value.shape == (other.lengths[1], 8, 128)
            memory.close()
            assert side.free == free
            assert side.supply(other.chunk_mib << 20).cached > 0
    finally:
        side.close()


def test_a_worker_whose_time_is_up_begins_nothing():
    order = {"step": "copy", "items": ["copy 256 MiB"], "dry": True, "seconds": 0}
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--worker", json.dumps(order)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_a_worker_stops_at_an_item_that_fails(tmp_path):
    order = {"step": "decode", "items": ["no such case", "base"], "dry": True, "seconds": 60}
    command = [sys.executable, str(BENCHMARKS / "gpu_check.py"), "--worker", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["item"] == "no such case"
    assert "StopIteration" in found["result"]["error"]
