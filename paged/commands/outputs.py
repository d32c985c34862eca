"""The options of what plan and replay write: one JSON object, to standard output or a file, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..atomic_file import check_writable, write_atomically
from .offered import FILE

FORMATS = ("png", "svg", "pdf")
"""File name endings that a picture can have."""

Command = TypeVar("Command", bound=Callable[..., Any])


def output_options(command: Command) -> Command:
    """Add --json, --json-output and --output."""
    text = "Write a picture: png, svg or pdf."
    for option in (
        click.option("-o", "--output", "--plot", "plot_path", metavar="FILE", type=FILE, help=text),
        click.option("--json-output", "json_path", type=FILE, metavar="FILE", help="Write that object to a file."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object; the text goes to standard error."),
    ):
        command = option(command)
    return command


def check_outputs(
    sources: Iterable[str], json_path: str | None, plot_path: str | None, record_path: str | None = None
) -> None:
    """Find what cannot be written before anything runs."""
    inputs, named = [Path(source) for source in sources], dict[Path, str]()
    for what, name in (("the JSON", json_path), ("the picture", plot_path), ("the recording", record_path)):
        if name is None:
            continue
        path = Path(name)
        check_writable(path, *inputs)
        other = named.setdefault(path.resolve(), what)
        if other != what:
            raise ValueError(f"{path} is named for {other} and for {what}; give each a file of its own")
    if plot_path is not None and Path(plot_path).suffix[1:].lower() not in FORMATS:
        raise ValueError(f"{plot_path}: a picture is written as {', '.join(FORMATS)}; end the name with one of them")


def write_json(text: str, as_json: bool, json_path: str | None) -> None:
    """Write a JSON object where the options want it."""
    if as_json:
        click.echo(text, nl=False)
    if json_path is not None:
        write_atomically(Path(json_path), lambda out: out.write(text.encode()))
