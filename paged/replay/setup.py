"""From options to everything that a run needs: device, model, budget, bounds of a batch, roofline."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import NamedTuple

import vmm
from vmm import format_size, round_down

from ..layout import KVLayout
from ..models import model as find_model
from ..serving.driver_calls import DriverCalls
from ..serving.limits import Limits
from ..serving.roofline import Roofline
from ..serving.rules import Serving
from ..spec import ModelSpec
from .options import DEFAULT_GPU_MEMORY, Options

_MOST_BLOCKS = 20_000_000
"""More blocks than this take more memory to count than a laptop has."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """One replay, ready to run; plain data that can go to another process.

    ``driver``, ``device_name`` and ``backing`` say on what, ``memory`` is the GPU's in bytes and ``budget`` what is
    left of it for KV, ``layout`` how the paged policies lay it out. Of several models each has a Setup, with the budget
    of all: the first, and the ``others`` in it.
    """

    options: Options
    model: ModelSpec
    driver: str
    device_name: str
    backing: str
    memory: int
    budget: int
    layout: KVLayout
    limits: Limits
    roofline: Roofline
    serving: Serving
    others: tuple[Setup, ...] = ()

    @property
    def members(self) -> tuple[Setup, ...]:
        """One a model."""
        return (self, *self.others)

    def open_driver(self) -> DriverCalls:
        """The driver, fresh if it is the host's, with its calls counted (and timed if it is real)."""
        if self.driver == "host":
            return DriverCalls(vmm.HostDriver(memory=self.memory, backing=self.backing))
        with vmm.Device(0, driver=self.driver) as device:
            return DriverCalls(device.driver.api, timed=True)


def prepare(options: Options) -> Setup:
    """Look at everything before anything runs. Raises ValueError and vmm's errors, each with the remedy."""
    models = [find_model(name, options.kv_cache_dtype) for name in options.models]
    device = _find_device(options)
    budget = kv_budget(options, sum(model.weight_bytes for model in models), device.memory)
    first, *others = (_setup_of(options, model, device, budget) for model in models)
    setup = dataclasses.replace(first, others=tuple(others))
    _check_budget(setup)
    return setup


class _Found(NamedTuple):
    """The device: the real one if it is asked for or there, else the host's; bytes."""

    driver: str
    name: str
    backing: str
    memory: int
    granularity: int


def _setup_of(options: Options, model: ModelSpec, device: _Found, budget: int) -> Setup:
    """What one model needs."""
    if len(model.groups) > 1:
        raise ValueError(f"{model.name} keeps different KV in {len(model.groups)} groups of layers; replay takes one")
    limits = Limits(
        _max_model_len(options, model), options.max_num_seqs, options.max_num_batched_tokens, options.watermark
    )
    roofline = Roofline(
        model.active_parameters,
        model.weight_bytes,
        model.token_bytes,
        options.flops,
        options.bandwidth,
        options.step_overhead,
    )
    chunk = options.chunk_bytes(device.granularity)
    layout = KVLayout(model.groups[0], options.block_size, options.order, chunk=chunk)
    return Setup(options, model, *device[:4], budget, layout, limits, roofline, options.serving())


def kv_budget(options: Options, weights: int, memory: int) -> int:
    """Bytes left for KV: utilization x memory - weights - activation memory, as vLLM counts them. May be negative."""
    return int(memory * options.gpu_memory_utilization) - weights - options.activation_bytes()


def describe_budget(setup: Setup) -> str:
    """The budget and how it came about."""
    options = setup.options
    weights = sum(member.model.weight_bytes for member in setup.members)
    return (
        f"KV budget {format_size(setup.budget)} = {options.gpu_memory_utilization:g} x {format_size(setup.memory)} "
        f"- {format_size(weights)} weights - {format_size(options.activation_bytes())} activations"
    )


def _max_model_len(options: Options, model: ModelSpec) -> int:
    asked = options.max_model_len
    if asked is not None and asked > model.max_positions:
        raise ValueError(f"max_model_len {asked} is more than the {model.max_positions} positions of {model.name}")
    return model.max_positions if asked is None else asked


def _find_device(options: Options) -> _Found:
    asked = options.gpu_memory_bytes()
    if (options.driver or os.environ.get("VMM_DRIVER")) != "host":
        with vmm.Device(0, driver=options.driver) as device:
            if device.driver.name != "host":
                if options.backing is not None:
                    raise ValueError(f"backing {options.backing!r} is the host driver's; leave it out on driver 'cuda'")
                return _Found("cuda", device.name, device.backing, _real_memory(device, asked), device.granularity)
    backing = options.backing or "none"
    memory = DEFAULT_GPU_MEMORY if asked is None else asked
    with vmm.Device(0, driver=vmm.HostDriver(memory="64 MiB", backing="none")) as device:
        name, granularity = device.name, device.granularity
    if memory < granularity:
        raise ValueError(f"GPU memory {format_size(memory)} is less than the granularity, {format_size(granularity)}")
    return _Found("host", name, backing, round_down(memory, granularity), granularity)


def _real_memory(device: vmm.Device, asked: int | None) -> int:
    """What is free on a real device, or as much of it as is asked for."""
    free = device.memory_info().free
    if asked is not None and asked > free:
        raise ValueError(
            f"GPU memory {format_size(asked)} is more than the {format_size(free)} free on {device.name}; "
            "lower it, leave it out, or use driver 'host'"
        )
    return free if asked is None else asked


def _check_budget(setup: Setup) -> None:
    """Raise ValueError for a budget in which not even one block has a place, or that this machine cannot hold."""
    least = max(max(member.layout.row_bytes, member.layout.block_bytes) for member in setup.members)
    if setup.budget < least * len(setup.members):
        raise ValueError(
            f"{describe_budget(setup)}: less than one block needs ({format_size(least)}); "
            "give more GPU memory or utilization, or a smaller model"
        )
    available = _available_memory()
    if setup.backing == "memory" and setup.budget > available:
        raise ValueError(
            f"{describe_budget(setup)}, but this machine has {format_size(available)} of memory to give; "
            "give less GPU memory, or use backing 'none'"
        )
    blocks = max(member.layout.blocks_in(setup.budget) for member in setup.members)
    if blocks > _MOST_BLOCKS:
        raise ValueError(
            f"{describe_budget(setup)}: {blocks:,} blocks of {setup.options.block_size} tokens are more than the "
            f"{_MOST_BLOCKS:,} that are counted; give less GPU memory or a larger block size"
        )


def _available_memory() -> int:
    """Bytes that the operating system can give without swapping."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
