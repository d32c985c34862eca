"""A user's program over vmm.interop: Pagewalk under the array libraries that are installed; mypy needs none of them.

It runs without them too: what is missing is one line that says how to get it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import vmm
from vmm import interop


def allocators(heap: vmm.Heap) -> dict[str, Callable[[], Any]]:
    """What each library allocates with, made when it is called."""
    return {
        "cupy": lambda: interop.cupy.allocator(heap),
        "rmm": lambda: interop.rmm.memory_resource(heap),
        "numba": lambda: interop.numba.memory_manager(heap),
        "cuda_core": lambda: interop.cuda_core.memory_resource(heap),
        "torch": lambda: interop.torch.mem_pool(heap),
    }


def made(heap: vmm.Heap) -> dict[str, str]:
    found = {}
    for name, make in allocators(heap).items():
        try:
            found[name] = type(make()).__name__
        except (vmm.DriverMissingError, vmm.StateError) as error:  # not installed, or no GPU
            found[name] = str(error)
    return found


def of_its_kind(heap: vmm.Heap) -> tuple[interop.cupy.Allocator, interop.torch.HeapAllocator]:
    return interop.cupy.allocator(heap), interop.torch.allocator(heap)


def by_address(heap: vmm.Heap) -> int:
    """What the allocators stand on: addresses in, addresses out, from any thread."""
    memory: interop.malloc.Malloc = interop.malloc.of(heap)
    address = memory.allocate(1000, stream=0)
    memory.free(address)
    interop.malloc.Held(memory, memory.allocate(4096), 0)  # freed when nobody has it
    assert len(memory) == 0
    return address


def tensors(memory: vmm.GrowableRange) -> Any:
    """A tensor of committed memory, and one that grows in place."""
    fixed = interop.torch.tensor(memory, "float32", (2, 3))
    growing = interop.torch.GrowableTensor(memory, "float32", (3,))
    growing.resize(100)
    return fixed, growing.tensor


def main() -> None:
    device = vmm.Device(driver=vmm.HostDriver(memory="64 MiB"))
    with vmm.Heap(device, reserve="64 MiB") as heap:
        assert set(made(heap)) == {"cupy", "rmm", "numba", "cuda_core", "torch"}
        assert by_address(heap)
    device.close()


if __name__ == "__main__":
    main()
