"""PromptTokens: token ids that stand for those of a trace's prompts, which it does not tell.

A trace names each block of HASH_BLOCK tokens by an id, equal only where all tokens up to its end are equal. So all
tokens of a block can be its id, numbered from 0: two prompts then begin alike as far as they really do, and the prefix
cache, which compares tokens, finds what it would find in the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..prefix.chain_hash import Tokens
from .workload import HASH_BLOCK


class PromptTokens:
    """Called with a request's number it returns int32 [prompt]; ``asked`` and ``hit`` count HASH_BLOCKs of prompts.

    ``lengths`` are the prompts' tokens, ``hash_ids`` the ids of each.
    """

    def __init__(self, lengths: Sequence[int], hash_ids: Sequence[Sequence[int]]) -> None:
        self._lengths, self._hash_ids = lengths, hash_ids
        self._numbers: dict[int, int] = {}
        self._seen: set[int] = set()
        self.asked = self.hit = self.asked_tokens = self.hit_tokens = 0

    def __call__(self, request: int) -> Tokens:
        """The stand-ins of one prompt."""
        numbers = self._numbers
        found = [numbers.setdefault(name, len(numbers)) for name in self._hash_ids[request]]
        return np.repeat(np.array(found, np.int32), HASH_BLOCK)[: self._lengths[request]]

    def note(self, request: int, known: int) -> None:
        """Count the ``known`` tokens of a prompt that were found; once a request, however often it begins again."""
        if request not in self._seen:
            self._seen.add(request)
            self.asked += len(self._hash_ids[request])
            self.hit += known // HASH_BLOCK
            self.asked_tokens += self._lengths[request]
            self.hit_tokens += known
