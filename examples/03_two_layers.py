"""Both page tables of a small KV pool, side by side.

You will see, left, the block tables of a few sequences: which block holds which
of their tokens. Right, the driver's page table: the physical memory (its handle)
under each chunk of addresses, and the blocks there. Neither knows the other.
A sequence ends: its blocks go back, and so does the memory of every row that came
empty. Another one starts: it fills the rows that are alive anyway. Then a chunk
moves to other physical memory, and no block table notices.
"""

from itertools import zip_longest

import paged
import vmm

BLOCK_SIZE = 4  # tokens; with the layers below a block is 512 KiB, so that four share a chunk of 2 MiB
SPEC = paged.KVSpec(layers=32, kv_heads=8, head_dim=128, dtype="bfloat16")


def picture(pool: paged.KVPool, sequences: dict[str, paged.Sequence]) -> None:
    """Print block tables (left) and the driver's page table (right)."""
    owner = {block: name for name, found in sequences.items() for block in found.table}
    left = [f"{name}: {found.length:2} tokens in {found.table}" for name, found in sequences.items()]
    right = []
    for row in range(4):
        blocks = " ".join(f"{block:2}{owner.get(block, '.')}" for block in pool.block_pool.rows.touching(row))
        address = pool.range.base + row * pool.layout.chunk
        run = vmm.snapshot(pool.range).find(address)
        right.append(f"{address:#x} -> {f'{run.handle:#x}' if run else 'none':<4} {blocks}")
    print(f"{'block tables':<38}| the driver's page table, and blocks")
    for one, other in zip_longest(left, right, fillvalue=""):
        print(f"{one:<38}| {other}")
    print(f"live {vmm.format_size(pool.live)}, committed {vmm.format_size(pool.committed)}\n")


def main() -> None:
    print(__doc__)
    device = vmm.Device(0)
    print(device)
    before = device.memory_info().free
    layout = paged.KVLayout(SPEC, BLOCK_SIZE, chunk=device.granularity)

    with paged.KVPool(device, layout, budget=4 * layout.row_bytes) as pool:
        print(f"{pool}\n")
        sequences = {name: pool.sequence() for name in "ABC"}
        for name, tokens in (("A", 9), ("B", 21), ("C", 5)):
            sequences[name].append(tokens)
        print("1. Three sequences")
        picture(pool, sequences)
        assert paged.locate(6, sequences["A"].table, BLOCK_SIZE) == (sequences["A"].table[1], 2)

        committed = pool.committed
        sequences.pop("B").free()
        pool.collect(wait=True)  # free does not wait for work that may use the row
        print("2. B has ended; the row that only B lived in is unmapped")
        picture(pool, sequences)
        assert pool.committed == committed - layout.row_bytes

        committed = pool.committed
        sequences["D"] = pool.sequence()
        sequences["D"].append(11)
        print("3. D has come; it fills rows that are mapped anyway: no call to the driver")
        picture(pool, sequences)
        assert pool.committed == committed

        tables = {name: list(found.table) for name, found in sequences.items()}
        handle = pool.range.mapping(0).handle
        pool.range.remap(0)
        print("4. The first chunk has moved to other physical memory; no block table noticed")
        picture(pool, sequences)
        assert pool.range.mapping(0).handle != handle
        assert tables == {name: found.table for name, found in sequences.items()}

        assert before - device.memory_info().free == pool.committed, "the driver counts otherwise"
        pool.check()
        for found in sequences.values():
            found.free()
        pool.collect(wait=True)
        assert pool.committed == 0, "an empty pool keeps no memory"

    assert device.memory_info().free == before, "physical memory was left behind"
    device.close()
    print("Tokens find their blocks in the one table, addresses find their memory in the other.")


if __name__ == "__main__":
    main()
