"""The tokenizer of llama2.c: text to token ids and back, by merging the best pair of neighbours again and again.

The file is an int32 (the longest token in bytes), then for each token a float32 score, an int32 length, and its bytes.
Token 1 begins a text and token 2 ends it; token b + 3 is the byte b, for characters that are no token.
"""

from __future__ import annotations

import heapq
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

BEGIN, END = 1, 2
FIRST_BYTE = 3
_GONE = -1
_TOKEN = struct.Struct("<fi")
_COUNT = struct.Struct("<i")


@dataclass(frozen=True)
class Tokenizer:
    """``pieces``: the bytes of each token; ``scores``: the pair of the highest merges first."""

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """The id of each piece; the first of two alike."""
        return {piece: token for token, piece in reversed(list(enumerate(self.pieces)))}

    def encode(self, text: str) -> list[int]:
        """The token that begins a text, then the text's: characters first, then merged while any two neighbours can be.

        A text begins with a space of its own, as words inside it do.
        """
        tokens = [token for character in (f" {text}" if text else "") for token in self._character(character)]
        return [BEGIN, *self._merge(tokens)]

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become the replacement character."""
        raw = b"".join(self._bytes(token) for token in tokens if token not in (BEGIN, END))
        text = raw.decode("utf-8", "replace")
        return text.removeprefix(" ") if tokens[:1] == [BEGIN] else text

    def _character(self, character: str) -> list[int]:
        """A character's own token, or those of its bytes."""
        raw = character.encode("utf-8", "surrogatepass")
        return [self.ids[raw]] if raw in self.ids else [byte + FIRST_BYTE for byte in raw]

    def _merge(self, tokens: list[int]) -> list[int]:
        """Merge the pair of the highest score, of two alike the first, until no two neighbours can be.

        Pairs wait in a heap, and each token knows its neighbours; a pair one of which has merged otherwise is skipped.
        """
        before, behind = list(range(-1, len(tokens) - 1)), list(range(1, len(tokens) + 1))
        waiting: list[tuple[float, int, int, int, int]] = []

        def offer(a: int, b: int) -> None:
            if a >= 0 and b < len(tokens):
                merged = self.ids.get(self.pieces[tokens[a]] + self.pieces[tokens[b]])
                if merged is not None:
                    heapq.heappush(waiting, (-self.scores[merged], a, tokens[a], tokens[b], merged))

        for place in range(1, len(tokens)):
            offer(place - 1, place)
        while waiting:
            _score, a, first, second, merged = heapq.heappop(waiting)
            b = behind[a]
            if tokens[a] != first or b == len(tokens) or tokens[b] != second:
                continue
            tokens[a], tokens[b], behind[a] = merged, _GONE, behind[b]
            if behind[a] < len(tokens):
                before[behind[a]] = a
            offer(before[a], a)
            offer(a, behind[a])
        return [token for token in tokens if token != _GONE]

    def _bytes(self, token: int) -> bytes:
        is_byte = FIRST_BYTE <= token < FIRST_BYTE + 256
        return bytes([token - FIRST_BYTE]) if is_byte else self.pieces[token]


def read_tokenizer(path: Path, vocab: int) -> Tokenizer:
    """The tokenizer of a model of ``vocab`` tokens. Raises ValueError that says what is wrong with the file."""
    raw, at = path.read_bytes(), _COUNT.size
    pieces, scores = [], []
    for token in range(vocab):
        if at + _TOKEN.size > len(raw):
            raise ValueError(f"{path} ends after {token} tokens; the model has {vocab}")
        score, length = _TOKEN.unpack_from(raw, at)
        at += _TOKEN.size
        if not 0 <= length <= len(raw) - at:
            raise ValueError(f"{path} is no tokenizer of llama2.c: token {token} has a length of {length} bytes")
        pieces.append(raw[at : at + length])
        scores.append(score)
        at += length
    if at != len(raw):
        raise ValueError(f"{path} has {len(raw) - at} bytes more than the {vocab} tokens of the model; it is another's")
    if vocab < FIRST_BYTE + 256:
        raise ValueError(f"{path} has {vocab} tokens; {FIRST_BYTE + 256} are needed for the bytes alone")
    return Tokenizer(tuple(pieces), tuple(scores))


def write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Write a file that ``read_tokenizer`` reads."""
    tokens = zip(tokenizer.scores, tokenizer.pieces, strict=True)
    body = b"".join(_TOKEN.pack(score, len(piece)) + piece for score, piece in tokens)
    path.write_bytes(_COUNT.pack(max(map(len, tokenizer.pieces))) + body)
