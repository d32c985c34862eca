"""How many driver calls growth makes, and the benchmark that measures what they cost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vmm

CHUNK = 2 << 20
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "driver_calls.py"


@pytest.fixture
def recorded(rules):
    """A device whose calls are counted from here."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=rules.driver.api, recorder=recorder) as device:
        yield device, recorder


def test_512_chunks_cost_a_create_and_a_map_each_one_set_access_and_one_unmap(recorded):
    device, recorder = recorded
    with vmm.GrowableRange(device, 512 * CHUNK) as memory:
        recorder.clear()
        memory.grow(512 * CHUNK)
        assert recorder.counts() == {"cuMemCreate": 512, "cuMemMap": 512, "cuMemSetAccess": 1}
        recorder.clear()
        memory.close()
        counts = recorder.counts()
    assert [counts.get(call) for call in ("cuMemUnmap", "cuMemRelease", "cuMemAddressFree")] == [1, 512, 1]
    assert {event.size for event in recorder.events() if event.call == "cuMemUnmap"} == {512 * CHUNK}


def test_prefetched_chunks_cost_a_map_each_and_no_create_of_the_taker(recorded):
    device, recorder = recorded
    supply = vmm.ChunkSupply(device, budget=512 * CHUNK, prefetch=512 * CHUNK)
    with supply, vmm.GrowableRange(device, 512 * CHUNK, supply=supply) as memory:
        assert supply.wait_prefetched(30)
        recorder.clear()
        memory.grow(512 * CHUNK)
        assert recorder.counts() == {"cuMemMap": 512, "cuMemSetAccess": 1}


def test_cached_chunks_come_before_new_ones(recorded):
    device, recorder = recorded
    with (
        vmm.ChunkSupply(device, cache=100 * CHUNK) as supply,
        vmm.GrowableRange(device, 512 * CHUNK, supply=supply) as memory,
    ):
        memory.grow(100 * CHUNK)
        memory.shrink(100 * CHUNK)
        recorder.clear()
        memory.grow(512 * CHUNK)
        assert recorder.counts() == {"cuMemCreate": 412, "cuMemMap": 512, "cuMemSetAccess": 1}


def test_65000_chunks_come_and_go(recorded):
    device, recorder = recorded
    with vmm.GrowableRange(device, 65_000 * CHUNK) as memory:
        recorder.clear()
        memory.grow(65_000 * CHUNK)
        assert recorder.counts() == {"cuMemCreate": 65_000, "cuMemMap": 65_000, "cuMemSetAccess": 1}
        assert (memory.committed, len(memory.runs())) == (65_000 * CHUNK, 1)
    assert device.driver.api.live().allocations == 0


def test_the_benchmark_reports_the_same_counts_on_both_backings():
    options = ["--chunks", "16", "--many", "40", "--rounds", "2", "--json"]
    done = subprocess.run(
        [sys.executable, "-W", "error", BENCHMARK, *options], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [found["backing"] for found in report["devices"]] == ["memory", "none"]
    counts = {"cuMemCreate": 16, "cuMemMap": 16, "cuMemSetAccess": 1, "cuMemUnmap": 1, "cuMemRelease": 16}
    for found in report["devices"]:
        assert found["counts"] == counts
        assert found["times"] == pytest.approx(found["grow"] / found["bare"])
        assert min(found["calls"].values()) > 0
    assert report["many"]["chunks"] == 40
