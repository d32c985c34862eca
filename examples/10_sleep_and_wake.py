"""Sleep and wake: give a server's memory away, and take it back where it was.

You will see weights go to pinned host memory and the KV cache go without a copy,
the driver's free memory rise by just that, an append that is refused while the
cache sleeps, the weights come back with every byte, and a sequence that says its
tokens are lost.
"""

import paged
import vmm


def main() -> None:
    print(__doc__)
    device = vmm.Device(0)
    print(device)
    start = device.memory_info().free
    spec = paged.KVSpec(layers=4, kv_heads=2, head_dim=64, dtype="float16")
    layout = paged.KVLayout(spec, block_size=16, chunk=device.granularity)

    with (
        vmm.GrowableRange(device, "1 GiB", name="weights") as weights,
        paged.KVPool(device, layout, budget=16 * device.granularity, name="kv") as pool,
    ):
        weights.grow("6 MiB")
        matrix = weights.array("float32", 1_000_000)
        matrix[:] = 3
        del matrix  # an array would keep its memory awake
        sequence = pool.sequence()
        sequence.append(1000)
        awake = device.memory_info().free
        base = weights.base

        residency = vmm.Residency(device)
        residency.add(weights, "weights")
        residency.add(pool.range, "kv")
        print(f"weights: {residency.sleep('weights', backup=True)}")
        print(f"kv:      {residency.sleep('kv', backup=False)}")
        free = device.memory_info().free
        print(f"free {vmm.format_size(awake)} before, {vmm.format_size(free)} now; {residency}")
        assert weights.committed == pool.committed == 0

        try:
            sequence.append(1)
        except vmm.StateError as error:
            print(f"refused: {error}")
        else:
            raise AssertionError("a pool that sleeps took a token")

        residency.wake("weights")
        residency.wake("kv")
        assert weights.base == base, "an address changed"
        total = float(weights.array("float32", 1_000_000).sum(dtype="float64"))
        print(f"the weights are back at {base:#x}: their sum is {total:,.0f}")
        assert total == 3_000_000
        print(f"the sequence of {sequence.length} tokens is lost: {sequence.lost}")
        assert sequence.lost
        sequence.free()

    device.synchronize()
    assert device.memory_info().free == start, "physical memory was left behind"
    device.close()
    print("\nAddresses cost nothing and stay; memory goes where it is needed meanwhile.")


if __name__ == "__main__":
    main()
