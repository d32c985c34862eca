"""Two processes, one KV cache: one computes prompts, another decodes over them.

You will see a prefill process fill KV blocks and share their memory through a
socket in a private folder; and a decode process, a program of its own, attach to
it and attend over the same physical chunks, at addresses of its own. What travels
is a descriptor for each chunk, and a small table that says where the tokens lie;
no byte of K or V is copied. The decode process compares its results with float64.
Then the first gives its memory up, and the second still has it.
"""

import dataclasses
import json
import subprocess
import sys
from typing import Any

import numpy as np

import paged
import vmm
from kernels_cu import CompilerMissingError, launch, reference
from paged import attention

SPEC = paged.KVSpec(layers=16, kv_heads=2, head_dim=64, dtype="float16")  # 8 KiB a token
PROMPTS = (300, 17, 1000)  # tokens
HEADS, LAYER = 8, 7


def drawn(request: int) -> tuple[Any, Any, Any]:
    """K, V and the newest token's query of a request: what a model would compute, made from the request's number."""
    draw = np.random.default_rng(request)
    key, value = draw.standard_normal((2, PROMPTS[request], SPEC.kv_heads, SPEC.head_dim)).astype("f2")
    return key, value, draw.standard_normal((HEADS, SPEC.head_dim)).astype("f2")


def prefill() -> None:
    """The first process: fill blocks, share them, say where the tokens lie."""
    print(__doc__)
    with vmm.Device(0) as device, vmm.ChunkSupply(device, exportable=True) as supply:  # only such memory can be shared
        print(f"{device}\n")
        layout = paged.KVLayout(SPEC, chunk=device.granularity)
        with paged.KVPool(device, layout, blocks=256, supply=supply) as pool:
            side = pool.range.array("float16", 0)  # NumPy's or CuPy's: the side that arrays must be on
            sequences = [pool.sequence() for _ in PROMPTS]
            for request, sequence in enumerate(sequences):
                slots = sequence.append(PROMPTS[request])
                key, value = (np.asarray(array, like=side) for array in drawn(request)[:2])
                attention.append(pool, LAYER, key, value, slots)
            device.synchronize()  # bytes are shared, the order of work is not: finish it before somebody else looks
            del side
            print(f"prefill: {sum(PROMPTS):,} tokens in {vmm.format_size(pool.committed)} at {pool.range.base:#x}")
            with vmm.sharing.Exporter(pool.range, access="r") as exporter:
                note = {
                    "path": str(exporter.path),
                    "layout": dataclasses.asdict(layout),
                    "blocks": pool.block_pool.rows.blocks,
                    "tables": [sequence.table for sequence in sequences],
                    "lengths": [sequence.length for sequence in sequences],
                }
                other = start(json.dumps(note))
                print(other.stdout.readline(), end="")  # it has attached and decoded
        print("prefill: the pool is closed, and its memory given up")
    said, _ = other.communicate("look again\n")
    print(said, end="")
    sys.exit(other.returncode)


def start(note: str) -> Any:
    """Start the second process and send it the table."""
    print(f"prefill: the decode process gets {len(note):,} bytes of JSON, and a descriptor a chunk")
    command = [sys.executable, __file__, "decode"]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(note, file=other.stdin, flush=True)
    return other


def decode() -> None:
    """The second process: decode one token of each request over what the first has computed."""
    note = json.loads(sys.stdin.readline())
    layout = paged.KVLayout(**{**note["layout"], "spec": paged.KVSpec(**note["layout"]["spec"])})
    with vmm.Device(0) as device, vmm.sharing.attach(device, note["path"]) as shared:
        print(f"decode:  {vmm.format_size(shared.committed)} of the same memory at {shared.base:#x}", end="; ")
        errors = []
        for after in ("the largest error against float64 is", "decode:  the pool is gone, its memory is not:"):
            errors.append(error_of_decode(device, shared, layout.kv(shared.base, note["blocks"], LAYER), note))
            print(f"{after} {errors[-1]:.1e}", flush=True)
            sys.stdin.readline()
    if not max(errors) < 2e-3:
        sys.exit("error: these are not the tokens of the first process")


def error_of_decode(device: vmm.Device, shared: vmm.sharing.SharedRange, kv: Any, note: Any) -> float:
    """Attend over the shared blocks; the largest error."""
    keys, values, queries = zip(*map(drawn, range(len(PROMPTS))), strict=True)
    side = shared.array("float16", 0)
    query = np.asarray(np.stack(queries), like=side)
    tables, lengths = paged.batch_tables(note["tables"]), paged.batch_lengths(note["lengths"])
    out = np.empty_like(query)
    there = (np.asarray(array, like=side) for array in (tables, lengths))
    launch.paged_attention_simple(device, kv, query, *there, out)
    device.synchronize()
    found = out.get() if hasattr(out, "get") else out
    return float(np.abs(found - reference.paged_attention(np.stack(queries), keys, values)).max())


if __name__ == "__main__":
    try:
        decode() if sys.argv[1:] == ["decode"] else prefill()
    except CompilerMissingError as error:
        sys.exit(f"error: {error}")
