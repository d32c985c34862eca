"""What the model is trained on and examined in: sums as rows of tokens."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llama.checkpoint import Array, Config, Weights
from llama.tokenizer import BEGIN, END, Tokenizer

from .gradient import logits_of
from .sums import Sum, all_sums


class Lesson:
    """Texts of sums, one after the other, drawn from those that are not held out; ``seed`` says which.

    ``operand_share`` is how much a token of a question counts, where one of an answer counts 1: which numbers are
    added is chance, and nothing can be learned of it.
    """

    def __init__(self, tokenizer: Tokenizer, seed: int, operand_share: float) -> None:
        self._draw, ids_of = random.Random(seed), word_by_word(tokenizer)
        shown = [one for one in all_sums() if not one.held_out]
        self._ids = [ids_of(str(one)) for one in shown]
        answers = [len(ids_of(one.question)) for one in shown]
        self._shares = [
            [operand_share] * start + [1.0] * (len(ids) - start) for start, ids in zip(answers, self._ids, strict=True)
        ]

    def rows(self, count: int, length: int) -> tuple[Array, Array]:
        """Tokens int64 [count, length + 1], and how much each but the first counts, float32 [count, length]."""
        ids, shares = zip(*(self._row(length) for _ in range(count)), strict=True)
        weights = np.array(shares, np.float32)
        return np.array(ids), weights / weights.sum()

    def _row(self, length: int) -> tuple[list[int], list[float]]:
        ids, shares = [BEGIN], list[float]()
        while len(ids) <= length:
            place = int(self._draw.random() * len(self._ids))
            ids += self._ids[place]
            shares += self._shares[place]
        return ids[: length + 1], shares[:length]


def word_by_word(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    """Encodes a text without the token that begins it, each word once: none merges with the next one's space."""
    known = cache(tokenizer.encode)
    return lambda text: [token for word in text.split(" ") for token in known(word)[1:]]


def accuracy(config: Config, weights: Weights, tokenizer: Tokenizer, sums: list[Sum]) -> float:
    """The share of sums whose whole answer, full stop included, is what the model finds likeliest."""
    ids_of = word_by_word(tokenizer)
    rows = [[BEGIN, *ids_of(str(one))] for one in sums]
    starts = [1 + len(ids_of(one.question)) for one in sums]
    length = max(map(len, rows))
    ids = np.array([row + [END] * (length - len(row)) for row in rows])
    places = np.arange(1, length)
    starts_at, ends_at = np.array(starts)[:, None], np.array([len(row) for row in rows])[:, None]
    in_answer = (places >= starts_at) & (places < ends_at)
    found: Any = logits_of(config, weights, ids[:, :-1]).argmax(axis=-1)
    return float(((found == ids[:, 1:]) | ~in_answer).all(axis=1).mean())
