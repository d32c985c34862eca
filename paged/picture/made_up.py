"""A made-up moment of a server: prompts that begin alike, forks, a sliding window, requests that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..layout import KVLayout
    from ..pool import KVPool
    from ..prefix.chain_hash import Tokens
    from ..sequence import Sequence

_VOCABULARY = 32_000


def blocks_needed(sequences: int, longest: int, layout: KVLayout) -> int:
    """Blocks that ``make_up`` never exceeds: for the sequences, those that end, copies, and the last request."""
    a_sequence = -(-(longest + 3) // layout.block_size) + 2
    return (sequences + sequences // 4 + 2) * a_sequence + _last_blocks(layout)


def make_up(pool: KVPool, sequences: int, *, longest: int = 160, seed: int = 0) -> list[Sequence]:
    """Fill a new pool that has a prefix cache: ``sequences`` run when it is done, with at most ``longest`` tokens each.

    The same arguments give the same block tables. Every third prompt begins with the same system prompt, every eighth
    sequence is a fork of the one before it, every eleventh has dropped what left its window; a quarter as many have
    ended, and what they computed is cached or was given back. Raises OutOfMemoryError where the pool is too small.
    """
    generator = np.random.default_rng([seed, 2])
    system = generator.integers(0, _VOCABULARY, min(2 * pool.layout.block_size, longest // 2), np.int32)
    lengths = _lengths(generator, sequences + sequences // 4, longest)
    running: list[Sequence] = []
    ended: list[Sequence] = []
    for turn, length in enumerate(lengths):
        of_past = turn % 5 == 4 and len(ended) < sequences // 4
        if not of_past and len(running) == sequences:
            break
        if not of_past and len(running) % 8 == 3:
            running.append(_forked(running[-1], generator))
            continue
        prompt = generator.integers(0, _VOCABULARY, length, np.int32)
        if turn % 3 == 0:
            prompt[: len(system)] = system[:length]
        (ended if of_past else running).append(_served(pool, prompt))
    for place in range(5, sequences, 11):
        running[place].drop_before(running[place].length // 2)
    _end(pool, ended)
    return running


def _served(pool: KVPool, prompt: Tokens) -> Sequence:
    """A sequence with all of its prompt and three tokens more, found by later prompts that begin alike."""
    made = pool.sequence(prompt)
    made.append(prompt[made.length :])
    made.append(3)
    made.publish()
    return made


def _forked(parent: Sequence, generator: np.random.Generator) -> Sequence:
    """A second answer to the parent's prompt; every other one has not gone on yet and shares its last block too."""
    child = parent.fork()
    if generator.random() < 0.5:
        child.append(5)
    return child


def _end(pool: KVPool, ended: list[Sequence]) -> None:
    """Requests end; a long one without known tokens ends last, so that the rows it had alone are given back."""
    last = pool.sequence()
    last.append(_last_blocks(pool.layout) * pool.layout.block_size)
    for sequence in (*ended, last):
        sequence.free()


def _last_blocks(layout: KVLayout) -> int:
    """As many as a row holds, so that some lie in a row of their own."""
    return max(8, layout.chunk // layout.block_stride)


def _lengths(generator: np.random.Generator, count: int, longest: int) -> list[int]:
    """Lengths of prompts from a sixth of the longest on; their logarithms are spread evenly."""
    most = max(2, longest - 8)
    low, high = np.log(max(1, most // 6)), np.log(most)
    lengths: list[int] = np.rint(np.exp(generator.uniform(low, high, count))).astype(int).tolist()
    return lengths
