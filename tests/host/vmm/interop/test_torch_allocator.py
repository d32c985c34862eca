"""The C functions under torch.cuda.MemPool: called as PyTorch calls them, over the stub of a GPU's driver.

PyTorch itself is called where it is installed, as far as it goes without a GPU; else a stand-in that does what its
documentation says of CUDAPluggableAllocator: load the file and take the two functions by name.
"""

import atexit
import ctypes
import importlib.util
import os
import shutil
import sys
import threading
import time
import types

import pytest

import vmm

pytestmark = pytest.mark.skipif(
    not (os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or importlib.util.find_spec("ziglang")),
    reason="needs a C compiler: python -m pip install 'pagewalk[host]'",
)
STREAM, OTHER = 0x57E400001230, 0x57E400004560
MIB = 1 << 20


class Pluggable:
    """Stand-in of torch.cuda.memory.CUDAPluggableAllocator."""

    def __init__(self, path, allocate, free):
        self.functions = functions_of(ctypes.CDLL(path), allocate, free)


def functions_of(found, allocate, free):
    """The two functions as PyTorch declares them."""
    pair = getattr(found, allocate), getattr(found, free)
    pair[0].argtypes, pair[0].restype = (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    pair[1].argtypes, pair[1].restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p), None
    return pair


def put_stand_in():
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(memory=types.SimpleNamespace(CUDAPluggableAllocator=Pluggable))
    sys.modules["torch"] = torch


def called_as_pytorch_calls():
    put_stand_in()
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        made = vmm.interop.torch.allocator(heap)
        assert vmm.interop.torch.allocator(heap) is made
        allocate, free = made.pluggable.functions
        first, second = allocate(2 * MIB, 0, STREAM), allocate(20 * MIB, 0, OTHER)
        seen = [first - heap.range.base, second - heap.range.base, heap.allocated]
        seen.append(allocate(1 << 40, 0, STREAM))  # out of memory is 0, PyTorch's sign
        seen.append(allocate(MIB, 1, STREAM))  # so is another device
        with pytest.raises(vmm.StateError, match="given to another library"):
            heap.close()
        free(first, 2 * MIB, 0, STREAM)
        free(second, 20 * MIB, 0, OTHER)
        made.collect()
        return [*seen, heap.allocated]


def test_segments_are_blocks_of_the_heap(stub):
    seen, _calls = stub(called_as_pytorch_calls)
    assert seen == [0, 2 * MIB, 22 * MIB, None, None, 0]
    assert "PyTorch gets no memory from the heap: " in stub.stderr
    assert "1 TiB" in stub.stderr
    assert "PyTorch wants memory of device 1" in stub.stderr


def freed_in_streams():
    put_stand_in()
    freed = []
    inside = vmm.Block.free
    vmm.Block.free = lambda block, *, after=None: (freed.append(after), inside(block, after=after))
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        allocate, free = vmm.interop.torch.allocator(heap).pluggable.functions
        for stream in (STREAM, OTHER, None):
            free(allocate(MIB, 0, stream), MIB, 0, stream)
        sum(range(100_000))  # the main thread runs Python, and takes in what was freed
        return sorted(freed), heap.allocated


def test_what_is_freed_goes_back_by_itself_behind_its_stream(stub):
    """Py_AddPendingCall: the main thread does it at its next steps, with no further call of PyTorch."""
    (freed, left), _calls = stub(freed_in_streams)
    assert freed == sorted([0, STREAM, OTHER])
    assert left == 0


def freed_without_pythons_lock():
    """A thread of the C library frees, and is waited for in one call that has Python's lock from beginning to end."""
    put_stand_in()
    libc = ctypes.PyDLL(None)  # its functions are called with Python's lock held
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        made = vmm.interop.torch.allocator(heap)
        allocate, free = made.pluggable.functions
        address = allocate(MIB, 0, None)
        thread, deadline = ctypes.c_ulong(), (ctypes.c_long * 2)(int(time.time()) + 5, 0)
        entry = ctypes.cast(free, ctypes.c_void_p)  # called with the address; the other arguments are whatever is there
        assert not libc.pthread_create(ctypes.byref(thread), None, entry, ctypes.c_void_p(address))
        ended = libc.pthread_timedjoin_np(thread, None, deadline)
        made.collect()
        return ended, heap.allocated


