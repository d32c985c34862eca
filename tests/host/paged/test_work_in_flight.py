"""Kernels that are queued when their sequence ends: its rows stay mapped until the kernels have run."""

import numpy as np
import pytest

import kernels_cu
import paged
import vmm
from paged import attention
from vmm.fence import Fence

STREAMS = ("deferred",)

pytestmark = pytest.mark.usefixtures("compiler")


@pytest.fixture
def pool(device):
    """64 layers of eight heads of 64: a block has 4 MiB, two chunks."""
    layout = paged.KVLayout(paged.KVSpec(64, 8, 64, "float32"), 16, "block")
    with paged.KVPool(device, layout, budget=16 * layout.row_bytes, name="kv") as made:
        yield made


def queue_step(pool, sequence, tokens, seed=1):
    """Queue the append of ``tokens`` tokens and a decode over them; the result, and what it must be."""
    rng = np.random.default_rng(seed)
    key, value = (rng.standard_normal((tokens, 8, 64), np.float32) for _ in range(2))
    query = rng.standard_normal((1, 8, 64), np.float32)
    attention.append(pool, 3, key, value, sequence.append(tokens))
    out = attention.decode(pool, 3, query, [sequence])
    return out, kernels_cu.reference.paged_attention(query, [key], [value])


def test_case_21_a_sequence_may_end_while_its_kernels_are_queued(device, pool):
    """vllm#28714, #43020, pytorch#196258: the unmap is not issued before that work is done."""
    sequence = pool.sequence()
    out, expected = queue_step(pool, sequence, 40)
    sequence.free()
    assert (pool.live, pool.retiring) == (0, pool.committed)
    assert pool.committed > 0
    device.synchronize()
    assert np.abs(out - expected).max() <= 1e-5
    assert pool.committed == 0
    pool.check()


@pytest.mark.parametrize("attempt", range(5))
def test_without_the_wait_the_kernel_faults_every_time(device, pool, monkeypatch, attempt):
    sequence = pool.sequence()
    queue_step(pool, sequence, 17, seed=attempt)
    with monkeypatch.context() as patch:
        patch.setattr(Fence, "done", True)
        sequence.free()
    with pytest.raises(vmm.DriverError, match=r"range 'kv', chunk \d+: write of .* by cuMemUnmap") as caught:
        device.synchronize()
    assert caught.value.code == 700
    device.driver.api.reset_context()


def test_only_the_stream_that_used_them_is_waited_for(device, pool):
    with device.current():
        other = int(device.driver.api.cuStreamCreate(1)[1])
    blocks = pool.allocate(4)
    with device.current():
        device.driver.fill_async(pool.address(block=blocks[0]), 1, 4096, other)
    more = pool.allocate(4)
    pool.free(more, after=0)
    pool.collect(wait=True)
    assert device.driver.api.live().pending == 1
    pool.free(blocks, after=other)
    pool.collect(wait=True)
    assert (device.driver.api.live().pending, pool.committed) == (0, 0)
    with device.current():
        device.driver.api.cuStreamDestroy(other)


def test_a_full_budget_waits_for_the_rows_that_retire(device, pool):
    limit = pool.block_pool.max_rows * pool.layout.row_bytes
    everything = pool.allocate(pool.blocks_free)
    with device.current():
        device.driver.fill_async(pool.address(block=everything[0]), 1, 4096)
    pool.free(everything)
    assert pool.retiring == limit
    whole = device.retirement.collect  # no look finds the work done, as on a busy GPU; only a wait does
    device.retirement.collect = lambda owner=None, wait=False: whole(owner, wait=True) if wait else 0
    above = [block for block in range(pool.block_pool.rows.blocks) if block >= len(everything)][: len(everything) // 2]
    pool.claim(above)
    assert pool.committed <= limit
    assert device.driver.api.live().pending == 0


def test_rows_that_are_wanted_again_are_not_made_again(pool):
    blocks = pool.allocate(8)
    handles = [run.handle for run in vmm.snapshot(pool.range).runs]
    pool.free(blocks)
    assert pool.allocate(8) == blocks
    assert [run.handle for run in vmm.snapshot(pool.range).runs] == handles
    pool.check()


def test_a_launch_with_wrong_arrays_is_refused_at_once(pool):
    sequence = pool.sequence()
    slots = sequence.append(4)
    wrong = np.zeros((4, 8, 32), np.float32)
    with pytest.raises(kernels_cu.LaunchError):
        attention.append(pool, 0, wrong, wrong, slots)
    assert pool.device.driver.api.live().pending == 0


def test_contiguous_spans_end_behind_their_work(device):
    with paged.ContiguousKV(device, paged.KVSpec(1, 8, 64, "float32"), 1024, 4, budget="64 MiB") as kv:
        span = kv.open()
        span.append(100)
        with device.current():
            device.driver.fill_async(kv.address(span, 0), 1, 4096)
        span.close()
        assert (kv.retiring, kv.tokens) == (kv.committed, 0)
        assert kv.committed > 0
        device.synchronize()
        assert kv.committed == 0
        kv.check()
