"""python -m vmm demo: reserve, create, map, set access, use, unmap, release, free, with both memories side by side."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from ..address_range import AddressRange
from ..device import Device
from ..driver import Access
from ..errors import StateError
from ..host.os_view import committed_bytes
from ..physical import PhysicalMemory
from ..sizes import format_size, parse_size, round_up
from .options import choose_driver, driver_options, first_line

_CHUNKS = 4


@dataclass(frozen=True, slots=True)
class Step:
    """Both memories after one step, in bytes; ``system`` is the operating system's figure, None where it has none."""

    step: str
    what: str
    reserved: int
    mapped: int
    accessible: int
    physical: int
    driver_free: int
    system: int | None


@click.command()
@driver_options
@click.option("--reserve", default="1 GiB", show_default=True, metavar="SIZE", help="Addresses to reserve.")
@click.option("--size", default="64 MiB", show_default=True, metavar="SIZE", help="Physical memory to map there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(driver: str | None, backing: str | None, memory: str | None, reserve: str, size: str, as_json: bool) -> None:
    """Walk once through the driver's calls; after each, show virtual and physical memory side by side.

    Example: python -m vmm demo --reserve "1 TiB" --size "256 MiB"
    """
    reserved, wanted = parse_size(reserve, name="--reserve"), parse_size(size, name="--size")
    if wanted > reserved:
        raise click.UsageError(f"--size {size} is larger than --reserve {reserve}; reserve more addresses")
    chosen = choose_driver(driver, backing, memory)
    with Device(0, driver=chosen.api) as device:
        head = first_line(chosen)
        steps = []
        if not as_json:
            click.echo(f"{head}\n\n{_HEADER}")
        for step in walk(device, reserved, wanted):
            steps.append(step)
            if not as_json:
                click.echo(_row(step))
    if as_json:
        about = {"schema": 1, "driver": chosen.name, "backing": chosen.backing, "device": device.name}
        click.echo(json.dumps({**about, "steps": [asdict(step) for step in steps]}, indent=2))
    else:
        click.echo(f"\n{_CONCLUSION}")


def walk(device: Device, reserve: int, size: int) -> Iterator[Step]:
    """The eight steps, each done when it is asked for. Leaves nothing behind, also after an error."""
    unit = device.granularity
    count = min(_CHUNKS, -(-size // unit))
    chunk = round_up(-(-size // count), unit)
    with contextlib.ExitStack() as stack:
        state = _State(device)
        yield state.after("start", "nothing yet")
        state.range = stack.enter_context(AddressRange(device, max(reserve, count * chunk)))
        yield state.after("reserve", "addresses only")
        for _ in range(count):
            state.memory.append(stack.enter_context(PhysicalMemory(device, chunk)))
        yield state.after("create", f"{count} handle{'s' * (count > 1)}, without an address")
        mappings = [state.range.map(index * chunk, memory) for index, memory in enumerate(state.memory)]
        yield state.after("map", "joined, still without access")
        state.range.set_access(mappings, Access.READWRITE)
        yield state.after("set access", "reads and writes allowed")
        yield state.after("use", use(device, state.range.base, count * chunk))
        state.range.unmap(mappings)
        yield state.after("unmap", "apart again; handles keep the bytes")
        for memory in state.memory:
            memory.close()
        state.memory.clear()
        yield state.after("release", "physical memory goes back")
        state.range.close()
        state.range = None
        yield state.after("free", "addresses go back")


def use(device: Device, base: int, size: int) -> str:
    """Write to both ends of the mapped bytes, read them back, and say so. StateError if they differ."""
    if device.backing == "none":
        return "backing none: no bytes to touch"
    pattern, found = b"virtual", bytearray(7)
    with device.current():
        for address in (base, base + size - len(pattern)):
            device.driver.copy_in(address, pattern, len(pattern))
            device.driver.copy_out(found, address, len(pattern))
            if bytes(found) != pattern:
                raise StateError(f"wrote {pattern!r} at {address:#x} and read {bytes(found)!r}")
    return "wrote and read both ends"


class _State:
    """What the demo holds, and how it looks from outside."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.range: AddressRange | None = None
        self.memory: list[PhysicalMemory] = []

    def after(self, step: str, what: str) -> Step:
        """Both memories now."""
        mappings = self.range.mappings() if self.range else []
        return Step(
            step,
            what,
            self.range.size if self.range else 0,
            sum(mapping.size for mapping in mappings),
            sum(mapping.size for mapping in mappings if mapping.access is Access.READWRITE),
            sum(memory.size for memory in self.memory),
            self.device.memory_info().free,
            committed_bytes(self.device.driver.api, self.device.ordinal),
        )


_LINE = "{:<10}  {:>9} {:>9} {:>10} | {:>9} {:>9} {:>9}"
_HEADER = _LINE.format("step", "reserved", "mapped", "accessible", "physical", "free", "system")
_CONCLUSION = "Addresses cost nothing until memory is created; memory has no address until it is mapped."


def _row(step: Step) -> str:
    reserved, mapped, accessible, physical = map(
        format_size, (step.reserved, step.mapped, step.accessible, step.physical)
    )
    free = format_size(step.driver_free, aligned=True)
    system = "-" if step.system is None else format_size(step.system)
    return f"{_LINE.format(step.step, reserved, mapped, accessible, physical, free, system)}\n    {step.what}"
