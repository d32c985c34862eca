"""Learn a tokenizer from text: the pair of neighbours that is met most often becomes a token, again and again.

This is byte pair encoding (Sennrich and others 2016, arXiv 1508.07909). A pair never reaches over the beginning of a
word or of a hyphen's second half, so " forty" and "-two" become tokens of their own and "forty-two" does not.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

from llama.tokenizer import Tokenizer

SPECIAL = (b"<unk>", b"\n<s>\n", b"\n</s>\n")


def learn_tokenizer(text: str, merges: int) -> Tokenizer:
    """A tokenizer with the bytes, the characters of ``text``, and at most ``merges`` merged pairs."""
    words = Counter(tuple(word) for word in re.findall(r"[ -][a-z]+|[^a-z]", f" {text}"))
    learned: list[str] = []
    while len(learned) < merges and (pairs := _pairs(words)):
        best = max(pairs, key=lambda pair: (pairs[pair], pair))  # a tie is broken by spelling, the same everywhere
        learned.append("".join(best))
        words = Counter({_merged(word, best): count for word, count in words.items()})
    plain = [f"<0x{byte:02X}>".encode() for byte in range(256)]
    merged = [piece.encode() for piece in [*learned, *sorted(set(f" {text}"))]]
    scores = [0.0] * (len(SPECIAL) + len(plain)) + [-float(rank) for rank in range(len(merged))]
    return Tokenizer((*SPECIAL, *plain, *merged), tuple(scores))


def _pairs(words: Counter[tuple[str, ...]]) -> Counter[tuple[str, str]]:
    """How often each two neighbours stand side by side."""
    pairs: Counter[tuple[str, str]] = Counter()
    for word, count in words.items():
        for pair in itertools.pairwise(word):
            pairs[pair] += count
    return pairs


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """A word with every such pair made one."""
    pieces: list[str] = []
    for piece in word:
        if pieces and (pieces[-1], piece) == pair:
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return tuple(pieces)
