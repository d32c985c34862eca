"""A kernel that touches what it must not ends with an error: the process lives, and the address is right."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, KernelError, KernelFault, PagedKV, launch
from kernels_cu.checked_launch import launch_checked

KERNEL = Path(__file__).with_name("touch.cu")
PAGE = mmap.PAGESIZE
NONE, READ = 0, 1


class Pages:
    """Some pages of anonymous memory, whose protection can be set."""

    def __init__(self, count):
        self._memory = mmap.mmap(-1, count * PAGE)
        self.array = np.frombuffer(self._memory, np.int32)
        self.address = self.array.ctypes.data

    def protect(self, page, protection):
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(self.address + page * PAGE), PAGE, protection) == 0


def touch(target, address, write, grid=1, only_block=0):
    """One thread of one block reads or writes the int at ``address``; what it read."""
    found = np.zeros(1, np.int32)
    launch_checked(
        target,
        KERNEL,
        {},
        (grid, 1, 1),
        (64, 1, 1),
        (np.uint64(address), np.uint64(found.ctypes.data), np.int32(write), np.int32(only_block)),
        stream=0,
        keepalive=found,
    )
    return found[0]


@pytest.mark.parametrize("offset", [0, 4, 2048, PAGE - 4])
def test_a_read_of_a_page_without_access(target, offset):
    pages = Pages(3)
    pages.protect(1, NONE)
    address = pages.address + PAGE + offset
    with pytest.raises(KernelFault, match=f"read address {address:#x}, which is not readable") as caught:
        touch(target, address, write=False)
    assert (caught.value.address, caught.value.write) == (address, False)
    pages.array[0] = 5
    assert touch(target, pages.address, write=False) == 5


def test_a_write_to_a_read_only_page(target):
    pages = Pages(2)
    pages.array[:] = 9
    pages.protect(1, READ)
    assert touch(target, pages.address + PAGE, write=False) == 9
    with pytest.raises(KernelFault, match=r"wrote address 0x[0-9a-f]+, which is not writable") as caught:
        touch(target, pages.address + PAGE + 8, write=True)
    assert (caught.value.address, caught.value.write) == (pages.address + PAGE + 8, True)
    assert (pages.array == 9).all()


def test_a_page_behind_the_end_of_its_file(target, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * PAGE))
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 2 * PAGE)
        file.truncate(PAGE)
    address = np.frombuffer(memory, np.uint8).ctypes.data + PAGE  # SIGBUS, where the others are SIGSEGV
    with pytest.raises(KernelFault) as caught:
        touch(target, address, write=True)
    assert (caught.value.address, caught.value.write) == (address, True)


def test_an_address_that_no_machine_has_is_a_fault_too(target):
    with pytest.raises(KernelFault):
        touch(target, 0x7FFF_0000_0000_0000, write=False)


@pytest.mark.usefixtures("target")
def test_the_targets_own_error_is_raised():
    class OwnError(Exception):
        pass

    class OwnTarget(HostTarget):
        def fault(self, address, write):
            return OwnError(address, write)

    with pytest.raises(OwnError) as caught:
        touch(OwnTarget(), 64, write=True)
    assert caught.value.args == (64, True)


def test_a_block_table_that_leads_astray(target):
    """The kernel of the product: an id far outside the pool reads at exactly the address that the strides give."""
    reserved = mmap.mmap(-1, 64 << 20, prot=NONE)
    base = np.frombuffer(reserved, np.uint8).ctypes.data
    kv = PagedKV(base, base, "float16", "hnd", 16, 1, 8, 128, 128, 8)
    query = np.zeros((1, 1, 8), np.float16)
    with pytest.raises(KernelFault) as caught:
        launch.paged_attention_simple(
            target, kv, query, np.array([[1000]], np.int32), np.array([1], np.int32), np.empty_like(query)
        )
    assert (caught.value.address, caught.value.write) == (base + 1000 * 128 * 2, False)
    with pytest.raises(KernelFault) as caught:
        launch.append_kv(target, kv, query, query, np.array([16 * 77 + 3]))
    first = base + (77 * 128 + 3 * 8) * 2
    assert (caught.value.address, caught.value.write) == (first, True)


@pytest.mark.parametrize("host_threads", [1, 4])
@pytest.mark.usefixtures("target")
def test_one_bad_block_of_many(host_threads):
    run = HostRun(threads=host_threads)
    for only_block in (0, 1234, 19_999):
        with pytest.raises(KernelFault) as caught:
            touch(HostTarget(run), 4096, write=True, grid=20_000, only_block=only_block)
        assert (caught.value.address, caught.value.write) == (4096, True)


def test_faults_in_several_threads_of_python_at_once(target):
    wrong = []

    def work(number):
        for i in range(300):
            address = 4096 + 4 * (300 * number + i)
            try:
                touch(target, address, write=bool(i % 2))
                wrong.append(address)
            except KernelFault as fault:
                if (fault.address, fault.write) != (address, bool(i % 2)):
                    wrong.append((address, fault))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_handlers_of_the_process_are_back_after_a_launch(target):
    def handlers():
        action = ctypes.create_string_buffer(152)  # handler, mask (of which the system fills 8 bytes), flags
        found = []
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGINT):
            assert ctypes.CDLL(None).sigaction(number, None, action) == 0
            found.append((action.raw[:16], action.raw[136:140]))
        return found

    before = handlers()
    with pytest.raises(KernelFault):
        touch(target, 64, write=True)
    assert handlers() == before


def _run_in_a_process_of_its_own(body):
    program = f"""
        import faulthandler, sys, threading
        import numpy as np
        faulthandler.enable()
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_faults import *
    """
    text = textwrap.dedent(program) + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.usefixtures("target")
def test_a_crash_that_is_not_a_kernels_is_still_a_crash_with_a_traceback():
    done = _run_in_a_process_of_its_own("""
        try:
            touch(HostTarget(), 64, write=True)
        except KernelFault as fault:
            print("caught", hex(fault.address), flush=True)
        faulthandler._sigsegv()
    """)
    assert done.stdout == "caught 0x40\n"
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_a_crash_beside_a_running_kernel_goes_to_the_processs_own_handler(target):  # noqa: ARG001
    done = _run_in_a_process_of_its_own("""
        began = threading.Event()
        def forever():
            good = np.zeros(1, np.int32)
            while True:
                touch(HostTarget(HostRun(threads=1)), good.ctypes.data, write=True, grid=200_000)
                began.set()
        threading.Thread(target=forever, daemon=True).start()
        assert began.wait(60)
        faulthandler._sigsegv()
    """)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr


FAULTY = r"""
__device__ void beside(int* out, int at) {
    __shared__ int array[8];
    if (threadIdx.x < 8) array[threadIdx.x] = 5;
    __syncthreads();
    if (threadIdx.x == 3) array[at] = 1;
    __syncthreads();
    out[threadIdx.x] = array[threadIdx.x % 8];
}

