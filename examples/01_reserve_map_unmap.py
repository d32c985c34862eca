"""Reserve addresses, create memory, map it, use it, unmap it: the driver's calls.

You will see a table with a line for each call. "virtual" grows when addresses are
reserved and costs nothing; "physical" grows when memory is created, and the two
meet only when memory is mapped. After an unmap the bytes are still there, at no
address: mapped somewhere else, they read the same.
"""

import numpy as np

import vmm

CHUNKS = 4


def main() -> None:
    print(__doc__)
    device = vmm.Device(0)
    print(device)
    before = device.memory_info().free
    print(f"\n{'call':<34}{'virtual':>12}{'physical':>12}")

    def show(call: str, virtual: int) -> None:
        physical = before - device.memory_info().free
        print(f"{call:<34}{vmm.format_size(virtual):>12}{vmm.format_size(physical):>12}")

    show("start", 0)
    addresses = vmm.AddressRange(device, 64 * device.granularity)
    show("cuMemAddressReserve", addresses.size)
    chunks = [vmm.PhysicalMemory(device, device.granularity) for _ in range(CHUNKS)]
    show(f"cuMemCreate, {CHUNKS} times", addresses.size)
    mappings = [addresses.map(i * device.granularity, chunk) for i, chunk in enumerate(chunks)]
    show(f"cuMemMap, {CHUNKS} times", addresses.size)
    addresses.set_access(mappings, vmm.Access.READWRITE)
    show("cuMemSetAccess, once for the run", addresses.size)

    # Now a kernel or a copy may touch the addresses. A pattern goes in through the first place.
    pattern = np.arange(device.granularity // 8, dtype=np.uint64)
    with device.current():
        device.driver.copy_in(mappings[0].address, pattern, pattern.nbytes)
    show("cuMemcpyHtoD", addresses.size)

    # One unmap takes the whole run. The memory lives on: its handles are still ours.
    addresses.unmap(mappings)
    show("cuMemUnmap, once for the run", addresses.size)
    elsewhere = addresses.map(32 * device.granularity, chunks[0])
    addresses.set_access([elsewhere], vmm.Access.READ)
    seen = np.empty_like(pattern)
    with device.current():
        device.driver.copy_out(seen, elsewhere.address, seen.nbytes)
    show("mapped elsewhere, cuMemcpyDtoH", addresses.size)

    addresses.unmap([elsewhere])
    for chunk in chunks:
        chunk.close()
    show(f"cuMemRelease, {CHUNKS} times", addresses.size)
    addresses.close()
    show("cuMemAddressFree", 0)

    assert (seen == pattern).all(), "the bytes changed with their address"
    assert device.memory_info().free == before, "physical memory was left behind"
    device.close()
    print("\nThe bytes read the same at both addresses, and everything was given back.")


if __name__ == "__main__":
    main()
