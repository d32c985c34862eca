"""Give memory back while kernels that use it are still queued.

Nothing waits, and nothing is taken away too early. You will see a chunk retire
behind a stream's work and go at a later look, and, because the host driver can
keep work back until somebody waits or asks for it, what happens to a program that
unmaps without asking: an error that names the range, the chunk and the call that
took it away. It runs on the host driver always.
"""

import vmm

CHUNK = 2 << 20


def main() -> None:
    print(__doc__)
    host = vmm.HostDriver(memory="64 MiB", streams="deferred")
    with vmm.Device(driver=host) as device, vmm.GrowableRange(device, "64 MiB", name="kv") as kv:
        print(device)
        with device.current():
            stream = int(host.cuStreamCreate(1)[1])  # a stream of CuPy, cuda.core or PyTorch will do as well
            kv.commit([0, 1, 2])
            device.driver.fill_async(kv.base, 7, CHUNK, stream)  # stands for a kernel that writes chunk 0

        kv.decommit([0], after=stream)
        print(f"given up: {vmm.format_size(kv.retiring)} retire, still mapped; committed are {kv.committed_chunks()}")
        assert kv.retiring == CHUNK

        freed = kv.collect()  # looks, and does not wait; every commit and decommit looks too
        print(f"a look: {vmm.format_size(freed)} came free, and the fill had its memory while it ran")
        assert (freed, kv.retiring) == (CHUNK, 0)

        print("\nand without asking:")
        with device.current():
            device.driver.fill_async(kv.mapping(2).address, 7, CHUNK, stream)
        mapping = kv.mapping(2)
        device.driver.unmap(mapping.address, mapping.size)  # past the range, as a program of its own would
        try:
            device.synchronize()
            raise AssertionError("the fault was missed")
        except vmm.DriverError as error:
            print(error)
            assert "range 'kv', chunk 2" in str(error)
        host.reset_context()  # on a GPU the process would have to start again

        device.driver.map(mapping.address, mapping.size, mapping.handle)  # so that the range finds what it left
        with device.current():
            host.cuStreamDestroy(stream)
    print("\nMemory goes when the work that uses it is done, and nobody has to wait for that.")


if __name__ == "__main__":
    main()
