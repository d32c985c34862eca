"""Train the micro model that the tour of tiny_llm.py runs on: sums in words, NumPy alone, some minutes on a CPU.

You will see the loss fall and the share of right answers rise, to sums that the model is never shown. The text is made
here, the tokenizer is learned from it, and the gradient is written out in micro/gradient.py. The seed is fixed, so two
runs on one machine give the same bytes; another library of linear algebra rounds differently, and gives others.
One thread is the fastest for matrices this small: OPENBLAS_NUM_THREADS=1 python examples/train_micro_model.py
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np
from llama.checkpoint import Config, Weights, write_checkpoint
from llama.tokenizer import write_tokenizer
from micro.adam import Adam
from micro.gradient import LAYER_WEIGHTS, loss_and_gradient
from micro.lesson import Lesson, accuracy
from micro.pairs import learn_tokenizer
from micro.sums import all_sums

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, SEQ_LEN = 48, 144, 2, 6, 2, 96
MERGES = 200
ROWS, LENGTH, RATE, OPERAND_SHARE = 8, 96, 3e-3, 0.3
TOLD_EVERY = 500


def begin(config: Config, seed: int) -> Weights:
    """Random matrices, with what is added to the stream of layers small; norms of one."""
    draw = np.random.default_rng(seed)
    weights: Weights = {}
    for name, shape in config.shapes.items():
        if name.startswith("legacy"):
            continue
        scale = 0.3 if name in ("wo", "w2") else 1.0
        spread = scale / np.sqrt(shape[-1]) if name in LAYER_WEIGHTS else 0.02
        weight = np.ones(shape) if name.endswith("norm") else draw.standard_normal(shape) * spread
        weights[name] = weight.astype(np.float32)
    return weights


def legacy(config: Config) -> Weights:
    """The tables that the format has and nobody reads."""
    return {name: np.zeros(shape) for name, shape in config.shapes.items() if name.startswith("legacy")}


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--steps", type=click.IntRange(1), default=10000, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), default=Path(__file__).with_name("micro"))
def main(steps: int, seed: int, folder: Path) -> None:
    """Train, examine, and write the two files."""
    shown = [one for one in all_sums() if not one.held_out]
    held_out = [one for one in all_sums() if one.held_out]
    tokenizer = learn_tokenizer(" ".join(map(str, shown)), MERGES)
    config = Config(DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, len(tokenizer.pieces), SEQ_LEN)
    print(f"{config}\n{len(shown):,} sums to learn from, {len(held_out):,} held out")
    weights, lesson, start = begin(config, seed), Lesson(tokenizer, seed, OPERAND_SHARE), time.perf_counter()
    adam = Adam(weights, RATE, steps)
    for step in range(1, steps + 1):
        loss, gradient = loss_and_gradient(config, weights, *lesson.rows(ROWS, LENGTH))
        adam.step(gradient)
        if step % TOLD_EVERY == 0 or step == steps:
            right = accuracy(config, weights, tokenizer, held_out)
            print(
                f"step {step:5}  loss {loss:.4f}  right {right:6.1%}  {time.perf_counter() - start:6.1f} s", flush=True
            )
    write_checkpoint(folder / "model.bin", config, {**weights, **legacy(config)})
    write_tokenizer(folder / "tokenizer.bin", tokenizer)
    right, known = (accuracy(config, weights, tokenizer, sums) for sums in (held_out, shown[:: len(shown) // 1000]))
    print(f"{config.file_bytes:,} bytes; right answers: {right:.2%} of the held out, {known:.2%} of 1,000 others")


if __name__ == "__main__":
    main()
