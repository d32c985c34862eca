"""python -m vmm info: the driver, its devices, and what they support."""

from __future__ import annotations

import json
from typing import Any

import click

from ..driver import VMM_SUPPORTED, Driver
from ..errors import DriverError
from ..sizes import format_size
from .gpu_facts import gsp_firmware, mig_mode
from .options import choose_driver, driver_options, first_line

_HANDLE_TYPES = {"posix_file_descriptor": 103, "win32": 104, "win32_kmt": 105, "fabric": 128}
_FEATURES = {"compression": 107, "gpu_direct_rdma": 110, "multicast": 132, "host_memory": 145, "host_numa_memory": 141}
_PCI_BUS, _PCI_DEVICE, _PCI_DOMAIN = 33, 34, 50


@click.command()
@driver_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(driver: str | None, backing: str | None, memory: str | None, as_json: bool) -> None:
    """Show the driver, its devices, granularities and capabilities.

    Example: python -m vmm info --driver host
    """
    chosen = choose_driver(driver, backing, memory)
    devices = [describe_device(chosen, ordinal) for ordinal in range(chosen.device_count())]
    if as_json:
        head = {"schema": 1, "driver": chosen.name, "version": chosen.version(), "backing": chosen.backing}
        click.echo(json.dumps({**head, "devices": devices}, indent=2))
        return
    click.echo(first_line(chosen))
    for ordinal, facts in enumerate(devices):
        click.echo(f"device {ordinal}")
        for key, value in facts.items():
            click.echo(f"  {key.removesuffix('_bytes').replace('_', ' '):26} {_shown(key, value)}")


def describe_device(driver: Driver, ordinal: int) -> dict[str, Any]:
    """Everything that is known about a device, sizes in bytes."""
    context = driver.context_retain(ordinal)
    try:
        with driver.context(context):
            free, total = driver.memory_info()
    finally:
        driver.context_release(ordinal)
    name = driver.device_name(ordinal)
    supported = bool(_attribute(driver, ordinal, VMM_SUPPORTED))
    return {
        "name": name,
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        "virtual_memory_management": supported,
        "granularity_minimum_bytes": driver.granularity(ordinal) if supported else None,
        "granularity_recommended_bytes": driver.granularity(ordinal, recommended=True) if supported else None,
        "handle_types": [kind for kind, number in _HANDLE_TYPES.items() if _attribute(driver, ordinal, number)],
        "features": [feature for feature, number in _FEATURES.items() if _attribute(driver, ordinal, number)],
        "peer_access": _peers(driver, ordinal),
        **_hardware(driver, ordinal, name),
    }


def _peers(driver: Driver, ordinal: int) -> list[int]:
    """The devices whose memory this one can reach."""
    others = (peer for peer in range(driver.device_count()) if peer != ordinal)
    return [peer for peer in others if driver.can_access_peer(ordinal, peer)]


def _hardware(driver: Driver, ordinal: int, name: str) -> dict[str, str]:
    """MIG mode and GSP firmware, where there is a GPU."""
    if driver.name != "cuda":
        return {}
    domain, bus, slot = (_attribute(driver, ordinal, number) for number in (_PCI_DOMAIN, _PCI_BUS, _PCI_DEVICE))
    address = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
    return {"mig_mode": mig_mode(name, address), "gsp_firmware": gsp_firmware(address)}


def _attribute(driver: Driver, ordinal: int, number: int) -> int:
    """An attribute, or 0 where the driver is too old to know it."""
    try:
        return driver.device_attribute(ordinal, number)
    except (DriverError, ValueError):
        return 0


def _shown(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return format_size(value) if key.endswith("_bytes") else str(value)
