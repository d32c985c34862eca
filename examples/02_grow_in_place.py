"""Grow an array in place: its address stays, and memory comes as it is needed.

You will see 16 GiB of addresses reserved for nothing, physical memory growing
under them step by step while the base never moves, and what an array that copies
itself to grow would have moved instead. The last column is not ours: it is what
the driver (the host driver's: the operating system) says is taken. Then the range
shrinks again.
"""

import vmm

STEPS = ("8 MiB", "24 MiB", "64 MiB", "160 MiB")


def main() -> None:
    print(__doc__)
    device = vmm.Device(0)
    print(device)
    before = device.memory_info().free

    with vmm.GrowableRange(device, reserve="16 GiB", name="kv") as kv:
        base, copied, size = kv.base, 0, 0
        print(f"\n{'size':>8}{'base':>16}{'reserved':>11}{'committed':>11}{'copying moves':>15}{'taken':>10}")
        for step in STEPS:
            copied += size  # growing by copying moves all that is there, and needs both buffers meanwhile
            kv.resize(step)
            size = kv.size
            tail = kv.array("uint8", device.granularity, offset=size - device.granularity)
            tail[:] = len(step)  # the new part is ordinary memory
            taken = before - device.memory_info().free
            assert kv.base == base, "the range moved"
            assert taken == kv.committed, "the driver disagrees about what is committed"
            print(
                f"{vmm.format_size(size):>8}{kv.base:>#16x}{vmm.format_size(kv.reserved):>11}"
                f"{vmm.format_size(kv.committed):>11}{vmm.format_size(copied):>15}{vmm.format_size(taken):>10}"
            )
        first = kv.array("uint8", vmm.parse_size("8 MiB"))
        assert int(first[-1]) == len(STEPS[0]), "growing lost a byte"
        del first, tail  # an array keeps its chunks: shrinking under it would be refused

        kv.shrink("128 MiB")
        device.synchronize()  # a shrink does not wait: memory goes when the work that was queued before is done
        print(f"\nafter shrink: {kv.runs()}")
        assert before - device.memory_info().free == kv.committed == vmm.parse_size("32 MiB")

    assert device.memory_info().free == before, "physical memory was left behind"
    device.close()
    print("The address never changed, nothing was copied, and everything was given back.")


if __name__ == "__main__":
    main()
