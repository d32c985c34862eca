"""A user's program over kernels_cu alone: every public name, on arrays of NumPy. It runs, and mypy reads it.

To run it a C++ compiler is needed; each kernel is compiled on its first use.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import kernels_cu
from kernels_cu import conventions, launch, net, reference
from kernels_cu import reference_append as appended
from kernels_cu import reference_attention as attended
from kernels_cu import reference_blocks as blocked
from kernels_cu import reference_merge as merged

TOKENS, HEADS, SIZE = 20, 2, 64
Halves = NDArray[np.float16]


class MyTarget:
    """A Target by its shape: what it runs is counted."""

    arch = "host"

    def __init__(self) -> None:
        self.launches = 0

    def submit(self, stream: int, call: Callable[[], None], keepalive: object) -> None:  # noqa: ARG002
        self.launches += 1
        call()

    def fault(self, address: int, write: bool) -> Exception:
        return kernels_cu.KernelFault(address, write)


def halves(*shape: int, seed: int = 0) -> Halves:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def places(pool: Halves) -> kernels_cu.PagedKV:
    """Of a pool [2, blocks, Hkv, block_size, D]."""
    return conventions.pool_of(pool[0], pool[1], "hnd")


def append_and_attend(target: kernels_cu.Target) -> float:
    pool = np.zeros((2, 4, HEADS, 16, SIZE), np.float16)
    kv, slots = places(pool), np.arange(TOKENS)
    key, value, query = halves(TOKENS, HEADS, SIZE), halves(TOKENS, HEADS, SIZE, seed=1), halves(1, HEADS, SIZE, seed=2)
    turns = np.ones((TOKENS, SIZE), np.float32)
    turns[:, SIZE // 2 :] = 0
    rotary = kernels_cu.Rotary(turns, np.arange(TOKENS, dtype=np.int32))
    launch.append_kv(target, kv, key, value, slots, rotary=rotary)
    turned = np.empty_like(key)
    launch.rotate_query(target, key, rotary, turned)
    assert np.allclose(turned, appended.turned(key, turns, np.arange(TOKENS), "halves"))
    kept, kept_too = np.empty_like(key), np.empty_like(value)
    launch.gather_kv(target, kv, slots, kept, kept_too)
    assert (kept_too == value).all()

    tables, lengths = np.array([[0, 1]], np.int32), np.array([TOKENS], np.int32)
    simple, fast, span, chunk = (np.empty_like(query) for _ in range(4))
    launch.paged_attention_simple(target, kv, query, tables, lengths, simple)
    plan: kernels_cu.DecodePlan = kernels_cu.plan_decode([TOKENS], HEADS, HEADS, shares=2)
    options = kernels_cu.Scoring(soft_cap=1e4)
    launch.paged_decode(target, kv, plan, query, tables, lengths, fast, scoring=options)
    tiles: kernels_cu.PrefillPlan = kernels_cu.plan_prefill([1], [TOKENS], HEADS, HEADS)
    launch.paged_prefill(target, kv, tiles, query, tables, chunk)
    row = kernels_cu.PagedKV(kv.key, kv.value, "float16", "nhd", 16, 1, SIZE, 16 * SIZE, SIZE, SIZE)
    one = kernels_cu.plan_decode([16], 1, 1, shares=1)
    first = np.empty_like(query[:, :1])
    launch.contiguous_decode(target, row, one, query[:, :1], np.zeros(1, np.int64), np.array([16], np.int32), first)
    launch.decode_merge(target, plan, None, None, span)  # nothing was cut, so nothing is touched
    assert launch.decode_build("float16", SIZE, "hnd", "sm_90").shared_bytes > 0

    expected = reference.paged_attention(query, [kept], [kept_too])
    whole, _ = attended.attention(query, key, value)
    assert whole.shape == expected.shape
    return float(max(np.abs(out - expected).max() for out in (simple, fast, chunk)))


def join(target: kernels_cu.Target) -> float:
    a, b, lse = halves(3, HEADS, SIZE), halves(3, HEADS, SIZE, seed=1), np.zeros((3, HEADS), np.float32)
    out, joined = np.empty_like(a), np.empty_like(lse)
    launch.merge_states(target, a, lse, b, lse, out, joined)
    expected, _ = merged.merge(np.stack([a, b]), np.stack([lse, lse]))
    return float(np.abs(out - expected).max())


def move_blocks(target: kernels_cu.Target) -> int:
    memory, others = np.arange(8 * 32, dtype=np.uint8), np.zeros(8 * 32, np.uint8)
    here, there = (kernels_cu.Blocks(each.ctypes.data, 32, 32, blocks=8) for each in (memory, others))
    pairs = np.array([[1, 5], [2, 6]])
    launch.copy_blocks(target, here, there, pairs)
    launch.swap_blocks(target, here, there, pairs)
    launch.swap_runs(target, here, there, pairs)
    launch.fill_blocks(target, there, np.array([0]), pattern=0)
    expected = np.zeros((1, 8, 32), np.uint8)
    blocked.copy_blocks(memory.reshape(1, 8, 32), expected, pairs)
    table = np.zeros((2, 4), np.int32)
    launch.patch_table(target, table, np.array([[1, 2, 7]]))
    chain = np.zeros((1, 64), np.int64)
    launch.patch_table(target, chain, launch.probe_patches(np.array([0, 64, 128])))
    end = np.zeros(1, np.int64)
    launch.tlb_probe(target, chain.ctypes.data, 0, 2, end)
    return int((others.reshape(1, 8, 32) == expected).all()) * int(table[1, 2]) * int(end[0])


def watched() -> int:
    pool = np.zeros((2, 4, HEADS, 16, SIZE), np.float16)
    meter = kernels_cu.MemoryMeter(pool.ctypes.data, pool.nbytes)
    run = kernels_cu.HostRun(schedule="shuffled", seed=1, meter=meter)
    kv, rows = places(pool), halves(TOKENS, HEADS, SIZE)
    launch.append_kv(kernels_cu.HostTarget(run), kv, rows, rows, np.arange(TOKENS))
    return meter.pages_touched


def refused(target: kernels_cu.Target) -> list[type[kernels_cu.KernelError]]:
    kinds: list[type[kernels_cu.KernelError]] = [
        kernels_cu.CompileError,
        kernels_cu.CompilerMissingError,
        kernels_cu.KernelFault,
        kernels_cu.LaunchError,
        kernels_cu.RaceError,
    ]
    try:
        launch.patch_table(target, np.zeros(3), np.zeros((1, 3), np.int64))
    except kernels_cu.LaunchError as error:
        assert "int32" in str(error)
    assert "paged_decode" in net.KERNELS
    return kinds


def main() -> None:
    target = MyTarget()
    assert append_and_attend(target) < 2e-3
    assert join(target) < 2e-3
    assert move_blocks(target) == 7 * 128
    assert watched() > 0
    assert len(refused(target)) == 5
    assert target.launches > 10


if __name__ == "__main__":
    main()
