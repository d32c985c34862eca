"""Share a range's memory with another process: two mappings of the same physical chunks, and no copy.

You will see two processes. The first commits memory, writes it, and shares it through a socket in a private folder. The
second, started by the first, attaches: the same bytes lie at a base of its own. It reads what the first has written,
and writes an answer that the first reads. Then the first gives its memory up while the second still holds it: the
physical memory comes free when the last of the two lets it go. Runs on a GPU, and without one on the host driver.
"""

import subprocess
import sys

import vmm

CHUNKS = 64


def main() -> None:
    device = vmm.Device(0)
    print(device)
    size = CHUNKS * device.granularity
    before = device.memory_info().free
    supply = vmm.ChunkSupply(device, exportable=True)  # only memory that is made for it can leave the process
    kv = vmm.GrowableRange(device, 64 * size, supply=supply, name="kv")
    kv.grow(size)
    numbers = kv.array("int32", size // 4)
    numbers[:] = 1
    device.synchronize()  # the bytes are shared, the order of work is not: finish it before somebody else looks

    # access="rw": the other process may write. peer= would admit one process only; other users are never admitted.
    with vmm.sharing.Exporter(kv, access="rw") as exporter:
        print(f"first:  {vmm.format_size(size)} at {kv.base:#x}, shared at {exporter.path}", flush=True)
        command = [sys.executable, __file__, str(exporter.path)]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdin and other.stdout
        print(other.stdout.readline(), end="")  # it has attached, read and answered
    answer = int(numbers.sum())
    print(f"first:  the sum is {answer} now: the second process has doubled every number")
    assert answer == 2 * (size // 4), "the answer was not seen here"

    # The exporter is closed and the range goes too; what is attached stays.
    del numbers
    kv.close()
    supply.close()
    other.stdin.write("look again\n")
    other.stdin.close()
    print(other.stdout.read(), end="")
    assert other.wait() == 0, "the second process failed"
    other.stdout.close()
    missing = before - device.memory_info().free
    assert missing < size // 2, "physical memory was left behind"  # on a GPU, CuPy keeps a little of its own
    device.close()
    print("Both have let go, and the physical memory is free again.")


def second(path: str) -> None:
    with vmm.Device(0) as device, vmm.sharing.attach(device, path) as shared:
        numbers = shared.array("int32", shared.size // 4)
        seen = int(numbers.sum())
        numbers *= 2
        device.synchronize()
        print(f"second: the same memory at {shared.base:#x}; the sum is {seen}, and I double every number", flush=True)
        sys.stdin.readline()
        print(f"second: the first has given its memory up, and here the sum is still {int(numbers.sum())}")
        del numbers


if __name__ == "__main__":
    second(sys.argv[1]) if len(sys.argv) > 1 else main()
