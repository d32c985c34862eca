"""The options of a pool's layout that several commands share, and the layout that they choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

import vmm

from ..layout import KVLayout
from ..models import model as find_model
from .offered import DTYPE, MODEL

Command = TypeVar("Command", bound=Callable[..., Any])


def layout_options(command: Command) -> Command:
    """Add --model, --kv-cache-dtype, --block-size and --chunk."""
    named: dict[str, Any] = {"default": "llama-3-8b", "show_default": True, "shell_complete": MODEL}
    kept: dict[str, Any] = {"default": "auto", "show_default": True, "shell_complete": DTYPE}
    for option in (
        click.option("--chunk", metavar="SIZE", help="One physical allocation; by default the driver's granularity."),
        click.option("--block-size", default=16, show_default=True, help="Tokens a KV block."),
        click.option("--kv-cache-dtype", help="Type of K and V.", **kept),
        click.option("--model", help="A preset, or the path of a config.json.", **named),
    ):
        command = option(command)
    return command


def layout_of(device: vmm.Device, given: dict[str, Any], layout: str = "hnd") -> KVLayout:
    """The layout that the options and --order name, for the model's first group of layers."""
    chunk = device.granularity if given["chunk"] is None else vmm.parse_size(given["chunk"], name="--chunk")
    spec = find_model(given["model"], given["kv_cache_dtype"]).groups[0]
    return KVLayout(spec, given["block_size"], order=given["order"], layout=layout, chunk=chunk)
