"""Whose processes have memory of a GPU, from NVML through nvidia-ml-py, where that is installed.

The GPU is named by its PCI bus id, for CUDA_VISIBLE_DEVICES changes the order of CUDA's indices and not of NVML's. What
NVML does not tell is not known, and why is said: no library, no permission, MIG (the memory of an instance is not that
of the GPU's other processes), or a container, whose pids are not those of the machine. ("NVML API Reference Guide",
NVIDIA: nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_t.)
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MIG_ENABLED = 1  # NVML_DEVICE_MIG_ENABLE


@dataclass(frozen=True, slots=True)
class Process:
    """A process with a context on a GPU; ``bytes`` is None where the driver does not say (WDDM)."""

    pid: int
    name: str
    bytes: int | None

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one GPU, this one included; or why they are not known."""

    found: tuple[Process, ...] = ()
    unknown: str = ""


def processes_of(bus_id: str) -> Processes:
    """The processes that compute on the GPU at ``bus_id``. Never raises."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return Processes(unknown="pip install 'pagewalk[nvml]' to know them")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Processes(unknown=f"NVML: {error}")
    try:
        return _ask(nvml, nvml.nvmlDeviceGetHandleByPciBusId(bus_id))
    except nvml.NVMLError as error:
        return Processes(unknown=f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()


def _ask(nvml: Any, handle: Any) -> Processes:
    if _is_partitioned(nvml, handle):
        return Processes(unknown="the GPU is partitioned by MIG")
    listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    if os.getpid() not in [one.pid for one in listed]:  # it has a context there, so it is listed under another number
        return Processes(unknown="NVML does not list this process: its pids are those of another container, or hidden")
    return Processes(tuple(Process(one.pid, _name_of(nvml, one.pid), one.usedGpuMemory) for one in listed))


def _is_partitioned(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0] == _MIG_ENABLED)
    except nvml.NVMLError:
        return False  # a GPU that cannot be


def _name_of(nvml: Any, pid: int) -> str:
    try:
        name: str = nvml.nvmlSystemGetProcessName(pid)
    except nvml.NVMLError:
        return "process"  # of another user, or gone
    return Path(name).name or "process"
