"""python -m paged walk: one token through both page tables, or one decode step in five."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click
from rich.console import Console
from rich.text import Text

import vmm
from vmm.commands.options import choose_driver, driver_options, first_line

from ..explain import explain
from ..explain_text import explanation_json, explanation_lines
from ..layout import LAYOUTS, ORDERS, KVLayout
from ..pool import KVPool
from ..walk import walk as walk_token
from ..walk_step import decode_step
from ..walk_text import describe_layout, walk_json, walk_lines
from .layout_options import layout_of, layout_options

_EXAMPLE_TABLE = [7, 42, 9, 103]
_MOST_BLOCKS = 1_000_000
_EPILOG = """\b
Examples:
  python -m paged walk --table 7,42,9,103 --token 37 --block-size 16
  python -m paged walk --order layer --layer 31 --head 5
  python -m paged walk --step --token 48
  python -m paged walk --table 7,42,9,103 --address +0x1208500
"""


def _table(_context: click.Context, _option: click.Parameter, text: str | None) -> list[int] | None:
    """Block ids with commas between."""
    if text is None:
        return None
    try:
        table = [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of block ids; write for example 7,42,9,103") from None
    wrong = next((block for block in table if not 0 <= block < _MOST_BLOCKS), None)
    if wrong is not None:
        raise click.BadParameter(f"block id {wrong} must be 0 to {_MOST_BLOCKS - 1}")
    return table


def _address(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[bool, int] | None:
    """An address, or with a + a number of bytes from the pool's base: (whether from the base, bytes)."""
    if text is None:
        return None
    try:
        return text.startswith("+"), int(text.removeprefix("+"), 0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no address; write for example +0x1208500 (from the base)") from None


@click.command(epilog=_EPILOG)
@click.option("--table", callback=_table, metavar="IDS", help="Block table of the sequence.  [7,42,9,103]")
@click.option("--token", default=37, show_default=True, type=click.IntRange(0), help="Number of the token.")
@layout_options
@click.option("--layer", default=0, show_default=True, help="Which layer's K and V.")
@click.option("--head", default=0, show_default=True, help="Which KV head's.")
@click.option("--order", default="block", show_default=True, type=click.Choice(ORDERS), help="Planes of the pool.")
@click.option("--layout", default="hnd", show_default=True, type=click.Choice(LAYOUTS), help="Inside a block.")
@click.option(
    "--address", callback=_address, metavar="ADDRESS", help="Go up from an address, or +BYTES from the pool's base."
)
@click.option("--step", is_flag=True, help="Show one decode step, that of --token, from a budget down.")
@click.option("--budget", default="256 MiB", show_default=True, metavar="SIZE", help="Of the pool of --step.")
@driver_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def walk(
    table: list[int] | None,
    token: int,
    layer: int,
    head: int,
    address: tuple[bool, int] | None,
    step: bool,
    budget: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Follow one token from its number in the sequence to physical memory.

    The block table says which block and slot, the layout which address, the driver which chunk and handle, and on the
    host driver the operating system which part of which file. The pool is real; the model's weights are not needed.
    With --address the other way: which row, block, sequence and token lie there, and who holds them.
    """
    if step and address is not None:
        raise click.UsageError("--step goes down from a token; leave --address out")
    if step and table is not None:
        raise click.UsageError("--step lets the pool choose the blocks; leave --table out")
    chosen = choose_driver(given["driver"], given["backing"], given["memory"])
    with vmm.Device(0, driver=chosen.api) as device:
        layout = layout_of(device, given, given["layout"])
        show = _Output(as_json, first_line(chosen), device, given["model"], layout)
        if step:
            with KVPool(device, layout, budget=budget) as pool:
                steps = list(decode_step(pool, token, layer=layer, head=head))
            show.json({"steps": [dataclasses.asdict(found) for found in steps]})
            show.text(*(line for number, found in enumerate(steps, 1) for line in ("", *found.text(number))))
            return
        ids = _EXAMPLE_TABLE if table is None else table
        with KVPool(device, layout, blocks=max(ids) + 1) as pool:
            pool.claim(ids)
            if address is not None:
                _explain(show, pool, ids, address)
                return
            found = walk_token(pool, ids, token, layer=layer, head=head)
        show.json(walk_json(found, ids))
        show.text("", describe_layout(layout), "", *walk_lines(found, ids, layout))


def _explain(show: _Output, pool: KVPool, ids: list[int], address: tuple[bool, int]) -> None:
    """Show what lies at an address of a pool in which one sequence has the blocks ``ids``, all of them full."""
    from_base, number = address
    pool.sequence().begin(ids, None, len(ids) * pool.layout.block_size)
    try:
        found = explain(pool, pool.range.base + number if from_base else number)
    except vmm.RangeError as error:
        error.add("the base is another in each run: give +BYTES, what walk prints as byte, such as +0x1208500")
        raise
    show.json(explanation_json(found))
    show.text("", describe_layout(pool.layout), "", *explanation_lines(found))


class _Output:
    """Text, or one JSON object; either says first which driver, device and backing it speaks of."""

    def __init__(self, as_json: bool, first: str, device: vmm.Device, model: str, layout: KVLayout) -> None:
        self.as_json, self.first = as_json, first
        self.head = {
            "schema": 1,
            "driver": device.driver.name,
            "device": device.name,
            "backing": device.backing,
            "model": model,
            "block_size": layout.block_size,
            "order": layout.order,
            "layout": layout.layout,
            "chunk": layout.chunk,
        }

    def json(self, values: dict[str, Any]) -> None:
        """Print the object, if it is asked for."""
        if self.as_json:
            click.echo(json.dumps(self.head | values, indent=2))

    def text(self, *lines: str) -> None:
        """Print the lines, if no JSON is asked for: titles bold on a terminal."""
        if not self.as_json:
            console = Console(highlight=False, soft_wrap=True)
            for line in (self.first, *lines):
                console.print(Text(line, style="" if line.startswith(" ") else "bold"))
