"""Your own kernel on a growable range: memory grows, and its address stays.

You will see a kernel in plain CUDA C, written below, compiled by NVRTC for a GPU
or by a C++ compiler for the CPU. It counts the Collatz steps of every number and
looks the rest up in what earlier launches have left: the array grows under it,
nothing is copied, and the pointer is the same. Then two mistakes: an argument of
the wrong width, which is refused before the launch, and a kernel that runs past
the memory that is there, whose error says in which range and chunk.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import vmm
from kernels_cu import CompilerMissingError, LaunchError
from kernels_cu.checked_launch import launch_checked

# The kernel has its file's name. THREADS is a constant that is given when it is compiled.
SOURCE = r"""
// steps[n] = how many steps 3n + 1 and n / 2 take from n to 1, for n in [first, first + count).
// steps[0 .. first) is there already, from launches before this one.
extern "C" __global__ void __launch_bounds__(THREADS) collatz(unsigned short* steps, long long first, long long count) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        long long n = first + i;
        int taken = 0;
        while (n >= first && n > 1) {  // until what is known already
            n = n % 2 ? 3 * n + 1 : n / 2;
            ++taken;
        }
        steps[first + i] = (unsigned short)(taken + (n < first ? steps[n] : 0));
    }
}
"""
THREADS, BLOCKS = 128, 64


def launch(device: vmm.Device, source: Path, steps: vmm.GrowableRange, first: int, count: Any) -> None:
    """Compile (once a process) and launch. ``vmm.Device`` is a Target: it knows the architecture and the stream."""
    arguments = (np.uint64(steps.base), np.int64(first), count)
    constants = {"THREADS": THREADS}
    launch_checked(device, source, constants, (BLOCKS, 1, 1), (THREADS, 1, 1), arguments, stream=0, keepalive=steps)


def by_hand(n: int) -> int:
    """The steps of one number, without the kernel."""
    taken = 0
    while n > 1:
        n, taken = (3 * n + 1 if n % 2 else n // 2), taken + 1
    return taken


def grow_and_launch(device: vmm.Device, source: Path) -> None:
    """Compute, grow, compute on."""
    with vmm.GrowableRange(device, "16 GiB", name="steps") as steps:
        print(f"\n{'committed':>12}{'numbers':>12}{'address':>18}{'most steps':>14}{'of number':>12}")
        done = 0
        for _ in range(4):
            steps.grow(device.granularity)
            numbers = steps.size // 2
            launch(device, source, steps, done, np.int64(numbers - done))
            device.synchronize()
            array = steps.array("uint16", numbers)
            longest = int(array[1:].argmax()) + 1
            print(f"{vmm.format_size(steps.committed):>12}{numbers:>12,}{steps.base:>#18x}", end="")
            print(f"{int(array[longest]):>14}{longest:>12,}")
            for n in (1, 27, longest, numbers - 1):
                assert int(array[n]) == by_hand(n), f"{n} takes {by_hand(n)} steps, not {int(array[n])}"
            done = numbers
            del array  # it would keep its chunks from being given back

        try:
            launch(device, source, steps, done, 1000)
        except LaunchError as error:
            print(f"\na wrong argument: {error}")
        else:
            raise AssertionError("an argument without a width was launched")


def run_past_the_end(source: Path) -> None:
    """Always on the host driver: on a GPU a fault ends all work of the process, and the GPU tells no address."""
    host = vmm.HostDriver(memory="64 MiB")
    with vmm.Device(driver=host) as device, vmm.GrowableRange(device, "16 MiB", name="steps") as steps:
        steps.grow("2 MiB")
        try:
            launch(device, source, steps, 0, np.int64((2 << 20) // 2 + 100))
            device.synchronize()
        except vmm.DriverError as error:
            print(f"100 numbers too many: {error}")
            assert "range 'steps', chunk 1" in str(error), "the error does not say where"
        else:
            raise AssertionError("a kernel wrote where no memory is")
        host.reset_context()


def main() -> None:
    print(__doc__)
    with vmm.Device(0) as device, tempfile.TemporaryDirectory() as folder:
        print(device)
        source = Path(folder) / "collatz.cu"
        source.write_text(SOURCE)
        grow_and_launch(device, source)
        run_past_the_end(source)
    print("\nOne source, two compilers, and memory that grows where it lies.")


if __name__ == "__main__":
    try:
        main()
    except CompilerMissingError as error:
        sys.exit(f"error: {error}")
