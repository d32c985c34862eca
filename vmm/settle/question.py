"""Question and Answer: what is asked of a driver, what the host driver would say, what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bench import Bench

Probe = Callable[["Bench"], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """``key`` is the number of its group and its own, such as "5.2". ``probe`` gives what is seen as text.

    ``expected`` is what the host driver does, and ``accepts`` says what else agrees with it.
    """

    key: str
    text: str
    expected: str
    probe: Probe
    accepts: Callable[[str], bool] | None = None

    def answer(self, seen: str) -> Answer:
        """The answer that ``seen`` is."""
        agrees = seen == self.expected or (self.accepts is not None and self.accepts(seen))
        return Answer(self.key, self.text, self.expected, seen, agrees)


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of the report."""

    key: str
    question: str
    expected: str
    seen: str
    agrees: bool


class Group:
    """The questions of one group, numbered in the order in which they are asked."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.questions: list[Question] = []

    def ask(self, text: str, expected: str, probe: Probe, accepts: Callable[[str], bool] | None = None) -> None:
        """Add a question."""
        key = f"{self.number}.{len(self.questions) + 1}"
        self.questions.append(Question(key, text, expected, probe, accepts))
