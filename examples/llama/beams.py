"""Beam search: of all continuations of the best few texts, the best few go on.

Beams that come from one parent share its blocks; a partly filled last block is copied when the first of them writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import numpy as np

from .cache import Cache, Text, step
from .model import Llama
from .sampler import Logits
from .tokenizer import BEGIN, END


@dataclass(frozen=True)
class Found:
    """A text with the sum of the logarithms of its tokens' chances; ``done`` if it ended by itself."""

    tokens: list[int]
    score: float
    done: bool


@dataclass(frozen=True)
class _Beam(Generic[Text]):
    tokens: list[int]
    score: float
    text: Text


def beam_search(
    model: Llama,
    cache: Cache[Text],
    prompt: list[int],
    beams: int,
    most: int,
    ends: frozenset[int] = frozenset({BEGIN, END}),
    after_step: Callable[[], None] = lambda: None,
) -> list[Found]:
    """The ``beams`` best continuations of ``prompt`` by up to ``most`` tokens, the best first.

    A text that ends keeps its score and leaves its beam to another. ``after_step`` is called after each step.
    """
    root = cache.begin(prompt)
    logits = step(model, cache, [root], [prompt[root.length :]])
    alive, ended = _next([_Beam(prompt, 0.0, root)], logits, beams, ends, [])
    for _ in range(most - 1):
        if not alive:
            break
        after_step()
        logits = step(model, cache, [beam.text for beam in alive], [beam.tokens[-1:] for beam in alive])
        alive, ended = _next(alive, logits, beams, ends, ended)
    for beam in alive:
        beam.text.free()
    return _best([*ended, *(Found(beam.tokens, beam.score, False) for beam in alive)], beams)


def _next(
    parents: list[_Beam[Text]], logits: Logits, beams: int, ends: frozenset[int], ended: list[Found]
) -> tuple[list[_Beam[Text]], list[Found]]:
    """The beams of the next step, and the best texts that ended, from the best continuation on until beams are full."""
    scores = np.array([beam.score for beam in parents])[:, None] + log_softmax(logits)
    children: list[tuple[int, int]] = []
    for place in np.argsort(-scores, axis=None, kind="stable").tolist():
        parent, token = divmod(place, scores.shape[1])
        if token not in ends:
            children.append((parent, token))
        else:
            found = Found([*parents[parent].tokens, token], float(scores[parent, token]), True)
            ended = _best([*ended, found], beams)
        if len(children) == beams:
            break
    worst = ended[-1].score if len(ended) == beams else -np.inf
    children = [place for place in children if scores[place] > worst]  # a score only falls
    alive = [_Beam([*parents[p].tokens, t], float(scores[p, t]), parents[p].text.fork()) for p, t in children]
    for beam in parents:
        beam.text.free()
    return alive, ended


def _best(found: list[Found], count: int) -> list[Found]:
    return sorted(found, key=lambda one: -one.score)[:count]


def log_softmax(logits: Logits) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The logarithm of each token's chance, float64."""
    shifted = np.asarray(logits, np.float64) - logits.max(axis=-1, keepdims=True)
    result: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = shifted - np.log(
        np.exp(shifted).sum(axis=-1, keepdims=True)
    )
    return result
