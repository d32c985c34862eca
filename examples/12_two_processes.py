"""Two processes, one KV cache: one computes prompts, another decodes after them.

You will see a prefill process fill KV blocks and share their memory through a
socket in a private folder; and a decode process, a program of its own, attach to
the same physical chunks at addresses of its own. What travels is a descriptor for
each chunk and a small table of where the tokens lie; no byte of K or V is copied.
New tokens go to a pool of the second process, and attention over both is joined
and compared with float64, after the first process has given its memory up, too.
"""

import subprocess
import sys
from typing import Any

import numpy as np

import paged
import vmm
from kernels_cu import CompilerMissingError, launch, reference
from paged import attached_attention, attention

SPEC = paged.KVSpec(layers=16, kv_heads=2, head_dim=64, dtype="float16")  # 8 KiB a token
PROMPTS, NEW = (300, 17, 1000), 6  # tokens
HEADS, LAYER = 8, 7


def drawn(request: int) -> tuple[Any, Any, Any]:
    """K, V and queries of a request's tokens: what a model would compute, made from the request's number."""
    draw, tokens = np.random.default_rng(request), PROMPTS[request] + NEW
    key, value = draw.standard_normal((2, tokens, SPEC.kv_heads, SPEC.head_dim)).astype("f2")
    return key, value, draw.standard_normal((tokens, HEADS, SPEC.head_dim)).astype("f2")


def append(pool: paged.KVPool, sequence: paged.Sequence, key: Any, value: Any) -> None:
    """Write K and V of new tokens; arrays are NumPy's or CuPy's, as the pool's own are."""
    side = pool.range.array("float16", 0)
    attention.append(pool, LAYER, np.asarray(key, like=side), np.asarray(value, like=side), sequence.append(len(key)))


def prefill() -> int:
    """The first process: fill blocks, share them, say where the tokens lie."""
    print(__doc__)
    with vmm.Device(0) as device, vmm.ChunkSupply(device, exportable=True) as supply:  # only such memory can be shared
        print(f"{device}\n")
        layout = paged.KVLayout(SPEC, chunk=device.granularity)
        with paged.KVPool(device, layout, blocks=256, supply=supply) as pool:
            sequences = [pool.sequence() for _ in PROMPTS]
            for sequence, prompt, (key, value, _) in zip(sequences, PROMPTS, map(drawn, range(3)), strict=True):
                append(pool, sequence, key[:prompt], value[:prompt])
            device.synchronize()  # bytes are shared, the order of work is not: finish it before somebody else looks
            print(f"prefill: {sum(PROMPTS):,} tokens in {vmm.format_size(pool.committed)} at {pool.range.base:#x}")
            handoff = paged.Handoff.of(pool, sequences)
            with vmm.sharing.Exporter(pool.range, handoff.chunks, access="r") as exporter:
                text = handoff.to_json()
                print(f"prefill: sends {len(text)} bytes of JSON, and {len(handoff.chunks)} descriptors")
                command = [sys.executable, __file__, str(exporter.path)]
                other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                assert other.stdin and other.stdout
                print(text, file=other.stdin, flush=True)
                print(other.stdout.readline() + other.stdout.readline(), end="")  # attached, and half of it decoded
        print("prefill: closes its pool")
    print(other.communicate("go on\n")[0], end="")
    return other.returncode


def decode(path: str) -> None:
    """The second process: decode tokens after what the first has computed."""
    handoff = paged.Handoff.from_json(sys.stdin.readline())
    with vmm.Device(0) as device, vmm.sharing.attach(device, path) as memory:
        print(f"decode:  the same {vmm.format_size(memory.committed)} lie at {memory.base:#x}", flush=True)
        there = paged.AttachedKV(memory, handoff)
        with paged.KVPool(device, there.layout, blocks=16) as here:
            sequences, errors = [here.sequence() for _ in PROMPTS], list[float]()
            for step in range(NEW):
                if step == NEW // 2:
                    print(f"decode:  {step} new tokens of each, largest error {max(errors):.1e}", flush=True)
                    sys.stdin.readline()  # until the first process has closed its pool
                errors.append(error_of_step(there, here, sequences, step))
            print(f"decode:  {NEW} tokens, the largest error against float64 is {max(errors):.1e}")
    if not max(errors) < 2e-3:
        sys.exit("error: attention over both pools is not attention over all tokens")


def error_of_step(there: paged.AttachedKV, here: paged.KVPool, sequences: list[paged.Sequence], step: int) -> float:
    """Decode one token of each request, over what lies there and what lies here."""
    ends = [prompt + step + 1 for prompt in PROMPTS]
    requests = [[array[:end] for array in drawn(number)] for number, end in enumerate(ends)]
    for sequence, (key, value, _) in zip(sequences, requests, strict=True):
        append(here, sequence, key[-1:], value[-1:])
    keys, values, queries = zip(*requests, strict=True)
    host_query = np.stack([query[-1] for query in queries])
    query = np.asarray(host_query, like=here.range.array("float16", 0))
    sums = [np.empty_like(query, "f4", shape=query.shape[:2]) for _ in "ab"]  # LSE of each part: how much it weighs
    old = attached_attention.decode(there, LAYER, query, lse=sums[0])
    new = attention.decode(here, LAYER, query, sequences, lse=sums[1])
    launch.merge_states(here.device, old, sums[0], new, sums[1], old, sums[0])
    here.device.synchronize()
    found = old.get() if hasattr(old, "get") else old
    return float(np.abs(found - reference.paged_attention(host_query, keys, values)).max())


if __name__ == "__main__":
    try:
        if len(sys.argv) > 1:
            decode(sys.argv[1])
        else:
            sys.exit(prefill())
    except CompilerMissingError as error:
        sys.exit(f"error: {error}")
