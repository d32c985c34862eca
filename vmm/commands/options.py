"""Options that several commands share, and the driver that they choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..choice import open_driver
from ..driver import Driver
from ..host import HostDriver

Command = TypeVar("Command", bound=Callable[..., Any])


def driver_options(command: Command) -> Command:
    """Add --driver, --backing and --memory."""
    for option in (
        click.option("--memory", metavar="SIZE", help="Physical memory of the host driver, such as '8 GiB'."),
        click.option("--backing", type=click.Choice(["memory", "none"]), help="Where the host driver keeps bytes."),
        click.option("--driver", type=click.Choice(["cuda", "host"]), help="Default: the GPU's where there is one."),
    ):
        command = option(command)
    return command


def choose_driver(driver: str | None, backing: str | None, memory: str | None) -> Driver:
    """The driver that the options name. ``backing`` and ``memory`` are the host driver's only."""
    if driver == "cuda" and (backing or memory):
        raise click.UsageError("--backing and --memory are for --driver host")
    if driver == "host" or backing or memory:
        return open_driver(HostDriver(memory=memory or "8 GiB", backing=backing or "memory"))
    return open_driver(driver)


def first_line(driver: Driver, ordinal: int = 0) -> str:
    """What every run says first: which driver, device and backing it speaks of."""
    number = driver.version()
    version = f"{number // 1000}.{number % 1000 // 10}"
    device = f"device {ordinal} {driver.device_name(ordinal)}"
    return f"driver {driver.name} {version}, {device}, backing {driver.backing}"
