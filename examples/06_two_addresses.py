"""Access rights, and one chunk at two addresses.

You will see physical memory mapped twice: a writer's address and a reader's.
What goes in through the one comes out of the other, for it is the same memory,
and each address has rights of its own. Then an array of a range that was made
read-only, which says so, and an access that the driver refuses: the error names
the address, the range, the chunk, and the call that took the right away.
"""

import numpy as np

import vmm


def map_twice(device: vmm.Device) -> None:
    """One chunk, two addresses, and rights that belong to the address."""
    chunk = device.granularity
    with vmm.PhysicalMemory(device, chunk) as memory, vmm.AddressRange(device, 8 * chunk) as addresses:
        writer, reader = addresses.map(0, memory), addresses.map(4 * chunk, memory)
        addresses.set_access([writer], "rw")
        addresses.set_access([reader], "r")
        print("one chunk, mapped twice:")
        for name, mapping in (("writer", writer), ("reader", reader)):
            print(f"  {name} at {mapping.address:#x}: handle {mapping.handle:#x}, {mapping.access.name}")

        written, seen = np.arange(256, dtype=np.uint8), np.zeros(256, np.uint8)
        with device.current():
            device.driver.copy_in(writer.address, written, written.nbytes)
            device.driver.copy_out(seen, reader.address, seen.nbytes)
        print(f"  256 bytes written at the one, read at the other: {'the same' if (seen == written).all() else 'not'}")
        assert (seen == written).all(), "two addresses of one chunk hold different bytes"
        owner = vmm.describe(device, reader.address)
        print(f"  what the driver says of the reader's address: {owner.access.name}, device {owner.device}")
        assert owner.access == vmm.Access.READ


def protect(device: vmm.Device) -> None:
    """Rights of a growable range, chunk by chunk, and the arrays that depend on them."""
    with vmm.GrowableRange(device, "1 GiB", name="weights") as weights:
        weights.grow(3 * device.granularity)
        weights.array("uint8", 1)[:] = 42
        device.synchronize()
        weights.protect(0, device.granularity, "r")
        print("\na range of three chunks, the first of them read-only now:")
        for run in weights.runs():
            print(f"  bytes {run.start:>8,} to {run.stop:>9,}: {run.access.name}")
        array = weights.array("uint8", 4096)
        print(f"  an array there reads {int(array[0])}")
        assert int(array[0]) == 42
        try:
            weights.protect(0, device.granularity, "none")
        except vmm.StateError as error:
            print(f"  less than an array needs is refused: {error}")
        else:
            raise AssertionError("an array lost its memory")
        del array


def refused() -> None:
    """What happens without the right: always on the host driver, for on a GPU a fault ends the process's context."""
    host = vmm.HostDriver(memory="64 MiB")
    with vmm.Device(driver=host) as device, vmm.GrowableRange(device, "64 MiB", name="kv") as kv:
        kv.grow("4 MiB")
        kv.protect(0, "2 MiB", "r")
        print("\nwrites where nobody may write:")
        for address in (kv.base, kv.base + vmm.parse_size("10 MiB")):
            try:
                with device.current():
                    device.driver.fill_async(address, 0, 4096, 0)
                raise AssertionError("a write went through")
            except vmm.DriverError as error:
                print(f"  {error}")
                assert kv.name in str(error), "the error does not name the range"


def main() -> None:
    print(__doc__)
    with vmm.Device(0) as device:
        print(f"{device}\n")
        before = device.memory_info().free
        map_twice(device)
        protect(device)
        assert device.memory_info().free == before, "physical memory was left behind"
    refused()
    print("\nRights belong to an address, bytes to the chunk behind it.")


if __name__ == "__main__":
    main()