extern "C" __global__ void faulty(int* x, int kind, int at) {
    if (kind == 5) beside(x, at);
    if (threadIdx.x != 3) return;  // guard
    if (kind == 0) x[0] = at / x[1];
    if (kind == 1) x[0] = at % x[1];
    if (kind == 2) ((float4*)(x + at))[0] = ((float4*)x)[4];
    if (kind == 3) ((float2*)(x + at))[0] = make_float2(1, 2);
    if (kind == 4) {
        volatile int* y = x;
        while (y[0] == 0) {
        }
    }
    if (kind == 6) *(double*)((char*)x + at) = 1;
}
"""
DIVIDE, MODULO, QUARTET, PAIR, FOREVER, BESIDE, DOUBLE = range(7)


@pytest.fixture
def faulty(tmp_path, target):  # noqa: ARG001 - skips without a compiler
    """Launch one kind of the kernel on 64 ints that begin at a multiple of 16 bytes."""
    source = tmp_path / "faulty.cu"
    source.write_text(FAULTY)

    def run(kind, at=0, grid=1, **host_run):
        memory = np.zeros(68, np.int32)
        x = memory[-memory.ctypes.data % 16 // 4 :][:64]
        arguments = (np.uint64(x.ctypes.data), np.int32(kind), np.int32(at))
        target = HostTarget(HostRun(**host_run))
        launch_checked(target, source, {}, (grid, 1, 1), (32, 1, 1), arguments, stream=0, keepalive=x)
        return x

    return run


@pytest.mark.parametrize("kind", [DIVIDE, MODULO])
def test_an_integer_divided_by_zero_is_an_error(faulty, kind):
    with pytest.raises(
        KernelError, match=r"faulty, block \(0, 0, 0\): an integer is divided by 0, or .* undefined on a"
    ):
        faulty(kind, 7)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="aarch64 moves vectors from any address")
def test_a_vector_that_is_not_aligned_is_an_error_with_its_address(faulty):
    faulty(QUARTET, 8)
    with pytest.raises(KernelError, match=r"touches 0x[0-9a-f]*4, which is not a multiple of .*MISALIGNED_ADDRESS"):
        faulty(QUARTET, 5)


@pytest.mark.parametrize(("kind", "good", "bad"), [(PAIR, 2, 3), (DOUBLE, 8, 12)])
def test_the_race_check_looks_at_every_alignment(faulty, kind, good, bad):
    faulty(kind, good, race_check=True)
    with pytest.raises(KernelError, match=r"touches 0x[0-9a-f]*[8c4], which is not a multiple of the size"):
        faulty(kind, bad, race_check=True)


@pytest.mark.parametrize("observed", [False, True])
def test_a_write_beside_the_shared_arrays_is_an_error(faulty, observed):
    assert faulty(BESIDE, 7, race_check=observed)[:8].tolist() == [5, 5, 5, 5, 5, 5, 5, 1]
    for at in (8, 11, 1000, -1, -1000):
        with pytest.raises(KernelError, match="a thread writes beside the kernel's shared arrays"):
            faulty(BESIDE, at, race_check=observed)
    assert faulty(BESIDE, 0)[:2].tolist() == [1, 5]


def _interrupt_after(seconds):
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("grid", [1, 40])
def test_an_interrupt_ends_a_kernel_that_never_returns(faulty, grid):
    """With a grid of 40 blocks the helpers hang too."""
    for _ in range(3):
        timer = _interrupt_after(0.1)
        with pytest.raises(KeyboardInterrupt):
            faulty(FOREVER, grid=grid, threads=4)
        timer.join()
    faulty(QUARTET)


def test_an_interrupt_that_somebody_holds_back_does_not_end_a_kernel(faulty):
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        timer = _interrupt_after(0.02)
        while not heard:
            faulty(QUARTET, grid=20_000)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]


def test_pythons_handler_of_interrupts_is_back_after_a_launch(faulty):
    faulty(QUARTET)
    with pytest.raises(KeyboardInterrupt):
        _interrupt_after(0).join()
        threading.Event().wait(10)
