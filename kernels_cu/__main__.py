"""python -m kernels_cu: what the compiler made of the kernels."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import track

from .catalogue import Built
from .constants import constants_for
from .errors import KernelError
from .launch_shape import MOST_THREADS
from .memory_report import CASES, ORDERS, PLACES, memory_report
from .nvrtc import nvrtc_version
from .paged_kv import ELEMENT_BYTES, LAYOUTS
from .report import ARCHS, KERNELS, report
from .report_table import print_memory, print_report

_DONE, _FAILED = 0, 1
EXAMPLE = (
    "\b\nExamples:\n  python -m kernels_cu report --dtype float16 --head-dim 128 --arch sm_90"
    "\n  python -m kernels_cu report --memory --kernel paged_decode"
    "\n  python -m kernels_cu report --kernel scale.cu -D WIDTH=4 --threads 128"
)


class _KernelName(click.Choice[str]):
    """One of the package's kernels, or the path of a .cu file."""

    name = "kernel"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if str(value).endswith(".cu"):
            return str(value)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"{error.message} A kernel of your own is a file that ends in .cu.", param, ctx)


def _constants(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> dict[str, int | str]:
    """The -D of a command line; without a value 1, as a compiler has it."""
    return {name: value or "1" for name, _, value in (one.partition("=") for one in given)}


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="pagewalk", prog_name="pagewalk")
@click.pass_context
def main(context: click.Context) -> None:
    """Kernels in plain CUDA C for a paged KV cache.

    Example: python -m kernels_cu report --arch sm_90
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        raise click.UsageError("name a command: report")


@main.command("report", epilog=EXAMPLE, short_help="What each kernel needs of a GPU, and of memory.")
@click.option("--dtype", type=click.Choice(list(ELEMENT_BYTES)), default="bfloat16", show_default=True)
@click.option("--head-dim", type=click.IntRange(8, 256), default=128, show_default=True, help="A multiple of 8.")
@click.option("--layout", type=click.Choice(LAYOUTS), default="hnd", show_default=True)
@click.option("--arch", "archs", multiple=True, default=ARCHS, show_default=True, help="May be given again.")
@click.option(
    "--kernel", "kernels", multiple=True, type=_KernelName(KERNELS), default=KERNELS, help="All if none; or FILE.cu."
)
@click.option(
    "-D", "constants", metavar="NAME=VALUE", multiple=True, callback=_constants, help="For FILE.cu, as at a launch."
)
@click.option(
    "--threads", type=click.IntRange(1, MOST_THREADS), default=256, show_default=True, help="FILE.cu: a block's."
)
@click.option("--memory", is_flag=True, help="Run them on the CPU and count what their requests to the cache cost.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report_command(
    dtype: str,
    head_dim: int,
    layout: str,
    archs: tuple[str, ...],
    kernels: tuple[str, ...],
    constants: dict[str, int | str],
    threads: int,
    memory: bool,
    as_json: bool,
) -> None:
    """Registers, spills, shared memory, thread blocks a multiprocessor and main loop of each kernel, from its cubin."""
    if head_dim % 8:
        raise click.BadParameter(f"{head_dim} is not a multiple of 8", param_hint="--head-dim")
    if memory:
        _memory(dtype, head_dim, kernels, as_json)
    else:
        own = Built({**constants_for(dtype, head_dim, layout), **constants}, threads)
        _cubins(dtype, head_dim, layout, archs, kernels, own, as_json)


def _cubins(
    dtype: str, head_dim: int, layout: str, archs: Sequence[str], kernels: Sequence[str], own: Built, as_json: bool
) -> None:
    version = nvrtc_version()
    sources = [Path(kernel) if kernel.endswith(".cu") else kernel for kernel in kernels]
    found = list(_shown(report(dtype, head_dim, layout, archs, sources, own), len(archs) * len(kernels)))
    if not found:
        raise click.UsageError(f"{' and '.join(kernels)}: not made for {dtype}, head_dim {head_dim}, layout {layout}")
    if as_json:
        print(json.dumps({"schema": 1, "nvrtc": version, "kernels": [row.row() for row in found]}, indent=2))
    else:
        print(f"NVRTC {version}, {dtype}, head_dim {head_dim}, {layout}; figures of the cubins, no device used")
        print_report(found)


def _memory(dtype: str, head_dim: int, kernels: Sequence[str], as_json: bool) -> None:
    measured = [kernel for kernel in kernels if kernel in CASES]
    steps = _shown(memory_report(dtype, head_dim, measured), len(measured) * len(LAYOUTS) * len(ORDERS) * len(PLACES))
    found = [row for rows in steps for row in rows]
    if not found:
        raise click.UsageError(f"--memory has no {' and no '.join(kernels)} of {dtype}, head_dim {head_dim}")
    if as_json:
        print(json.dumps({"schema": 1, "memory": [asdict(row) for row in found]}, indent=2))
    else:
        print(f"{dtype}, head_dim {head_dim}; requests to the cache, counted on the CPU:")
        print_memory(found)


T = TypeVar("T")


def _shown(work: Iterable[T], steps: int) -> Iterable[T]:
    """The same, with a bar on a terminal while it comes."""
    console = Console(stderr=True)
    return track(work, "compiling", total=steps, console=console, transient=True, disable=not console.is_terminal)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 failed, 2 bad usage. Every error is one line."""
    try:
        main.main(arguments, prog_name="python -m kernels_cu", standalone_mode=False)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", _FAILED)
    except (KernelError, OSError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__, _FAILED)
    return _DONE


def _fail(message: str, status: int) -> int:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    return status


if __name__ == "__main__":
    sys.exit(run())
