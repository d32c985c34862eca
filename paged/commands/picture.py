"""python -m paged picture: both page tables of a pool at one moment, as text, PNG or SVG."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import vmm
from vmm.choice import open_driver
from vmm.commands.options import choose_driver, driver_options, first_line

from ..atomic_file import check_writable
from ..layout import ORDERS
from ..picture import Picture, draw, picture_of, show
from ..picture.draw import check_ending
from ..picture.made_up import blocks_needed, make_up
from ..picture.picture_json import picture_json
from ..pool import KVPool
from .layout_options import layout_of, layout_options
from .offered import FILE

_MOST_SEQUENCES = 100_000
_MEMORY = "64 TiB"
"""Of the host driver without bytes: a made-up moment is never too large for it."""

_EPILOG = """\b
Examples:
  python -m paged picture
  python -m paged picture --sequences 200 --order block -o pool.png
  python -m paged picture --sequences 10000 -o pool.svg
  python -m paged picture --trace azure_conv_2023.csv --at 600 -o pool.png
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--sequences", default=10, show_default=True, type=click.IntRange(0, _MOST_SEQUENCES), help="So many run."
)
@click.option(
    "--longest", default=160, show_default=True, type=click.IntRange(1, 100_000), help="Tokens of the longest."
)
@click.option("--trace", metavar="FILE", type=FILE, help="Replay a request trace instead, as paged-vmm serves it.")
@click.option(
    "--at", "at_s", type=click.FloatRange(0), help="Seconds of the replay; without --trace one is made.  [60]"
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of all that is drawn.")
@layout_options
@click.option(
    "--order",
    default="layer",
    type=click.Choice(ORDERS),
    help="Planes of the pool.  [layer: several blocks share a chunk, which is the more to see; elsewhere it is block]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    help="Write the picture, as .png or .svg, and do not print it.",
)
@driver_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def picture(
    context: click.Context,
    /,
    sequences: int,
    longest: int,
    trace: str | None,
    at_s: float | None,
    output: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show both page tables of a pool: chunks of the virtual range above, block tables of the sequences below.

    The moment is made up: prompts that begin alike, forks, a sliding window, requests that have ended; or it is one of
    a replay (--trace, --at). A sequence has the same colour and letter in both tables. Up to some twenty sequences
    every block is shown with its id, then every block without, then bands of sequences. paged.picture shows a pool of
    your own program.
    """
    if output is not None:
        check_ending(Path(output))
        check_writable(Path(output), *([Path(trace)] if trace is not None else []))
    if trace is None and at_s is None:
        shown = _made_up(sequences, longest, given)
    else:
        _refuse(context, "sequences", "longest")
        shown = _replayed(trace, 60.0 if at_s is None else at_s, given)
    found = shown.picture
    if output is not None:
        draw(found, output)
    if as_json:
        click.echo(json.dumps({"schema": 1, **shown.head, "model": given["model"], **picture_json(found)}, indent=2))
        return
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    for line in shown.lines:
        console.print(line, markup=False)
    if output is None:
        console.print()
        show(found)
    else:
        console.print(f"The picture of {len(found.tables):,} sequences is in {output}.", markup=False)


@dataclass(frozen=True)
class _Shown:
    """A picture, the lines that say of what, and the same as values."""

    picture: Picture
    lines: tuple[str, ...]
    head: dict[str, Any]


def _refuse(context: click.Context, *names: str) -> None:
    """Raise UsageError for options that make a moment up, where a replay is asked for."""
    for name in names:
        if context.get_parameter_source(name) != click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} makes a moment up; leave it out with --trace and --at")


def _made_up(sequences: int, longest: int, given: dict[str, Any]) -> _Shown:
    with _device(given) as (device, first), _pool(device, given, sequences, longest) as pool:
        make_up(pool, sequences, longest=longest, seed=given["seed"])
        head = {"driver": device.driver.name, "device": device.name, "backing": device.backing}
        return _Shown(picture_of(pool), (first,), head)


def _replayed(trace: str | None, at_s: float, given: dict[str, Any]) -> _Shown:
    from ..picture.replayed import replayed
    from ..replay.options import Options

    named = {name: given[name] for name in ("model", "kv_cache_dtype", "block_size", "order", "chunk", "seed")}
    options = Options(**named, driver=given["driver"], backing=given["backing"], gpu_memory=given["memory"])
    moment = replayed(trace, options, at_s)
    first = f"driver {moment.driver}, device {moment.device}, backing {moment.backing}"
    head: dict[str, Any] = {"driver": moment.driver, "device": moment.device, "backing": moment.backing}
    head |= {"trace": moment.workload, "at_s": moment.at_s, "waiting": moment.waiting}
    return _Shown(moment.picture, (first, str(moment)), head)


@contextlib.contextmanager
def _device(given: dict[str, Any]) -> Iterator[tuple[vmm.Device, str]]:
    """The device that the options name, and its first line. No bytes are needed, and on the host driver work waits.

    So what the last request gives back is still retiring in the picture.
    """
    chosen = choose_driver(given["driver"], given["backing"], given["memory"])
    if chosen.name == "host":
        memory, backing = given["memory"] or _MEMORY, given["backing"] or "none"
        chosen = open_driver(vmm.HostDriver(memory=memory, backing=backing, streams="deferred"))
    with vmm.Device(0, driver=chosen.api) as device:
        yield device, first_line(chosen)


@contextlib.contextmanager
def _pool(device: vmm.Device, given: dict[str, Any], sequences: int, longest: int) -> Iterator[KVPool]:
    """A pool with addresses for twice the blocks that are needed."""
    layout = layout_of(device, given)
    blocks = 2 * blocks_needed(sequences, longest, layout)
    with KVPool(device, layout, blocks=blocks, prefix_cache=True, name="kv") as pool:
        yield pool
