"""A general allocator that fragmentation cannot starve: the heap.

You will see a budget of physical memory filled with blocks and every other block
freed. In a buffer of that size, as cudaMalloc gives one, the free half would lie in
small holes now, and no large block could be had without moving others. The heap
has addresses to spare: the holes keep none of the memory, any chunk serves any
address, and one block takes all that came free. Nothing moved, nothing was lost.
"""

import vmm

CHUNKS = 32


def show(step: str, heap: vmm.Heap) -> None:
    """The heap's first chunks of addresses, a letter each: "#" has memory, "." has none."""
    chunks = "".join("#" if heap.range.is_committed(chunk) else "." for chunk in range(3 * CHUNKS // 2))
    print(f"{step:<28}{heap}\n    {chunks}")


def main() -> None:
    print(__doc__)
    with vmm.Device(0) as device:
        print(f"{device}\n")
        chunk, budget = device.granularity, CHUNKS * device.granularity
        with (
            vmm.ChunkSupply(device, budget=budget) as supply,
            vmm.Heap(device, reserve=64 * budget, supply=supply) as heap,
        ):
            blocks = {number: heap.allocate(chunk) for number in range(CHUNKS)}
            for number, block in blocks.items():
                block.array("uint32", chunk // 4)[:] = number
            show("32 blocks of a chunk", heap)
            assert heap.committed == budget

            addresses = {number: block.address for number, block in blocks.items()}
            for number in range(0, CHUNKS, 2):
                blocks.pop(number).free()
            heap.trim()  # else what lies empty is kept, for the next block or for whoever lacks memory
            device.synchronize()  # it goes when the work that was queued before is done
            show("every other one freed", heap)
            assert heap.committed == budget // 2, "free addresses keep memory"
            try:
                heap.allocate(budget // 2 + chunk)
            except vmm.OutOfMemoryError as error:
                print(f"\nmore than there is: {error}")
            else:
                raise AssertionError("the budget was exceeded")

            large = heap.allocate(budget // 2)
            large.array("uint8", budget // 2)[:] = 255
            print()
            show("one block of all the rest", heap)
            print(f"in a fixed buffer the largest hole would have {vmm.format_size(chunk)}, ", end="")
            print(f"and this block has {vmm.format_size(large.size)} at {large.address:#x}")
            assert heap.committed == budget

            for number, block in blocks.items():
                assert block.address == addresses[number], f"block {number} moved"
                array = block.array("uint32", chunk // 4)
                assert int(array[0]) == int(array[-1]) == number, f"block {number} lost its bytes"
                del array
    print("\nAddresses are many and free; memory is counted in chunks, and a chunk fits everywhere.")


if __name__ == "__main__":
    main()
