"""python -m paged view: a recording as one page of HTML."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vmm import format_size

from ..atomic_file import check_writable
from ..page import write_page
from ..page.write import MOST_MOMENTS
from ..recording import Recording

_EPILOG = """\b
Examples:
  python -m paged view run.pagewalk -o view.html
  python -m paged view run.pagewalk --from 120 --until 125 -o five_seconds.html
"""


@click.command(epilog=_EPILOG)
@click.argument("recording", type=click.Path())
@click.option("-o", "--output", metavar="FILE", required=True, type=click.Path(), help="Where the page goes.")
@click.option("--from", "start", type=float, metavar="SECONDS", help="Show only what is after this.")
@click.option("--until", "stop", type=float, metavar="SECONDS", help="And before this; a short part is shown in full.")
@click.option(
    "--moments", default=MOST_MOMENTS, show_default=True, type=click.IntRange(2, 20_000), help="Most moments to show."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object about the page.")
def view(recording: str, output: str, start: float | None, stop: float | None, moments: int, as_json: bool) -> None:
    """Make one HTML page of a recording: both page tables at any moment, without a network.

    A slider goes through time; a token leads to its block, its chunk and its address, and a chunk back to who is in it.
    The page opens at the moment at which most is committed.
    """
    check_writable(Path(output), Path(recording))
    found = write_page(Recording.load(recording), output, most=moments, start_s=start, stop_s=stop)
    if as_json:
        click.echo(json.dumps({"schema": 1, "file": output, **found}))
        return
    click.echo(
        f"{output}: {found['moments']:,} moments of {found['events']:,} events, {format_size(found['bytes'])}; "
        "open it in a browser"
    )
