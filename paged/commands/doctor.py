"""python -m paged doctor: what a vLLM server's log says of its memory, the cause, and the remedy replayed."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.text import Text

from vmm.commands import terminal

from ..doctor.diagnosis import Settings, diagnose
from ..doctor.log_reader import read_log
from ..doctor.report import Report
from ..doctor.text import sections
from ..doctor.treatment_table import remedy_rows, replay_notes, replay_table
from ..serving.roofline import H100_BANDWIDTH, H100_FLOPS
from .offered import FILE

_PIPE_WIDTH = 120
_EPILOG = """\b
Examples:
  python -m paged doctor server.log
  python -m paged doctor server.log --lengths azure_conv_2023.csv --json > report.json
  docker logs vllm 2>&1 | python -m paged doctor - --model config.json
"""


@click.command(epilog=_EPILOG)
@click.argument("log", type=click.Path())
@click.option(
    "--lengths",
    metavar="FILE",
    type=FILE,
    help="Lengths of requests: a trace, or CSV or JSONL with prompt and output.",
)
@click.option(
    "--model", metavar="NAME|FILE", help="A preset or a config.json, where the log's model is not known here."
)
@click.option("--gpu-memory", metavar="SIZE", help="Memory of one GPU, where the log does not say.")
@click.option("--flops", default=H100_FLOPS, help="Operations a second of one GPU.  [9.89e14, an H100 SXM's]")
@click.option("--bandwidth", default=H100_BANDWIDTH, help="Bytes a second of one GPU.  [3.35e12, an H100 SXM's]")
@click.option("--rate", type=float, help="Requests a second; by default as the log has it.")
@click.option("--keep-times", is_flag=True, help="Let requests arrive at the times of the lengths' file.")
@click.option(
    "--limit", default=2_000, show_default=True, type=click.IntRange(1), help="Take the first so many lengths."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of all that is drawn.")
@click.option("--replay/--no-replay", default=True, help="Try remedies out on the lengths.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(log: str, as_json: bool, **given: Any) -> None:
    """Explain a vLLM server's log: what memory was for, why it ran out, and what the remedy does.

    LOG is the log of a server of versions 0.6 to 0.33; - is standard input. Lines that are not understood are counted
    and shown. What is worked out, not read, is called an estimate.
    """
    settings = Settings(**given)
    report = diagnose(read_log(log), settings, _tell if terminal.is_terminal(sys.stderr) else None)
    if as_json:
        click.echo(report.json_text(), nl=False)
    else:
        _print(report)


def _tell(name: str) -> None:
    """Which replay runs, on a terminal."""
    click.echo(f"replaying: {name}", err=True)


def _print(report: Report) -> None:
    """The sections, the remedies, and their replays."""
    console = terminal.console(sys.stdout, _PIPE_WIDTH)
    for title, rows in sections(report):
        console.print(Text(title, style="bold"))
        console.print(rows)
        console.print()
    if not report.treatments:
        return
    console.print(Text(f"Remedies for {report.findings[0].cause}", style="bold"))
    console.print(remedy_rows(report))
    table = replay_table(report)
    if table is not None:
        console.print()
        console.print(table)
    for note in replay_notes(report):
        console.print(note)
