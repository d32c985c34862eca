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


def check_outputs(sources: Iterable[str], json_path: str | None, plot_path: str | None) -> None:
    """Find what cannot be written before anything runs."""
    paths = [Path(path) for path in (json_path, plot_path) if path is not None]
    for path in paths:
        check_writable(path, *map(Path, sources))
    if len(paths) == 2 and paths[0].resolve() == paths[1].resolve():
        raise ValueError(f"{paths[0]} is named for the JSON and for the picture; give each a file of its own")
    if plot_path is not None and Path(plot_path).suffix[1:].lower() not in FORMATS:
        raise ValueError(f"{plot_path}: a picture is written as {', '.join(FORMATS)}; end the name with one of them")


def write_json(text: str, as_json: bool, json_path: str | None) -> None:
    """Write a JSON object where the options want it."""
    if as_json:
        click.echo(text, nl=False)
    if json_path is not None:
        write_atomically(Path(json_path), lambda out: out.write(text.encode()))
