"""The memory meter against counting by hand: the distinct sectors and pages of what the lanes of a warp ask for."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, KernelError, LaunchError
from kernels_cu.checked_launch import launch_checked
from kernels_cu.host_run import SCHEDULES
from kernels_cu.memory_meter import PAGE_BYTES, MemoryMeter

KERNEL = Path(__file__).with_name("requests.cu")
TEXT = KERNEL.read_text()
KINDS = re.findall(r"\w+", re.search(r"enum \{(.*?)\}", TEXT)[1])
WIDTHS = {"READ_4": 4, "READ_16": 16, "WRITE_4": 4, "COPY_16": 16, "LOAD_ONCE": 16, "STORE_ONCE": 16, "READ_SOME": 4}
SHARED_WIDTHS = {"SHARED_2": 2, "SHARED_4": 4, "SHARED_8": 8, "SHARED_16": 16, "ROWS": 16}
SHARED_SIZE = 16 << 10
SIZE = 16 << 20


@pytest.fixture(scope="module")
def memory():
    """16 MiB of which nothing is there until it is touched, from a multiple of the page on."""
    with mmap.mmap(-1, SIZE + PAGE_BYTES) as whole:
        address = np.frombuffer(whole, np.uint8).ctypes.data
        yield -(-address // PAGE_BYTES) * PAGE_BYTES


@pytest.fixture
def measure(target, memory):  # noqa: ARG001 - skips without a compiler
    def launch(kind, offsets, threads=32, schedule="ascending", begin=0, size=SIZE):
        meter = MemoryMeter(memory + begin, size)
        offsets = np.ascontiguousarray(offsets, np.int32)
        out = np.zeros(len(offsets), np.uint32)
        addresses = np.uint64(memory), np.uint64(offsets.ctypes.data), np.uint64(out.ctypes.data)
        launch_checked(
            HostTarget(HostRun(schedule, meter=meter)),
            KERNEL,
            {},
            (len(offsets) // threads, 1, 1),
            (threads, 1, 1),
            (*addresses, np.int32(offsets.shape[1]), np.int32(KINDS.index(kind))),
            stream=0,
            keepalive=(offsets, out),
            shared_bytes=SHARED_SIZE,
        )
        return meter

    return launch


def _count(offsets, width):
    """Requests, lanes, bytes, sectors and pages, by hand, of offsets [threads, requests]; negative ones ask nothing."""
    sums = np.zeros(5, int)
    for warp in offsets.reshape(-1, 32, offsets.shape[1]):
        for request in warp.T:
            asked = [range(o, o + width) for o in request.tolist() if o >= 0]
            places = {byte for piece in asked for byte in piece}
            sectors, pages = {p // 32 for p in places}, {p // PAGE_BYTES for p in places}
            sums += [1, len(asked), len({piece.start for piece in asked}) * width, len(sectors), len(pages)]
    return sums.tolist()


PATTERNS = {
    "side by side": lambda width: np.arange(32) * width,
    "one place": lambda _: np.zeros(32, int),
    "a sector each": lambda _: np.arange(32) * 32,
    "a page each, of eight": lambda _: np.arange(32) % 8 * PAGE_BYTES,
    "across the edge of a page": lambda width: PAGE_BYTES - 16 * width + np.arange(32) * width,
    "backward": lambda width: np.arange(32)[::-1] * width,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", [kind for kind in WIDTHS if kind != "READ_SOME"])
def test_patterns(measure, kind, schedule):
    rng = np.random.default_rng(0)
    width = WIDTHS[kind]
    columns = [pattern(width) for pattern in PATTERNS.values()]
    columns += [rng.integers(0, SIZE // width, 32) * width for _ in range(20)]
    offsets = np.stack(columns, axis=1)
    meter = measure(kind, np.concatenate([offsets, offsets[::-1]]), threads=64, schedule=schedule)
    (site,) = meter.cache_sites
    found = [site.requests, site.lanes, site.bytes, site.sectors, site.pages]
    assert found == _count(np.concatenate([offsets, offsets[::-1]]), width)
    assert site.write == (kind in ("WRITE_4", "STORE_ONCE"))
    file, line = site.line.split(":")
    assert file == "requests.cu"
    assert f"kind == {kind}" in "\n".join(TEXT.splitlines()[int(line) - 3 : int(line)])


def test_the_figures_of_one_request(measure):
    (site,) = measure("READ_16", PATTERNS["side by side"](16)[:, None]).cache_sites
    assert (site.sectors_per_request, site.efficiency, site.pages_per_request) == (16, 1, 1)
    (site,) = measure("READ_4", PATTERNS["a sector each"](4)[:, None]).cache_sites
    assert (site.sectors_per_request, site.efficiency) == (32, 1 / 8)


def test_lanes_that_take_no_part(measure):
    rng = np.random.default_rng(1)
    offsets = np.where(rng.random((64, 12)) < 0.4, -4, rng.integers(0, 4096, (64, 12)) * 4)
    (site,) = measure("READ_SOME", offsets).cache_sites
    wanted = _count(offsets, 4)
    assert [site.requests, site.lanes, site.bytes, site.sectors, site.pages] == wanted


def test_only_the_watched_memory_counts(measure):
    offsets = np.arange(32)[:, None] * 4 + np.array([[0, 8192, 65536]])
    meter = measure("READ_4", offsets, begin=8192, size=4096)
    assert [site.requests for site in meter.cache_sites] == [1]


def test_pages_touched_over_all_launches(measure):
    offsets = np.arange(32)[:, None] % 4 * 2 * PAGE_BYTES
    meter = measure("READ_4", offsets, begin=64)
    assert meter.pages_touched == 3  # the bytes of the first page lie before what is watched
    shown = rf"<MemoryMeter of {meter.size} bytes at {meter.address:#x}: 1 requests at 1 sites, 3 pages touched>"
    assert repr(meter) == shown


def _count_turns(offsets, width):
    """Turns of the busiest bank for each request, and the fewest: by quarters of a warp of 16 bytes, halves of 8."""
    turns = fewest = 0
    together = {2: 32, 4: 32, 8: 16, 16: 8}[width]
    for request in offsets.T.reshape(-1, together):
        words = {place // 4 for offset in request.tolist() for place in range(offset, offset + width)}
        turns += max(sum(word % 32 == bank for word in words) for bank in range(32))
        fewest += 1
    return turns, fewest


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", SHARED_WIDTHS)
def test_banks_of_shared_memory(measure, kind, schedule):
    width = SHARED_WIDTHS[kind]
    lanes = np.arange(32)
    strides = [lanes * step * width % SHARED_SIZE for step in (0, 1, 2, 3, 8, 16, 17, 32)]
    rng = np.random.default_rng(3)
    strides += [rng.integers(0, SHARED_SIZE // width, 32) * width for _ in range(8)]
    offsets = np.stack(strides, axis=1)
    meter = measure(kind, offsets, schedule=schedule)
    (site,) = meter.shared_sites
    assert (site.turns, site.fewest_turns) == _count_turns(offsets, width)
    assert (site.requests, site.lanes, site.bytes) == (16, 16 * 32, 16 * 32 * width)
    assert meter.cache_sites == []


def test_conflicts_of_rows_that_are_not_swizzled(measure):
    """Rows of 256 bytes: the same chunk of 8 of them lies in one column of 16 bytes. Swizzled, in 8 columns."""
    rows = np.arange(32)
    (site,) = measure("ROWS", (256 * rows)[:, None]).shared_sites
    assert site.conflicts == 8
    (site,) = measure("ROWS", (256 * rows + rows % 8 * 16)[:, None]).shared_sites
    assert site.conflicts == 1


@pytest.mark.parametrize("head_dim", [64, *(pytest.param(large, marks=pytest.mark.exhaustive) for large in (128, 256))])
@pytest.mark.parametrize("dtype", ["float16", "e4m3"])
def test_decode_has_no_conflict_in_any_copy_or_matrix(target, cases, dtype, head_dim):  # noqa: ARG001
    narrow = dtype == "e4m3"
    scales = {"key_scale": np.full(1, 0.03, np.float32), "value_scale": np.full(1, 0.03, np.float32)} if narrow else {}
    shape = {"head_dim": head_dim, "group": 4, "lengths": (100, 33)}
    case = cases.Case(dtype, **shape, query_dtype="float16" if narrow else None, scales=scales)
    case.append(HostTarget())
    meter = MemoryMeter(case.key_pool.ctypes.data, case.key_pool.nbytes)
    case.check(case.decode(HostTarget(HostRun(meter=meter))))
    matrices = [site for site in meter.shared_sites if site.fewest_turns == 4 * site.requests]
    assert len(matrices) >= 4  # copies of K and V, matrices of K and V
    assert [site.conflicts for site in matrices] == [1] * len(matrices)


def test_a_meter_that_is_too_small_says_so(measure, monkeypatch):
    monkeypatch.setattr("kernels_cu.memory_meter._MOST_SITES", 1)  # a copy has two: it reads here and writes there
    with pytest.raises(KernelError, match="the meter lost 32 accesses: the kernel makes them in too many places"):
        measure("COPY_16", PATTERNS["side by side"](16)[:, None])


def test_an_empty_span_is_refused():
    with pytest.raises(LaunchError, match="size must be at least 1 byte, not 0"):
        MemoryMeter(4096, 0)
