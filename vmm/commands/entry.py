"""The group of commands, and the one place that turns errors into one line and an exit status."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import click

from ..errors import AlignmentError, DriverMissingError, RangeError, SizeError, VmmError
from .demo import demo
from .info import info
from .settle import settle

_DONE, _FAILED, _BAD_USAGE = 0, 1, 2
_BAD_VALUES = (AlignmentError, DriverMissingError, RangeError, SizeError)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="pagewalk", prog_name="pagewalk")
@click.pass_context
def main(context: click.Context) -> None:
    """The CUDA driver's layer of memory: addresses, physical memory, and the mappings that join them.

    Example: python -m vmm demo
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


main.add_command(info)
main.add_command(demo)
main.add_command(settle)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 failed, 2 bad usage."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_rest: click.echo(f"warning: {message}", err=True)
        try:
            main.main(arguments, prog_name="python -m vmm", standalone_mode=False)
        except click.ClickException as error:
            return _fail(error.format_message(), error.exit_code)
        except click.Abort:
            return _fail("stopped", _FAILED)
        except _BAD_VALUES as error:  # an option's value, by the one who reads it
            return _fail(str(error), _BAD_USAGE)
        except (VmmError, OSError) as error:
            return _fail(str(error), _FAILED)
    return _DONE


def _fail(message: str, status: int) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return status
