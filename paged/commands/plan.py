"""python -m paged plan: what fits on a GPU, and which limit binds, before a server is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

from vmm.commands import terminal

from ..models import UnknownModelError
from ..planner import make_plan, read_options, read_server_line
from ..planner.chart import plot
from ..planner.gpus import GPUS
from ..planner.plan import Plan
from ..planner.table import (
    conclusion,
    introduction,
    layout_legend,
    layout_table,
    memory_legend,
    memory_table,
    sequence_table,
)
from .offered import MODEL
from .outputs import check_outputs, output_options, write_json

_PIPE_WIDTH = 132

_EPILOG = """\b
Examples:
  python -m paged plan --model llama-3-8b --gpu A100-40GB -o plan.png
  python -m paged plan --gpu H100-80GB -- vllm serve meta-llama/Llama-2-7b-hf --max-model-len 4096 --max-num-seqs 128
  python -m paged plan --trace azure_conv_2023.csv --kv-cache-dtype fp8 -- python -m vllm.entrypoints.openai.api_server
      --model path/to/config.json --gpu-memory-utilization 0.90
"""


def _option(flag: str, text: str, **settings: Any) -> Callable[[Any], Any]:
    """An option whose text the planner reads: the same as in a pasted line."""
    return click.option(flag, help=text, **{"metavar": "N", **settings})


class _Plan(click.Command):
    """A command that says what is missing when a line is pasted without the dashes before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does."""
        pasted = "--" not in args and any(arg.rsplit("/", 1)[-1] == "vllm" or arg == "-m" for arg in args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not pasted:
                raise
            raise click.UsageError(f"{error.format_message()} Put -- before a pasted line.") from None


@click.command(cls=_Plan, epilog=_EPILOG)
@click.argument("line", nargs=-1, type=click.UNPROCESSED, metavar="[MODEL | -- vllm serve ...]", shell_complete=MODEL)
@_option("--gpu", f"A name or a size. [H100-80GB] Known: {', '.join(GPUS)}.", metavar="NAME|SIZE")
@_option("--model", "A preset, a Hugging Face name, or the path of a config.json. [llama-3-8b]", metavar="NAME|FILE")
@_option("--trace", "Lengths of requests; by default the published quantiles of azure_conv 2023.", metavar="FILE")
@_option("--gpu-memory-utilization", "Fraction of the GPU to use. [0.9]")
@_option("--max-model-len", "Longest prompt and output together; auto is what fits. [the model's positions]")
@_option("--max-num-seqs", "Most sequences that run at once. [vLLM's for such a GPU]")
@_option("--max-num-batched-tokens", "Most tokens computed in one step. [vLLM's for such a GPU]")
@_option("--block-size", "Tokens a KV block. [16]")
@_option("--kv-cache-dtype", "Type of K and V: auto, float16, bfloat16, float32, fp8. [auto]", metavar="TYPE")
@_option("--dtype", "Type that the model computes in. [auto]", metavar="TYPE")
@_option(
    "--quantization", "How weights are kept: fp8, awq, gptq, bitsandbytes, none. [as in config.json]", metavar="NAME"
)
@_option("--tensor-parallel-size", "GPUs that share each layer. [1]")
@_option("--pipeline-parallel-size", "GPUs that layers are divided among. [1]")
@click.option("--enforce-eager", is_flag=True, default=None, help="No CUDA graphs.")
@_option("--kv-cache-memory-bytes", "The KV pool's bytes, whatever the utilization.")
@_option("--num-gpu-blocks-override", "The KV pool's blocks, whatever the utilization.")
@_option("--cpu-offload-gb", "GiB of weights that lie in host memory.")
@_option("--chunk", "One physical allocation of a growing pool. [2 MiB]", metavar="SIZE")
@_option("--order", "block: contiguous over all layers; layer: a plane a layer. [block]", metavar="NAME")
@output_options
def plan(
    line: tuple[str, ...],
    trace: str | None,
    as_json: bool,
    json_path: str | None,
    plot_path: str | None,
    **given: Any,
) -> None:
    """Count a vLLM server's memory before it is started: what fits, and which limit binds.

    Options are named as vLLM names them; a whole command line can be pasted after --. An option before -- takes the
    place of the line's. The exit status is 1 if the server would not start.
    """
    check_outputs([] if trace is None else [trace], json_path, plot_path)
    found = _make(line, trace, {name: value for name, value in given.items() if value is not None})
    if plot_path is not None:
        plot(found, plot_path)
    write_json(found.json_text(), as_json, json_path)
    _print(terminal.console(sys.stderr if as_json else sys.stdout, _PIPE_WIDTH), found, plot_path)
    if not found.starts:
        raise click.exceptions.Exit(1)


def _make(line: tuple[str, ...], trace: str | None, given: dict[str, str | bool]) -> Plan:
    """The plan of the options, and of the line if one is pasted; what is given beside it goes before it."""
    if not line:
        return make_plan(read_options(given), trace)
    if len(line) == 1 and not any(letter.isspace() for letter in line[0]):
        if "model" in given:
            raise ValueError(f"the model is named twice: {line[0]} and --model {given['model']}; leave one out")
        return make_plan(read_options({"model": line[0], **given}), trace)
    pasted = read_server_line(line)
    if "model" not in pasted.options | given:
        raise ValueError("the pasted line names no model; add one: --model NAME, or the path of a config.json")
    changed = [
        f"--{name.replace('_', '-')} {value} takes the place of the line's {pasted.options[name]}"
        for name, value in given.items()
        if pasted.options.get(name, value) != value
    ]
    options = read_options(pasted.options | given)
    try:
        return make_plan(options, trace, (*pasted.notes, *changed), pasted.ignored)
    except UnknownModelError as error:
        raise ValueError(f"{error}: plan --model path/to/config.json -- {_words(line)}") from None


def _words(line: tuple[str, ...]) -> str:
    """How a pasted line begins."""
    words = " ".join(line).split()
    return " ".join(words[:3]) + (" ..." if len(words) > 3 else "")


def _print(console: Console, found: Plan, plot_path: str | None) -> None:
    for text in introduction(found):
        console.print(text)
    console.print()
    console.print(memory_table(found))
    console.print(memory_legend())
    console.print()
    if not found.holds_nothing:
        console.print(sequence_table(found))
        console.print()
        console.print(layout_table(found))
        console.print(layout_legend(found))
        console.print()
    for text in conclusion(found):
        console.print(text)
    if plot_path is not None:
        console.print(f"The picture is in {plot_path}.")