def test_a_free_needs_no_lock_of_pythons(stub):
    (ended, left), _calls = stub(freed_without_pythons_lock)
    assert ended == 0  # not ETIMEDOUT
    assert left == 0


def in_threads():
    put_stand_in()
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "1 GiB") as heap:
        made = vmm.interop.torch.allocator(heap)
        allocate, free = made.pluggable.functions

        def work(seed):
            for step in range(60):
                free(allocate((1 + (step * seed) % 7) * MIB, 0, STREAM + 16 * seed), 0, 0, STREAM + 16 * seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made.collect()
        return heap.allocated


@pytest.mark.exhaustive
def test_threads_allocate_and_free(stub):
    left, _calls = stub(in_threads)
    assert left == 0


def in_a_child():
    put_stand_in()
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        made = vmm.interop.torch.allocator(heap)
        allocate, free = made.pluggable.functions
        address = allocate(MIB, 0, STREAM)
        child = os.fork()
        if not child:
            made.collect = lambda: os._exit(4)  # no Python is to run for what PyTorch asks here
            free(address, MIB, 0, STREAM)
            os._exit(bool(allocate(MIB, 0, STREAM)) + 2 * bool(made._library.pagewalk_take_notes()))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        free(address, MIB, 0, STREAM)
        made.collect()
        return status, heap.allocated


def test_a_forked_child_gets_and_frees_nothing(stub):
    (status, left), _calls = stub(in_a_child)
    assert (status, left) == (0, 0)


def at_the_end_of_the_interpreter():
    put_stand_in()
    at_exit = []
    atexit.register = lambda function: at_exit.append(function)
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        made = vmm.interop.torch.allocator(heap)
        allocate, free = made.pluggable.functions
        address = allocate(MIB, 0, STREAM)
        for function in at_exit:
            function()
        seen = allocate(MIB, 0, STREAM)
        free(address, MIB, 0, STREAM)
        seen = seen, made._library.pagewalk_take_notes()
        made._held.free(address, STREAM)
        return seen


def test_nothing_reaches_an_interpreter_that_ends(stub):
    assert stub(at_the_end_of_the_interpreter)[0] == (None, None)


def by_pytorch():
    import torch

    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        made = vmm.interop.torch.allocator(heap)
        return type(made.pluggable) is torch.cuda.memory.CUDAPluggableAllocator, made.pluggable.allocator() is not None


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch: python -m pip install torch")
def test_pytorch_itself_takes_the_functions(stub):
    assert stub(by_pytorch)[0] == (True, True)


def warned(**environment):
    put_stand_in()
    pools = []
    sys.modules["torch"].cuda.MemPool = lambda allocator: pools.append(allocator) or "a pool"
    Pluggable.allocator = lambda _self: "its allocator"
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    import warnings

    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            pool = vmm.interop.torch.mem_pool(heap)
        return pool, pools, [str(one.message) for one in told if "PyTorch" in str(one.message)]


def warned_with_the_option():
    return warned(PYTORCH_CUDA_ALLOC_CONF="backend:native, release_lock_on_cudamalloc:True")


@pytest.mark.exhaustive
def test_a_pool_warns_of_two_locks_unless_pytorch_gives_up_its_own(stub):
    (pool, pools, told), _calls = stub(warned)
    assert (pool, pools) == ("a pool", ["its allocator"])
    assert len(told) == 1
    assert "PYTORCH_ALLOC_CONF=release_lock_on_cudamalloc:True" in told[0]
    (_pool, _pools, told), _calls = stub(warned_with_the_option)
    assert told == []


def without_a_compiler():
    put_stand_in()
    os.environ["CC"] = "/nowhere/cc"
    with vmm.Device(0, driver="cuda") as device, vmm.Heap(device, "64 MiB") as heap:
        with pytest.raises(vmm.DriverMissingError) as caught:
            vmm.interop.torch.allocator(heap)
        return str(caught.value)


@pytest.mark.exhaustive
def test_a_compiler_that_is_not_there_is_one_line(stub):
    text, _calls = stub(without_a_compiler)
    assert "/nowhere/cc cannot be run" in text
    assert "\n" not in text


def test_a_heap_of_the_host_driver_is_refused(device):
    with vmm.Heap(device, "4 MiB") as heap, pytest.raises(vmm.StateError, match="MemPool allocates memory of GPUs"):
        vmm.interop.torch.allocator(heap)
