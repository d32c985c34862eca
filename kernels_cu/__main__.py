"""python -m kernels_cu: what the compiler made of the kernels."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import track

from .errors import KernelError
from .nvrtc import nvrtc_version
from .paged_kv import ELEMENT_BYTES, LAYOUTS
from .report import ARCHS, KERNELS, report
from .report_table import print_report

EXAMPLE = "\b\nExample:\n  python -m kernels_cu report --dtype float16 --head-dim 128 --arch sm_90"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pagewalk", prog_name="pagewalk")
def main() -> None:
    """Kernels in plain CUDA C for a paged KV cache.

    Example: python -m kernels_cu report --arch sm_90
    """


@main.command("report", epilog=EXAMPLE)
@click.option("--dtype", type=click.Choice(list(ELEMENT_BYTES)), default="bfloat16", show_default=True)
@click.option("--head-dim", type=click.IntRange(8, 256), default=128, show_default=True, help="A multiple of 8.")
@click.option("--layout", type=click.Choice(LAYOUTS), default="hnd", show_default=True)
@click.option("--arch", "archs", multiple=True, default=ARCHS, show_default=True, help="May be given again.")
@click.option("--kernel", "kernels", multiple=True, type=click.Choice(KERNELS), default=KERNELS, help="All if none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report_command(
    dtype: str, head_dim: int, layout: str, archs: tuple[str, ...], kernels: tuple[str, ...], as_json: bool
) -> None:
    """Registers, spills, shared memory, thread blocks a multiprocessor and main loop of each kernel, from its cubin."""
    if head_dim % 8:
        raise click.BadParameter(f"{head_dim} is not a multiple of 8", param_hint="--head-dim")
    try:
        version = nvrtc_version()
        found = list(_shown(report(dtype, head_dim, layout, archs, kernels), len(archs) * len(kernels)))
    except KernelError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    if as_json:
        print(json.dumps({"schema": 1, "nvrtc": version, "kernels": [row.row() for row in found]}, indent=2))
    else:
        print(f"NVRTC {version}, {dtype}, head_dim {head_dim}, {layout}; figures of the cubins, no device used")
        print_report(found)


T = TypeVar("T")


def _shown(work: Iterable[T], steps: int) -> Iterable[T]:
    """The same, with a bar on a terminal while it comes."""
    console = Console(stderr=True)
    return track(work, "compiling", total=steps, console=console, transient=True, disable=not console.is_terminal)


if __name__ == "__main__":
    main(prog_name="python -m kernels_cu")
