"""A language model whose attention is Pagewalk's: append, prefill and decode on a pool of KV blocks.

Without arguments you will see a tour on a micro model that speaks of nothing but sums: continuous batching with chunked
prefill, a shared prefix, drawing, beam search with copy-on-write, sleep and wake, and blocks of every size, each beside
the same on plain arrays, which must give the same text. With a checkpoint of llama2.c you will see its text.
"""

from __future__ import annotations

import errno
import math
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import click
from click.core import ParameterSource
from llama.batch import Batch, Request
from llama.beams import beam_search
from llama.sampler import Sampler
from llama.stage import Stage
from micro.tour import tour

import vmm
from kernels_cu import KernelError

MICRO = Path(__file__).with_name("micro") / "model.bin"
MOST = 256
MOST_BEAMS = 64
EXAMPLE = '\b\nExample:  python examples/tiny_llm.py stories260K.bin --prompt "Once upon a time" --temperature 0.8'


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    prompts: tuple[str, ...]
    block_size: int
    order: str
    temperature: float
    top_p: float
    seed: int
    beams: int | None
    tokens: int | None


def write(stage: Stage, wanted: Wanted) -> tuple[list[str], int]:
    """Go on with every prompt, all in one batch: the texts, and how many tokens are new.

    Each draws by itself, with a seed of its own. Raises ValueError for a prompt that leaves no room.
    """
    prompts = [stage.encode(prompt) for prompt in wanted.prompts]
    with stage.pool(wanted.block_size, wanted.order, texts=len(prompts)) as pool:
        batch = Batch(stage.model, stage.cache(pool), size=len(prompts))
        requests = [
            batch.submit(Request(prompt, room(stage, prompt, wanted), sampler(wanted, place)))
            for place, prompt in enumerate(prompts)
        ]
        batch.run()
    new = sum(len(request.tokens) - len(request.prompt) for request in requests)
    return [stage.decode(request.tokens) for request in requests], new


def search(stage: Stage, wanted: Wanted, beams: int) -> tuple[list[str], int]:
    """The best continuation of every prompt that ``beams`` beams find, and how many tokens the beams computed."""
    texts, new = [], 0
    with stage.pool(wanted.block_size, wanted.order, texts=2 * beams) as pool:
        for prompt in map(stage.encode, wanted.prompts):
            found = beam_search(stage.model, stage.cache(pool), prompt, beams, room(stage, prompt, wanted))
            texts.append(stage.decode(found[0].tokens))
            new += beams * (len(found[0].tokens) - len(prompt))
    return texts, new


def room(stage: Stage, prompt: list[int], wanted: Wanted) -> int:
    """How many new tokens a prompt may have: what was asked for, else 256 or what the model has left."""
    left = max(stage.config.seq_len - len(prompt), 0)
    if left < (wanted.tokens or 1):
        remedy = f"give --tokens {left} at most" if left else "shorten it"
        raise ValueError(
            f"a prompt of {len(prompt)} tokens leaves {left} of the model's {stage.config.seq_len}; {remedy}"
        )
    return wanted.tokens or min(MOST, left)


def sampler(wanted: Wanted, place: int) -> Sampler:
    """How the tokens of one prompt are chosen."""
    return Sampler(wanted.temperature, wanted.top_p, wanted.seed + place)


def run(checkpoint: Path | None, tokenizer: Path | None, wanted: Wanted, *, all_of_it: bool) -> bool:
    """Open a device and do what is wanted; the text goes to standard output, the figures to standard error."""
    with vmm.Device(0) as device:
        stage = Stage(device, checkpoint or MICRO, tokenizer)
        if all_of_it:
            print(f"{__doc__}\n{device}\n{stage.config}")
            return tour(stage)
        write(stage, replace(wanted, prompts=("",), tokens=1))  # loads the kernels: compiled the first time, not timed
        wall, process = time.perf_counter(), time.process_time()
        texts, new = search(stage, wanted, wanted.beams) if wanted.beams else write(stage, wanted)
        wall, process = time.perf_counter() - wall, time.process_time() - process
        print("\n\n".join(texts))
        print(
            f"{device}: {new} tokens in {wall:.2f} s, {new / wall:.0f} a second ({new / process:.0f} of process time)",
            file=sys.stderr,
        )
    return True


def finite(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """The value of an option; a range lets NaN through."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number to draw with.")
    return value


@click.command(help=(__doc__ or "").partition("\n")[0], epilog=EXAMPLE)
@click.argument("checkpoint", required=False, type=click.Path(path_type=Path))
@click.option("--tokenizer", type=click.Path(path_type=Path), help="Beside the checkpoint if not given.")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    help='Several run as one batch; without one the model begins. The micro model knows "seven plus forty-seven is".',
)
@click.option("--block-size", type=click.IntRange(1, 256), default=16, show_default=True)
@click.option("--order", type=click.Choice(("block", "layer")), default="block", show_default=True)
@click.option("--greedy", is_flag=True, help="Always the likeliest token; the default.")
@click.option("--temperature", type=click.FloatRange(0, min_open=True), callback=finite, help="Draw tokens instead.")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    callback=finite,
    help="From the likeliest of this chance in all.",
)
@click.option("--seed", type=click.IntRange(0), help="The same seed gives the same text.")
@click.option("--beams", type=click.IntRange(1, MOST_BEAMS), help="Beam search, so wide.")
@click.option("--tokens", type=click.IntRange(1), help=f"New tokens at most; {MOST} if not given.")
@click.pass_context
def main(
    context: click.Context,
    checkpoint: Path | None,
    tokenizer: Path | None,
    prompts: tuple[str, ...],
    block_size: int,
    order: str,
    greedy: bool,
    temperature: float | None,
    top_p: float | None,
    seed: int | None,
    beams: int | None,
    tokens: int | None,
) -> None:
    """Read the command line."""
    if temperature is None and not (top_p is seed is None):
        raise click.UsageError("--top-p and --seed are for drawing; give --temperature too")
    if sum(map(bool, (greedy, temperature, beams))) > 1:
        raise click.UsageError("--greedy, --temperature and --beams are three ways to go on; give one of them")
    nothing_given = all(context.get_parameter_source(name) is ParameterSource.DEFAULT for name in context.params)
    drawing = (temperature or 0.0, top_p or 1.0, seed or 0)
    wanted = Wanted(prompts or ("",), block_size, order, *drawing, beams, tokens)
    try:
        right = run(checkpoint, tokenizer, wanted, all_of_it=nothing_given)
        print(end="", flush=True)  # a full disk shows here, not when Python ends
    except OSError as error:
        if error.filename is not None:
            sys.exit(f"error: {error.filename}: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what could not be written is not tried again
        sys.exit(1 if error.errno == errno.EPIPE else f"error: {error.strerror}")  # a closed pipe has seen enough
    except (ValueError, vmm.VmmError, KernelError) as error:
        sys.exit(f"error: {error}")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
