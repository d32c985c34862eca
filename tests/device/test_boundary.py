"""What of the two layers only a GPU can show: graphs over exchanged memory, two contexts of one device, a fault."""

import subprocess
import sys

import vmm

FAULT = """
import os
import cupy
import vmm

device = vmm.Device(0, driver="cuda")
kv = vmm.GrowableRange(device, "1 GiB")
touch = cupy.RawKernel('extern "C" __global__ void touch(const int* at, int* out) { *out = *at; }', "touch")
touch((1,), (1,), (cupy.uint64(kv.base), cupy.zeros(1, cupy.int32)))
codes = []
for ask in (device.synchronize, device.memory_info):  # the second finds the context lost
    try:
        ask()
        codes.append(0)
    except vmm.DriverError as error:
        codes.append(error.code)
print(*codes, flush=True)
os._exit(0)  # nothing of a lost context can be given back
"""


def test_a_captured_graph_works_on_memory_that_was_exchanged_under_its_addresses(cupy, gpu):
    chunk = gpu.granularity
    with vmm.GrowableRange(gpu, 8 * chunk) as kv:
        kv.resize(2 * chunk)
        source, target = kv.array("int32", 1024), kv.array("int32", 1024, chunk)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            source[:] = 7
            cupy.multiply(source, 2, out=target)  # loads the kernel, which must not happen in a capture
            stream.synchronize()
            stream.begin_capture()
            cupy.multiply(source, 2, out=target)
            graph = stream.end_capture()
            before = [kv.mapping(number).handle for number in (0, 1)]
            for number in (0, 1):
                kv.remap(number)
            assert not {kv.mapping(number).handle for number in (0, 1)}.intersection(before)
            source[:] = 9
            graph.launch(stream)
            stream.synchronize()
            assert (target.get(stream=stream) == 18).all()
        del source, target


def test_two_contexts_of_one_device_see_the_same_memory_at_an_address(gpu):
    driver = gpu.driver
    with vmm.GrowableRange(gpu, 8 * gpu.granularity) as kv:
        kv.resize(gpu.granularity)
        with gpu.current():
            driver.copy_in(kv.base, b"KV", 2)
        status, device = driver.api.cuDeviceGet(gpu.ordinal)
        assert status == 0
        status, other = driver.api.cuCtxCreate(None, 0, device)  # and makes it current
        assert status == 0
        try:
            found = bytearray(2)
            driver.copy_out(found, kv.base, 2)
            assert found == b"KV"
        finally:
            driver.api.cuCtxDestroy(other)


def test_a_kernel_that_touches_addresses_without_memory_loses_its_context(cupy, gpu):  # noqa: ARG001 - skips
    done = subprocess.run([sys.executable, "-c", FAULT], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["700", "700"], done.stderr
