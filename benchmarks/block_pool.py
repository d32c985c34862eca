"""What a block costs: allocate and free in bulk and one by one, prompts with a prefix cache, a decode step's append.

    python benchmarks/block_pool.py [--blocks 100000] [--rounds 5] [--json]

Nanoseconds a block (microseconds a step for the decode step), medians over the rounds, at 1 and at 32 blocks a row; no
row is committed while the clock runs. "prompt" is 2,048 tokens given as int32 ids, hashing included: cold where nothing
is known, warm where all but the last block is. The first line says how fast this machine's Python is at the moment: one
`list[i] += 1`, 41 ns on an idle Zen 4 core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import paged
import vmm

PROMPT, SEQUENCES = 2048, 256
SPEC = paged.KVSpec(layers=32, kv_heads=8, head_dim=128, dtype="bfloat16")


def nanoseconds(call: Callable[[], object], count: int) -> float:
    """Processor time of ``call``, shared out over ``count``: what else runs on the machine is left out."""
    start = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - start) / count


def pace() -> float:
    """Nanoseconds of one `list[i] += 1`."""
    numbers = [0] * 1000

    def count() -> None:
        for index in range(1000):
            numbers[index] += 1

    return min(nanoseconds(count, 1000) for _ in range(200))


def allocate_and_free(pool: paged.KVPool, size: int, *, arrays: bool = False) -> tuple[float, float]:
    """Calls of ``size`` blocks until 8,192 are taken, then the same back; ids in lists or arrays."""
    blocks, calls = pool.block_pool, 8192 // size
    take: Callable[[int], Any] = blocks.allocate_array if arrays else blocks.allocate
    taken: list[Any] = []

    def allocate() -> None:
        for _ in range(calls):
            taken.append(take(size))

    def free() -> None:
        for ids in taken:
            blocks.free(ids)

    return nanoseconds(allocate, size * calls), nanoseconds(free, size * calls)


def prompts(pool: paged.KVPool, rng: np.random.Generator) -> tuple[float, float]:
    """100 prompts of which nothing is known, and the same once more."""
    ids = [rng.integers(0, 128_000, PROMPT).astype(np.int32) for _ in range(100)]
    found = []
    for _ in range(2):
        running: list[paged.Sequence] = []

        def admit() -> None:
            for prompt in ids:
                sequence = pool.sequence(prompt)
                sequence.append(PROMPT - sequence.length)
                sequence.publish()
                running.append(sequence)  # noqa: B023  it is called before the next round

        found.append(nanoseconds(admit, len(ids) * PROMPT // pool.layout.block_size))
        for sequence in running:
            sequence.free()
    pool.trim(cache=True)
    return found[0], found[1]


def decode_step(pool: paged.KVPool) -> float:
    """One more token for each of 256 sequences, in microseconds a step; some need a block."""
    running = [pool.sequence() for _ in range(SEQUENCES)]
    for index, sequence in enumerate(running):
        sequence.append(1000 + index)

    batch = paged.Batch(pool, running)
    found = statistics.median(nanoseconds(batch.append, 1) / 1e3 for _ in range(32))
    for sequence in running:
        sequence.free()
    return found


def measure(per_row: int, blocks: int, rounds: int) -> dict[str, Any]:
    """Every figure for rows of ``per_row`` blocks."""
    rng = np.random.default_rng(0)
    chunk = per_row * 16 * SPEC.token_bytes
    figures: dict[str, list[float]] = {}
    driver = vmm.HostDriver(memory=vmm.round_up(blocks * 16 * SPEC.token_bytes, chunk), backing="none")
    with vmm.Device(driver=driver) as device:
        layout = paged.KVLayout(SPEC, 16, chunk=chunk)
        with paged.KVPool(device, layout, blocks=blocks, prealloc=True, prefix_cache=True) as pool:
            for _ in range(rounds):
                for size in (8192, 128, 1):
                    times = allocate_and_free(pool, size)
                    for name, found in zip(("allocate", "free"), times, strict=True):
                        figures.setdefault(f"{name} {size}", []).append(found)
                times = allocate_and_free(pool, 8192, arrays=True)
                for name, found in zip(("allocate", "free"), times, strict=True):
                    figures.setdefault(f"{name} 8192, array", []).append(found)
                for name, found in zip(("prompt cold", "prompt warm"), prompts(pool, rng), strict=True):
                    figures.setdefault(name, []).append(found)
                figures.setdefault("decode step (us)", []).append(decode_step(pool))
    return {name: round(statistics.median(found), 1) for name, found in figures.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    asked = parser.parse_args()
    found = {"pace_ns": round(pace(), 1)}
    rows = {per_row: measure(per_row, asked.blocks, asked.rounds) for per_row in (1, 32)}
    if asked.as_json:
        print(json.dumps({"schema": 1, **found, "blocks_a_row": rows}, indent=2))
        return
    print(f"pace of this machine now: {found['pace_ns']} ns a list[i] += 1")
    print(f"{'':<22}{'1 a row':>10}{'32 a row':>10}")
    for name in rows[1]:
        print(f"{name:<22}{rows[1][name]:>10}{rows[32][name]:>10}")


if __name__ == "__main__":
    main()
