"""The group of commands. A command's file is imported when it is called, and every error is one line and a status."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any, NoReturn

import click

import vmm
from kernels_cu import KernelError

_DONE, _FAILED, _BAD_USAGE = 0, 1, 2
_COMMANDS = ("replay", "walk", "picture", "plan", "doctor", "view", "export")


class Commands(click.Group):
    """Commands by the names of their files in this folder."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order in which they are shown."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's file."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__package__}.{cmd_name}"), cmd_name)
        return command

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run, and exit with 0 done, 1 failed or 2 bad usage."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_rest: click.echo(f"warning: {message}", err=True)
            try:
                status = super().main(*args, **{**settings, "standalone_mode": False})
            except click.ClickException as error:
                status = _fail(error.format_message(), error.exit_code)
            except click.Abort:
                status = _fail("stopped", _FAILED)
            except (ValueError, vmm.DriverMissingError) as error:  # an option's value, by the one who reads it
                status = _fail(str(error), _BAD_USAGE)
            except (vmm.VmmError, KernelError, MemoryError, OSError) as error:
                status = _fail(str(error) or type(error).__name__, _FAILED)
        sys.exit(status if isinstance(status, int) else _DONE)


def _fail(message: str, status: int) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return status


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="pagewalk", prog_name="pagewalk")
@click.pass_context
def main(context: click.Context) -> None:
    """Tokens, KV blocks and the memory behind them.

    Example: python -m paged replay --plot growth.png
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
