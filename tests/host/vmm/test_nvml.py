"""Who has a GPU's memory by NVML's word, from a stand-in with its documented functions; what it does not tell is said.

The functions and their answers are those of nvidia-ml-py 13: a process has ``pid`` and ``usedGpuMemory``, which is None
where NVML says "not available"; every refusal is an NVMLError.
"""

import os
import sys
import types

import pytest

import vmm
from vmm.shortage.nvml import Process, Processes, processes_of

GIB = 1 << 30
MIB = 1 << 20
HERE = os.getpid()


class StandIn(types.ModuleType):
    """``pynvml`` of a machine with one GPU at 0000:3b:00.0."""

    class NVMLError(Exception):
        pass

    def __init__(self, processes=(), refuses=(), names=None, mig=None):
        super().__init__("pynvml")
        self.processes = [types.SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes]
        self.refuses, self.names, self.mig = dict(refuses), names or {}, mig
        self.open, self.asked = 0, []

    def _refuse(self, call):
        self.asked.append(call)
        assert self.open or call == "nvmlInit", "NVML is not initialized"
        if call in self.refuses:
            raise self.NVMLError(self.refuses[call])

    def nvmlInit(self):  # noqa: N802
        self._refuse("nvmlInit")
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByPciBusId(self, bus_id):  # noqa: N802
        self._refuse("nvmlDeviceGetHandleByPciBusId")
        if bus_id != "0000:3b:00.0":
            raise self.NVMLError("Not Found")
        return "handle"

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        assert handle == "handle"
        if self.mig is None:
            raise self.NVMLError("Not Supported")
        return [self.mig, self.mig]

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        self._refuse("nvmlDeviceGetComputeRunningProcesses")
        assert handle == "handle"
        return self.processes

    def nvmlSystemGetProcessName(self, pid):  # noqa: N802
        if pid not in self.names:
            raise self.NVMLError("Insufficient Permissions")
        return self.names[pid]


@pytest.fixture
def nvml(monkeypatch):
    def install(*args, **names):
        made = StandIn(*args, **names)
        monkeypatch.setitem(sys.modules, "pynvml", made)
        return made

    return install


def test_processes_by_pid_and_name(nvml):
    module = nvml([(HERE, GIB), (7, 3 * GIB), (9, None)], names={7: "/usr/bin/python3", HERE: "python"}, mig=0)
    found = processes_of("0000:3b:00.0")
    assert found == Processes(
        (Process(HERE, "python", GIB), Process(7, "python3", 3 * GIB), Process(9, "process", None))
    )
    assert str(found.found[1]) == "python3 (pid 7)"
    assert module.open == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"refuses": {"nvmlInit": "NVML Shared Library Not Found"}}, "NVML: NVML Shared Library Not Found"),
        ({"refuses": {"nvmlDeviceGetHandleByPciBusId": "Insufficient Permissions"}}, "NVML: Insufficient Permissions"),
        ({"refuses": {"nvmlDeviceGetComputeRunningProcesses": "Not Supported"}}, "NVML: Not Supported"),
        ({"processes": [(HERE, GIB)], "mig": 1}, "the GPU is partitioned by MIG"),
        ({"processes": [(7, GIB)]}, "NVML does not list this process"),
        ({"processes": []}, "NVML does not list this process"),
    ],
)
def test_what_nvml_does_not_tell_is_not_known(nvml, options, why):
    module = nvml(**options)
    found = processes_of("0000:3b:00.0")
    assert found.found == ()
    assert found.unknown.startswith(why)
    assert module.open == 0


def test_another_gpu_is_not_taken_for_this_one(nvml):
    nvml([(HERE, GIB)])
    assert processes_of("0000:00:00.0").unknown == "NVML: Not Found"


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert processes_of("0000:3b:00.0") == Processes(unknown="pip install 'pagewalk[nvml]' to know them")


# -- in a report ------------------------------------------------------------------------------------------------


class PluggedIn(vmm.HostDriver):
    """A software device that says where it is plugged in, as a GPU does."""

    def cuDeviceGetPCIBusId(self, length, dev):  # noqa: N802, ARG002
        assert length >= 13
        return 0, b"0000:3b:00.0".ljust(length, b"\0")


@pytest.fixture
def full():
    """A device whose memory is all but gone: 200 MiB of a range, 54 MiB of what this process has besides."""
    with (
        vmm.Device(driver=PluggedIn(memory="256 MiB")) as device,
        vmm.GrowableRange(device, "256 MiB", name="kv") as memory,
        vmm.PhysicalMemory(device, "54 MiB"),
    ):
        memory.grow("200 MiB")
        yield device, memory


def holders(memory):
    with pytest.raises(vmm.OutOfMemoryError) as refused:
        memory.grow("8 MiB")
    assert len(refused.value.report.lines()) == 5
    return {one.name: one.bytes for one in refused.value.report.holders}


def test_a_report_names_the_other_processes(nvml, full):
    nvml([(HERE, 210 * MIB), (7, 40 * MIB), (9, None)], names={7: "/opt/serve/vllm"})
    assert holders(full[1]) == {
        "range 'kv'": 200 * MIB,
        "other memory of this process": 10 * MIB,
        "vllm (pid 7)": 40 * MIB,
        "process (pid 9)": None,
        "the driver, and what NVML does not tell": 4 * MIB,
    }


def test_a_report_says_why_they_are_not_known(nvml, full):
    nvml(refuses={"nvmlDeviceGetComputeRunningProcesses": "Insufficient Permissions"})
    others = "others on the device (NVML: Insufficient Permissions)"
    assert holders(full[1]) == {"range 'kv'": 200 * MIB, others: 54 * MIB}


def test_nvml_is_not_asked_while_a_taker_may_still_get_its_memory(nvml, full):
    device, memory = full
    module = nvml([(HERE, GIB)])
    memory.shrink("20 MiB")
    cache = vmm.ChunkSupply(device, cache="20 MiB")
    cache.give(cache.take(10))
    memory.grow("20 MiB")  # refused, and had once the other supply's cache has gone
    assert module.asked == []
    cache.close()


def test_a_software_device_is_plugged_in_nowhere(device, nvml):
    module = nvml([(HERE, GIB)])
    assert device.driver.pci_bus_id(0) == ""
    with vmm.GrowableRange(device, "512 MiB", name="kv") as memory:
        memory.grow("250 MiB")
        assert holders(memory) == {"range 'kv'": 250 * MIB}
    assert module.asked == []
