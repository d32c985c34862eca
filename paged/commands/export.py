"""python -m paged export: a recording in the forms that people already open."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import click

from ..atomic_file import check_writable
from ..export import FORMATS
from ..export import export as write_export
from ..export.formats import writer_of
from ..export.metrics import LOCALHOST, registry_of, serve, values_of
from ..recording import Recording

STDOUT = "-"
_EPILOG = """\b
Examples:
  python -m paged export run.pagewalk --to chrome -o run.json.gz
  python -m paged export run.pagewalk --to snapshot -o run.pickle
  python -m paged export run.pagewalk --to prometheus --serve 9400
"""


@click.command(epilog=_EPILOG)
@click.argument("recording", type=click.Path())
@click.option("--to", "form", required=True, type=click.Choice(list(FORMATS)), help="Which form.")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(), help="Where to; .gz is compressed; - is standard output."
)
@click.option("--serve", "port", type=click.IntRange(0, 65535), help="Answer scrapes on localhost instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object about what was written.")
def export(recording: str, form: str, output: str | None, port: int | None, as_json: bool) -> None:
    """Write a recording for another tool.

    chrome: trace events for ui.perfetto.dev and chrome://tracing. snapshot: the pickle that PyTorch's memory viewer
    opens. prometheus: metrics, as text or on localhost. csv: one line an event.
    """
    if (output is None) == (port is None) or (port is not None and form != "prometheus"):
        raise click.UsageError("give -o FILE; --serve PORT takes its place for --to prometheus")
    if output == STDOUT and as_json:
        raise click.UsageError("-o - and --json are both for standard output; name a file")
    if output == STDOUT:
        _print(Recording.load(recording), form)
        return
    if output is not None:
        check_writable(Path(output), Path(recording))
    found = Recording.load(recording)
    if output is None:
        _serve(found, port or 0)
        return
    write_export(found, form, output)
    size = Path(output).stat().st_size
    if as_json:
        click.echo(json.dumps({"schema": 1, "to": form, "file": output, "bytes": size, "events": len(found)}))
    else:
        click.echo(f"{output}: {FORMATS[form]}; {len(found):,} events, {size:,} bytes")


def _print(recording: Recording, form: str) -> None:
    """Write to standard output, and nothing else there."""
    if sys.stdout is None:
        raise click.UsageError("standard output is closed; name a file")
    whole = io.BytesIO()  # so that no writer needs to know of a pipe that is closed
    writer_of(form)(recording, whole)
    click.echo(whole.getvalue(), nl=False)


def _serve(recording: Recording, port: int) -> None:
    """Answer until the user stops it."""
    registry = registry_of(recording.about["range"], lambda: values_of(recording))
    server, port = serve(registry, port)
    click.echo(f"http://{LOCALHOST}:{port}/metrics until it is stopped")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        server.shutdown()
