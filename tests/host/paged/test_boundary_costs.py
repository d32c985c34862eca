"""What either layer wastes, costs and saves, against counting by hand."""

import random
from pathlib import Path

import numpy as np
import pytest

import paged
import vmm
from kernels_cu import HostRun
from kernels_cu.memory_meter import MemoryMeter
from paged import attention, span_attention
from paged.policies.make import make_policy
from paged.replay.options import Options
from paged.replay.setup import prepare

MIB = 1 << 20
CHUNK = 2 * MIB
AZURE = Path(__file__).parents[4] / "shared" / "traces" / "azure_conv_2023.csv"


# -- waste --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_only_the_last_block_of_a_sequence_has_free_slots(rules, block_size):
    draw = random.Random(block_size)
    layout = paged.KVLayout(paged.KVSpec(2, 2, 64, "float16"), block_size)
    with paged.KVPool(rules, layout, budget="64 MiB") as pool:
        sequences = [pool.sequence() for _ in range(20)]
        for _ in range(100):
            draw.choice(sequences).append(draw.randrange(40))
        for sequence in sequences:
            assert 0 <= len(sequence.table) * block_size - sequence.length < block_size
        slots = pool.block_pool.used * block_size
        assert slots - pool.tokens == sum(-sequence.length % block_size for sequence in sequences)


