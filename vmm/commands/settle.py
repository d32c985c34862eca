"""python -m vmm settle: ask the driver what its documentation leaves open, and compare with the host driver's rules."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..settle import QUESTIONS, Answer, examine
from ..settle.examiner import NO_ANSWER
from . import terminal
from .options import choose_driver, first_line


@click.command()
@click.option("--backing", type=click.Choice(["memory", "none"]), help="Where the host driver keeps bytes.")
@click.option("--driver", type=click.Choice(["cuda", "host"]), help="Default: the GPU's where there is one.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON report to a file too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def settle(driver: str | None, backing: str | None, report: Path | None, as_json: bool) -> None:
    """Ask what the documentation leaves open, each question in a process that may end by it.

    The exit status is 1 where a question got no answer, or the host driver does not keep to its own rules.

    Example: python -m vmm settle --driver host
    """
    chosen = choose_driver(driver, backing, None)
    head = first_line(chosen)
    if not as_json:
        click.echo(head)
    start = time.monotonic()
    answers = _ask(chosen.name, backing or "memory")
    about = {"schema": 1, "driver": chosen.name, "version": chosen.version(), "device": chosen.device_name(0)}
    found = {**about, "backing": chosen.backing, "seconds": round(time.monotonic() - start, 1)}
    text = json.dumps({**found, "answers": [asdict(answer) for answer in answers]}, indent=2)
    if report is not None:
        report.write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
    else:
        _show(answers, found)
    silent = [answer for answer in answers if answer.seen.startswith(NO_ANSWER)]
    wrong = [answer for answer in answers if not answer.agrees] if chosen.name == "host" else []
    if silent or wrong:
        listed = ", ".join(answer.key for answer in [*silent, *wrong])
        raise click.ClickException(f"questions without the answer that there must be: {listed}")


def _ask(driver: str, backing: str) -> list[Answer]:
    """All answers; on a terminal with a count of those that are there."""
    answers = []
    console = Console(stderr=True)
    for answer in examine(driver, backing):
        answers.append(answer)
        if console.is_terminal:
            console.print(f"{len(answers)} of {len(QUESTIONS)} questions", end="\r", highlight=False)
    order = [tuple(map(int, answer.key.split("."))) for answer in answers]
    return [answer for _, answer in sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])]


def _show(answers: list[Answer], found: dict[str, Any]) -> None:
    console = terminal.console(sys.stdout, 140)
    table = Table(box=None, pad_edge=False)
    for column in ("", "question", "expected", "seen", "agrees"):
        table.add_column(column, overflow="fold")
    for answer in answers:
        cells = (answer.key, answer.question, answer.expected, answer.seen, "yes" if answer.agrees else "NO")
        table.add_row(*cells, style=None if answer.agrees else "bold")
    console.print(table)
    agreed = sum(answer.agrees for answer in answers)
    console.print(f"{agreed} of {len(answers)} agree, in {found['seconds']} s")
