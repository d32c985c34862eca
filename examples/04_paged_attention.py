"""PagedAttention on a pool: append K and V to their slots, decode, compare.

You will see, for three types and for 1, 4 and 8 query heads a KV head, the largest
error of the kernel against a reference in float64. The sequences have 1 to 1000
tokens, their blocks lie in shuffled order, and every slot that holds no token
holds NaN: a kernel that read one of them, or one token too many, would return NaN.
"""

import random
import sys

import ml_dtypes
import numpy as np

import paged
import vmm
from kernels_cu import CompilerMissingError, reference
from paged import attention

LENGTHS = (1, 15, 16, 17, 250, 1000)
BOUNDS = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # relative to the largest |V|
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
KV_HEADS, HEAD_DIM, LAYER = 2, 64, 1


def shuffle_blocks(pool: paged.KVPool) -> None:
    """Let the pool give out its blocks in no order."""
    blocks = pool.allocate(pool.blocks_total)
    random.Random(0).shuffle(blocks)
    pool.free(blocks)


def fill_with_nan(pool: paged.KVPool, dtype: str) -> None:
    """Write NaN over all committed memory."""
    for run in pool.range.runs():
        elements = (run.stop - run.start) // pool.layout.spec.element_bytes
        pool.range.array(dtype, elements, run.start)[...] = float("nan")


def error_of_decode(device: vmm.Device, dtype: str, group: int) -> float:
    """Append and decode; the largest error relative to the largest |V|."""
    draw = np.random.default_rng(group)
    layout = paged.KVLayout(paged.KVSpec(2, KV_HEADS, HEAD_DIM, dtype), chunk=device.granularity)
    with paged.KVPool(device, layout, blocks=96, prealloc=True) as pool:
        shuffle_blocks(pool)
        fill_with_nan(pool, dtype)
        side = pool.range.array(dtype, 0)  # NumPy's or CuPy's: the side that arrays must be on
        sequences, keys, values = [pool.sequence() for _ in LENGTHS], [], []
        for sequence, length in zip(sequences, LENGTHS, strict=True):
            key, value = draw.standard_normal((2, length, KV_HEADS, HEAD_DIM)).astype(DTYPES[dtype])
            slots = sequence.append(length)
            attention.append(pool, LAYER, np.asarray(key, like=side), np.asarray(value, like=side), slots)
            keys.append(key)
            values.append(value)
        query = draw.standard_normal((len(LENGTHS), KV_HEADS * group, HEAD_DIM)).astype(DTYPES[dtype])
        out = attention.decode(pool, LAYER, np.asarray(query, like=side), sequences)
        device.synchronize()
        on_host = out.get() if hasattr(out, "get") else out
        expected = reference.paged_attention(query, keys, values)
        pool.check()
        largest = max(float(np.abs(value.astype(np.float64)).max()) for value in values)
        return float(np.abs(on_host.astype(np.float64) - expected).max()) / largest


def main() -> None:
    print(__doc__)
    device = vmm.Device(0)
    print(device)
    print(f"{len(LENGTHS)} sequences of {LENGTHS} tokens, {KV_HEADS} KV heads of {HEAD_DIM}\n")
    failed = False
    for dtype, bound in BOUNDS.items():
        for group in (1, 4, 8):
            error = error_of_decode(device, dtype, group)
            ok = error <= bound  # False for NaN too
            failed |= not ok
            print(
                f"{dtype:<9} {group} query heads a KV head: error {error:.1e}, allowed {bound:.1e}{'' if ok else ' !'}"
            )
    device.close()
    if failed:
        sys.exit("the kernel disagrees with the reference")
    print("\nThe kernel found every token through the block table, and none that is not there.")


if __name__ == "__main__":
    try:
        main()
    except CompilerMissingError as error:
        sys.exit(f"error: {error}")
