"""Contiguous spans against block tables: paged by the driver, or by a table.

You will see three ways to keep K and V serve the same requests step by step: one
pool with block tables, and spans of addresses that grow in place, either one a
sequence or one for K and V of each layer. For each: its driver calls, and the
physical memory it took over the bytes of tokens that existed. Then both kernels
decode the same tokens and give the same numbers. The one looks its blocks up, the
other needs no table; what they read of K and V is counted where they run on the
CPU: every byte once either way, and pages by how the tokens lie.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import paged
import vmm
from kernels_cu import CompilerMissingError, HostRun, MemoryMeter, reference
from paged import attention, span_attention

SPEC = paged.KVSpec(layers=4, kv_heads=4, head_dim=64, dtype="float16")  # 4 KiB a token
MOST = 1024  # tokens of a sequence
LENGTHS, LAYER = (250, 17, 96), 3
SPANS = {"token": "a span a sequence", "layer": "a span a layer, K and V"}
Requests = list[list[int]]  # of each the step in which it begins, and the tokens of its prompt and output


class MeteredDevice(vmm.Device):
    """A device that says how the CPU runs its kernels, and so can have their reads counted."""

    host_run = HostRun()


def serve(requests: Requests, kv: Any, begin: Callable[[], Any], recorder: vmm.Recorder) -> float:
    """Let each request come, grow a token a step, and go; print what that took. Committed over live."""
    running, committed, live = dict[int, Any](), 0, 0
    with kv:
        recorder.clear()
        for step in range(400):
            for number, (start, prompt, output) in enumerate(requests):
                if step == start:
                    running[number] = begin()
                    running[number].append(prompt)
                elif start < step < start + output:
                    running[number].append(1)
                elif step == start + output:
                    ended = running.pop(number)
                    ended.free() if isinstance(ended, paged.Sequence) else ended.close()
            committed, live = committed + kv.committed, live + kv.live
        calls = sum(count for call, count in recorder.counts().items() if call.startswith("cuMem"))
        step_bytes = kv.step_bytes if isinstance(kv, paged.ContiguousKV) else kv.layout.row_bytes
        print(f"  {kv.range.name:<24}{vmm.format_size(step_bytes):>10}{calls:>14}{committed / live:>18.2f}")
        assert not running and kv.live == 0, "a request was lost"
    return committed / live


def compare_memory() -> None:
    """Serve the same requests by each way in turn."""
    draw = np.random.default_rng(0)
    requests: Requests = [draw.integers((0, 20, 20), (200, 700, 180)).tolist() for _ in range(40)]
    recorder = vmm.Recorder()
    with vmm.Device(0, recorder=recorder) as device:
        print(f"{device}\n\n{len(requests)} requests of up to 880 tokens:")
        print(f"  {'':<24}{'grows by':>10}{'driver calls':>14}{'committed/live':>18}")
        pool = paged.KVPool(device, paged.KVLayout(SPEC, chunk=device.granularity), blocks=4096, name="block tables")
        results = [serve(requests, pool, pool.sequence, recorder)]
        for order, name in SPANS.items():
            spans = paged.ContiguousKV(device, SPEC, MOST, len(requests), order=order, name=name)
            results.append(serve(requests, spans, spans.open, recorder))
        assert results == sorted(results), "small steps should waste least"


def compare_kernels() -> None:
    """Append the same K and V to each, decode, and compare the results and what was read for them."""
    draw = np.random.default_rng(1)
    shapes = [(length, SPEC.kv_heads, SPEC.head_dim) for length in LENGTHS]
    keys, values = ([draw.standard_normal(shape).astype("f2") for shape in shapes] for _ in "kv")
    host_query = draw.standard_normal((len(LENGTHS), 4 * SPEC.kv_heads, SPEC.head_dim)).astype("f2")
    expected = reference.paged_attention(host_query, keys, values)
    device = MeteredDevice(0)
    with device:
        print(f"\none decode step over {LENGTHS} tokens, one layer (a GPU counts no bytes and pages):")
        print(f"  {'':<24}{'error':>10}{'bytes read':>14}{'pages of 2 MiB':>18}")

        def show(kv: Any, decode: Callable[[], Any]) -> None:
            meter = MemoryMeter(kv.range.base, kv.reserved)
            device.host_run = HostRun(meter=meter)
            out = decode()
            device.synchronize()
            error = np.abs((out.get() if hasattr(out, "get") else out) - expected).max()
            read = 32 * sum(site.sectors for site in meter.cache_sites)  # memory delivers sectors of 32 bytes
            print(f"  {kv.range.name:<24}{error:>10.1e}{read:>14,}{meter.pages_touched:>18}")
            assert error < 2e-3, "the kernel disagrees with float64"
            assert device.arch != "host" or read == sum(LENGTHS) * SPEC.layer_token_bytes, "not every byte once"

        layout = paged.KVLayout(SPEC, chunk=device.granularity)
        with paged.KVPool(device, layout, blocks=64, name="block tables") as pool:
            side = pool.range.array("float16", 0)  # NumPy's or CuPy's: the side that arrays must be on
            key, value = (np.asarray(np.concatenate(arrays), like=side) for arrays in (keys, values))
            query = np.asarray(host_query, like=side)
            sequences = [pool.sequence() for _ in LENGTHS]
            slots = np.concatenate([found.append(length) for found, length in zip(sequences, LENGTHS, strict=True)])
            attention.append(pool, LAYER, key, value, slots)
            show(pool, partial(attention.decode, pool, LAYER, query, sequences, kernel="fast"))
            del side
        for order, name in SPANS.items():
            with paged.ContiguousKV(device, SPEC, MOST, len(LENGTHS), order=order, name=name) as kv:
                spans = [kv.open() for _ in LENGTHS]
                for span, length in zip(spans, LENGTHS, strict=True):
                    span.append(length)
                span_attention.append(kv, LAYER, key, value, spans, LENGTHS)
                show(kv, partial(span_attention.decode, kv, LAYER, query, spans, kernel="fast"))


def main() -> None:
    print(__doc__)
    compare_memory()
    compare_kernels()
    print("\nThe same numbers three times. A table costs loads and a kernel of its own; a span costs chunks.")


if __name__ == "__main__":
    try:
        main()
    except CompilerMissingError as error:
        sys.exit(f"error: {error}")
