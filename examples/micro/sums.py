"""Sums in words, which is all that the micro model speaks of: the text it learns, and who is right about it.

One sum in ten is held out: no text that is made for training has it, so a right answer to it was not learned by heart.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

SMALL = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
SMALL += [f"{stem}teen" for stem in ("thir", "four", "fif", "six", "seven", "eigh", "nine")]
TENS = [f"{stem}ty" for stem in ("twen", "thir", "for", "fif", "six", "seven", "eigh", "nine")]
MOST = 99
"""The largest number that is added to another."""
HELD_OUT = 10
"""One sum in so many is held out."""


class Sum(NamedTuple):
    """``left`` plus ``right``, or ``left`` minus ``right`` where that is not below zero."""

    left: int
    sign: str
    right: int

    @property
    def question(self) -> str:
        """Such as "twelve plus seven is"."""
        return f"{words(self.left)} {self.sign} {words(self.right)} is"

    @property
    def answer(self) -> str:
        """Such as "nineteen"."""
        return words(self.left + self.right if self.sign == "plus" else self.left - self.right)

    def __str__(self) -> str:
        return f"{self.question} {self.answer}."

    @property
    def held_out(self) -> bool:
        """Whether it is kept from the model. A checksum decides, so that it is the same everywhere."""
        return zlib.crc32(f"{self.left} {self.sign} {self.right}".encode()) % HELD_OUT == 0


def words(number: int) -> str:
    """A number of 0 to 999 in words."""
    if number >= 100:
        rest = f" {words(number % 100)}" if number % 100 else ""
        return f"{SMALL[number // 100]} hundred{rest}"
    if number < len(SMALL):
        return SMALL[number]
    units = f"-{SMALL[number % 10]}" if number % 10 else ""
    return TENS[number // 10 - 2] + units


def all_sums() -> list[Sum]:
    """Every sum there is."""
    numbers = range(MOST + 1)
    plus = [Sum(left, "plus", right) for left in numbers for right in numbers]
    return plus + [Sum(left, "minus", right) for left in numbers for right in range(left + 1)]


def right_in(text: str) -> tuple[int, int]:
    """How many of the whole sentences of a text are true sums, and how many sentences there are."""
    true = {str(one) for one in all_sums()}
    sentences = [f"{sentence.strip()}." for sentence in text.split(".")[:-1]]
    return sum(sentence in true for sentence in sentences), len(sentences)
