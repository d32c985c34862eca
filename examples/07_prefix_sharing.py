"""Prefix sharing and copy-on-write: blocks that several sequences have.

You will see block tables as prompts come and go. A second prompt that begins
like the first gets its blocks, and need not compute those tokens. A fork (beam
search, parallel samples) shares every block; the first token that one of the two
adds copies the last block, which was not full, and no other. Then one token is
followed down through both page tables, and its address back up to all who share
it. Blocks of sequences that have ended stay until their memory is needed.
"""

import numpy as np

import paged
import vmm
from paged.walk import walk

BLOCK_SIZE = 16
SPEC = paged.KVSpec(layers=8, kv_heads=8, head_dim=128, dtype="float16")  # a block is 512 KiB
SYSTEM = np.arange(1000, 1040, dtype=np.int32)  # 40 token ids that all prompts begin with


def show(step: str, pool: paged.KVPool, **sequences: paged.Sequence) -> None:
    print(f"\n{step}")
    for name, found in sequences.items():
        blocks = "  ".join(f"{block}" + "*" * (pool.count(block) > 1) for block in found.table)
        print(f"  {name:<8}{found.length:>4} tokens   blocks {blocks}")
    held = sum(found.length for found in sequences.values()) * SPEC.token_bytes
    print(f"  without sharing {vmm.format_size(held)}, live {vmm.format_size(pool.live)}, ", end="")
    print(f"committed {vmm.format_size(pool.committed)}, {pool.blocks_idle} blocks only cached")


def prompt(pool: paged.KVPool, question: int, tokens: int) -> tuple[paged.Sequence, int]:
    """A sequence for the system prompt and a question, and how many of its tokens had to be computed."""
    ids = np.concatenate((SYSTEM, np.arange(question, question + tokens, dtype=np.int32)))
    sequence = pool.sequence(ids)
    new = len(ids) - sequence.length
    for block, slot in (divmod(int(slot), BLOCK_SIZE) for slot in sequence.append(new)):
        pool.view(block, 0)[:, slot] = 1  # stands for the model, which computes K and V of these tokens
    sequence.publish()
    return sequence, new


def both_ways(pool: paged.KVPool, sequence: paged.Sequence) -> None:
    """From a token down to physical memory, and from its address up to all who have it."""
    down = walk(pool, sequence.table, 20)
    address = down.stops[0].translation.address
    up = pool.explain(address)
    print(f"\ntoken 20: logical block {down.logical_block}, slot {down.slot} -> block {down.block}", end="")
    print(f" -> address {address:#x} -> chunk {up.chunk.chunk}, handle {up.chunk.handle:#x}")
    assert up.block is not None, "nobody has the block of a live token"
    print(f"and back: block {up.block.block} is held by {up.block.count}: ", end="")
    print(", ".join(f"tokens {one.start} to {one.stop - 1} of row {one.row}" for one in up.block.holders))
    assert up.block.block == down.block and up.block.count == 3


def main() -> None:
    print(__doc__)
    with vmm.Device(0) as device:
        print(device)
        layout = paged.KVLayout(SPEC, BLOCK_SIZE, chunk=device.granularity)
        with paged.KVPool(device, layout, budget=4 * layout.row_bytes, prefix_cache=True) as pool:
            first, computed = prompt(pool, question=1, tokens=12)
            show(f"1. A prompt: {computed} tokens computed", pool, first=first)
            second, computed = prompt(pool, question=500, tokens=20)
            show(
                f"2. It begins alike: {computed} computed, two whole blocks shared (*)",
                pool,
                first=first,
                second=second,
            )
            assert computed == len(SYSTEM) + 20 - 2 * BLOCK_SIZE
            assert first.table[:2] == second.table[:2] and first.table[2] != second.table[2]

            fork = second.fork()
            assert fork.table == second.table
            show("3. A fork of the second: no memory at all", pool, first=first, second=second, fork=fork)
            tail = second.table[-1]
            before = float(pool.view(tail, 0).sum(dtype="float64"))
            block, slot = divmod(int(fork.append(1)[0]), BLOCK_SIZE)
            pool.view(block, 0)[:, slot] = 9
            show("4. It adds a token: its last block is a copy now", pool, first=first, second=second, fork=fork)
            assert fork.table[:-1] == second.table[:-1] and fork.table[-1] != tail == second.table[-1]
            after = float(pool.view(tail, 0).sum(dtype="float64"))
            assert after == before, "a write of the fork reached the other sequence"

            both_ways(pool, second)

            for sequence in (first, second, fork):
                sequence.free()
            again, computed = prompt(pool, question=500, tokens=21)
            show(f"5. All have ended, one comes again: {computed} computed", pool, again=again)
            assert computed == len(SYSTEM) + 21 - 3 * BLOCK_SIZE
            with_salt = pool.sequence(SYSTEM, salt=7)
            print(f"  another tenant (salt) finds {with_salt.length} of the same tokens")
            assert with_salt.length == 0
            pool.check()
            again.free()
            with_salt.free()
    print("\nOne block in several tables is one block in memory.")


if __name__ == "__main__":
    main()
