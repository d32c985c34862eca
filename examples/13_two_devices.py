"""One range, two devices: device 0 writes it, and device 1 may only read.

You will see the rights of both devices for each chunk, those that come later
included, device 1 reading what device 0 wrote at the same address, and a grant
that cannot be taken back while an array of device 1 relies on it. Without two GPUs
that reach each other it runs on the host driver's two devices.
"""

import vmm


def open_pair() -> tuple[vmm.Device, vmm.Device]:
    """Two GPUs that reach each other, else two devices of the host driver."""
    first = vmm.Device(0)
    driver = first.driver
    if driver.device_count() > 1 and driver.can_access_peer(1, 0):
        return first, vmm.Device(1, driver=driver.api)
    first.close()
    host = vmm.HostDriver(memory="64 MiB", devices=2)
    return vmm.Device(0, driver=host), vmm.Device(1, driver=host)


def main() -> None:
    """Grant, grow, read and be refused."""
    print(__doc__)
    owner, reader = open_pair()
    print(owner)
    print(reader)
    with owner, reader, vmm.GrowableRange(owner, reserve="1 GiB", name="shared") as kv:
        kv.grow("4 MiB")
        kv.grant(reader, "r")  # what is committed now ...
        kv.grow("2 MiB")  # ... and what will be
        for chunk in kv.committed_chunks():
            address = kv.mapping(chunk).address
            rights = [owner.driver.get_access(device.ordinal, address).name for device in (owner, reader)]
            print(f"chunk {chunk} at {address:#x}: device 0 {rights[0]}, device 1 {rights[1]}")
            assert rights == ["READWRITE", "READ"]

        mine = kv.array("float32", 1024, offset=kv.size - 4096)
        mine[:] = 42
        owner.synchronize()
        theirs = kv.array("float32", 1024, offset=kv.size - 4096, device=reader)
        print(f"device 1 reads {float(theirs[0])} at the same address, {kv.base + kv.size - 4096:#x}")
        assert float(theirs.sum()) == 42 * 1024

        try:
            kv.grant(reader, "none")
        except vmm.StateError as error:
            print(f"not yet: {error}")
        else:
            raise AssertionError("an array of device 1 lost its right")
        del theirs, mine
        kv.grant(reader, "none")
        print(f"now device 1 has {owner.driver.get_access(reader.ordinal, kv.base).name}")
        assert owner.driver.get_access(reader.ordinal, kv.base) == vmm.Access.NONE
    print("\nA grant is for the range: for what is committed, and for what will be.")


if __name__ == "__main__":
    main()