def test_where_the_longest_is_reserved_fewer_fit(rules):
    """Sequences of 33 tokens, of at most 256, with 128 KiB a token: 32 MiB reserved for each, or 3 blocks of 2 MiB."""
    setup = prepare(Options(driver="host", gpu_memory="20 GiB", max_model_len=256, block_size=16, reserve=0.0))
    assert setup.model.token_bytes == 128 * 1024
    fitting = {}
    for name in ("static", "paged-vmm"):
        policy = make_policy(name, rules, setup, None)
        count = 0
        while policy.can_admit(33):
            policy.admit(count, 33, 33)
            count += 1
        fitting[name] = count
        policy.close()
    assert fitting == {"static": setup.budget // (32 * MIB), "paged-vmm": setup.budget // (6 * MIB)}


@pytest.mark.exhaustive
def test_the_waste_of_the_published_trace():
    """Facts of the file, found by other means: 83.3 % of 8,192 reserved tokens, 0.54 % of blocks of 16."""
    if not AZURE.exists():
        pytest.skip(f"{AZURE.name} is not in ../shared/traces")
    workload = paged.read_trace(AZURE)
    tokens = workload.prompt + workload.output
    assert int(tokens.sum()) == 22_361_870 + 4_088_665
    fits = tokens[tokens <= 8192]
    assert 1 - fits.sum() / (len(fits) * 8192) == pytest.approx(0.833, abs=0.0005)
    assert (-tokens % 16).sum() / (tokens + -tokens % 16).sum() == pytest.approx(0.0054, abs=0.00005)


# -- growth -------------------------------------------------------------------------------------------------------


def test_growing_in_place_copies_nothing_and_by_doubling_as_much_as_there_is():
    """1 to 64 chunks: a buffer that doubles moves 1 + 2 + ... + 32 of them, and needs 32 + 64 at once."""
    recorder = vmm.Recorder()
    with vmm.Device(driver=vmm.HostDriver(memory="256 MiB", backing="none"), recorder=recorder) as device:
        with vmm.GrowableRange(device, "1 GiB") as kv:
            kv.grow(CHUNK)
            base, peak = kv.base, 0
            while kv.size < 64 * CHUNK:
                kv.grow(kv.size)
                peak = max(peak, kv.committed)
            assert (kv.base, peak) == (base, 64 * CHUNK)
            assert not any(call.startswith("cuMemcpy") for call in recorder.counts())
        setup = prepare(Options(driver="host", max_model_len=64 * 16))
        policy = make_policy("grow-copy", device, setup, None)
        policy.admit(0, 16, 16)
        peak = 0
        for length in (17, 33, 65, 129, 257, 513):
            policy.grow(0, length)
            peak = max(peak, policy.usage().committed)
            policy.settle()
        assert policy.copied == (1 + 2 + 4 + 8 + 16 + 32) * CHUNK
        assert peak == (32 + 64) * CHUNK
        policy.close()


# -- the block table and the kernel -------------------------------------------------------------------------------


class Metered:
    """Decode of the same tokens through block tables and in spans, with what each request for memory costs."""

    lengths = (100, 37)
    heads, head_dim = 8, 128

    def __init__(self, device):
        self.device = device
        spec = paged.KVSpec(1, self.heads, self.head_dim, "float16")
        self.pool = paged.KVPool(device, paged.KVLayout(spec, 16), budget="8 MiB")
        self.spans = paged.ContiguousKV(device, spec, max_length=4096, max_sequences=2)
        self.batch = paged.Batch(self.pool, [self.pool.sequence() for _ in self.lengths])
        self.opened = [self.spans.open() for _ in self.lengths]
        for sequence, span, length in zip(self.batch, self.opened, self.lengths, strict=True):
            sequence.append(length)
            span.append(length)
        self.query = np.zeros((2, self.heads, self.head_dim), np.float16)

    def watch(self, address, size, decode):
        """Requests, bytes and sectors of the loads from ``size`` bytes at ``address``."""
        meter = MemoryMeter(address, size)
        self.device.host_run = HostRun(meter=meter)
        decode()
        sites = meter.cache_sites
        return tuple(sum(getattr(site, name) for site in sites) for name in ("requests", "bytes", "sectors"))

    def paged(self, of):
        return attention.decode(self.pool, 0, self.query, of, kernel="fast")

    def contiguous(self):
        return span_attention.decode(self.spans, 0, self.query, self.opened, kernel="fast")


@pytest.mark.usefixtures("compiler")
def test_a_block_table_is_read_once_a_block_and_head_and_kv_is_read_alike(device):
    one = Metered(device)
    with one.pool, one.spans, paged.DeviceTables(one.batch, 2, 64) as tables:
        tables.update()
        kv = one.watch(one.pool.range.base, one.pool.range.reserved, lambda: one.paged(tables))
        read = sum(one.lengths) * 2 * one.heads * one.head_dim * 2  # K and V of 2 bytes
        assert kv[1:] == (read, read // 32)
        assert one.watch(one.spans.range.base, one.spans.range.reserved, one.contiguous) == kv
        table = one.watch(tables.blocks.ctypes.data, tables.blocks.nbytes, lambda: one.paged(tables))
        blocks = 7 + 3  # of 100 and 37 tokens
        assert table == (blocks * one.heads, 4 * blocks * one.heads, blocks * one.heads)
        assert one.paged(tables).tobytes() == one.contiguous().tobytes()


def test_a_block_is_shared_and_a_span_is_not(rules):
    """Two tables name one block; two spans of the same tokens are two pieces of memory."""
    spec = paged.KVSpec(1, 8, 128, "float16")
    with paged.KVPool(rules, paged.KVLayout(spec, 16), budget="64 MiB") as pool:
        first = pool.sequence()
        first.append(512)
        alone = pool.committed
        forks = [first.fork() for _ in range(9)]
        assert (pool.committed, pool.tokens, pool.block_pool.used) == (alone, 512, 32)
        assert all(fork.table == first.table for fork in forks)
    with paged.ContiguousKV(rules, spec, max_length=4096, max_sequences=10) as spans:
        opened = [spans.open() for _ in range(10)]
        for span in opened:
            span.append(512)
        assert spans.committed == 10 * spans.step_bytes


# -- what is seen from outside ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prealloc", [True, False])
def test_the_device_counts_chunks_and_knows_nothing_of_tokens(device, prealloc):
    """With everything from the start its number never moves; with rows on demand it moves by rows."""
    layout = paged.KVLayout(paged.KVSpec(1, 2, 16, "float32"), chunk=device.granularity)  # 8,192 tokens a row
    with paged.KVPool(device, layout, budget="16 MiB", prealloc=prealloc) as pool:
        sequence, used, live = pool.sequence(), [], []
        for tokens in (1, 4000, 4191, 1, 8000):
            sequence.append(tokens)
            info = device.memory_info()
            used.append(info.total - info.free)
            live.append(pool.live)
        assert live == [256 * tokens for tokens in (1, 4001, 8192, 8193, 16193)]
        rows = [8] * 5 if prealloc else [1, 1, 1, 2, 2]
        assert used == [row * CHUNK for row in rows]
