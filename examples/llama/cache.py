"""What a model needs of the memory for K and V: sequences that grow, fork and end, and attention over them.

There are two of these: Pagewalk's pool (``paged_cache``) and plain arrays (``contiguous_cache``). Everything above runs
on either, and must give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence as Ids
from typing import Any, Protocol, TypeVar

import numpy as np

from .checkpoint import Array
from .model import Attend, Llama


class Tokens(Protocol):
    """The tokens of one text in a cache."""

    @property
    def length(self) -> int: ...

    def fork(self) -> Any: ...

    def free(self) -> None: ...


Text = TypeVar("Text", bound=Tokens)


class Cache(Protocol[Text]):
    """Keeps K and V of texts."""

    def begin(self, prompt: Ids[int]) -> Text:
        """A text without tokens, or with those of ``prompt`` that the cache knows already."""

    def append(self, texts: Ids[Text], new: Ids[Ids[int]]) -> Attend:
        """Make room for ``new`` token ids of each of ``texts``; what keeps and attends for a step of them."""

    def can_hold(self, lengths: Ids[int]) -> bool:
        """Whether texts of so many tokens fit beside each other."""


def step(model: Llama, cache: Cache[Text], texts: Ids[Text], new: Ids[Ids[int]]) -> Array:
    """Run the model over ``new`` token ids of each text: logits on the host, float32 [B, vocab], of what comes next.

    A new prompt, a part of one, and one more token of a text are all the same to it, and may be mixed.
    """
    counts = [len(ids) for ids in new]
    starts = [text.length for text in texts]
    positions = np.concatenate([np.arange(at, at + count) for at, count in zip(starts, counts, strict=True)])
    attend = cache.append(texts, new)
    tokens, last = np.concatenate(new).astype(np.int64), np.cumsum(counts) - 1
    moved, at, rows = (np.asarray(numbers, like=model.embedding) for numbers in (tokens, positions, last))
    logits = model.forward(moved, at, rows, attend)
    return logits.get() if hasattr(logits, "get") else logits
