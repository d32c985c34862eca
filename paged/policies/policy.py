"""What a policy of memory is to the scheduler: a few questions and actions, and what it has in use."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from vmm import Shortage

from ..serving.prompt_tokens import PromptTokens

CAUSES = ("tail", "row", "supply", "prefix", "retiring", "unused")
"""Why committed bytes are not live. Every committed byte is live or has exactly one of these causes:

* tail: room that a sequence holds (its blocks, its buffer, its span) and has no token for;
* row: the rest of a committed row of which some block is held: its free blocks, and what blocks leave over;
* supply: chunks in the supply's cache, mapped nowhere;
* prefix: blocks that only the prefix cache keeps;
* retiring: memory given up whose work may still be running;
* unused: mapped memory in which nothing is held: empty rows kept in reserve, a pool committed beforehand.
"""


class Usage(NamedTuple):
    """Bytes that a policy has reserved and committed, and its committed bytes by what they are for.

    ``held`` is the room of all sequences, live tokens included; the other fields are the causes of the same names.
    ``committed == held + row + supply + prefix + retiring + unused`` always holds.
    """

    reserved: int
    committed: int
    held: int
    row: int = 0
    supply: int = 0
    prefix: int = 0
    retiring: int = 0
    unused: int = 0


class Policy(Protocol):
    """A way to give memory to sequences within ``budget`` bytes of physical memory.

    Requests are named by their number in the workload. The scheduler asks before it acts, and calls only where
    something changes: it does not come back until a sequence has more tokens than the room it was given. A question
    changes nothing. What a kind of policy has no use for it inherits from here.
    """

    budget: int
    copied: int
    """Bytes moved so far: because a sequence outgrew its place, or by compaction."""
    moved: int = 0
    """Blocks that compaction has moved so far."""
    prompts: PromptTokens | None = None
    """What the prefix cache was asked, and what it knew; None without one."""
    shared: int = 0
    """Tokens in memory that the scheduler counts more often than they are there, for sequences share them."""

    def fits(self, tokens: int) -> bool:
        """Whether a sequence that ends with ``tokens`` tokens can always be served when it is alone."""
        ...

    def alone(self) -> bool:
        """Whether nobody else holds memory of the budget, so that what is not to be had now will never be."""
        return True

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        """Whether a new sequence of ``tokens`` tokens has room now, beside ``spare`` bytes that stay free."""
        ...

    def shortage(self, tokens: int, spare: int = 0) -> Shortage | None:
        """Why a new sequence of ``tokens`` tokens has no room now; None where ``can_admit`` says that it has."""
        ...

    def prompt_in_use(self, request: int) -> int:  # noqa: ARG002
        """How many tokens ``recall`` would find in memory that others hold, so that they take no room."""
        return 0

    def recall(self, request: int) -> int:  # noqa: ARG002
        """Begin with the tokens of a prompt that are in memory already, before ``admit``, and return how many."""
        return 0

    def admit(self, request: int, tokens: int, prompt: int) -> int:
        """Start a sequence with ``tokens`` of its ``prompt`` tokens and return its room in tokens."""
        ...

    def can_grow(self, request: int, tokens: int) -> bool:
        """Whether the sequence can have ``tokens`` tokens now."""
        ...

    def grow(self, request: int, tokens: int) -> int:
        """Give the sequence room for ``tokens`` tokens and return its room in tokens."""
        ...

    def finish(self, request: int) -> None:
        """The sequence has ended or was preempted: take its memory back."""
        ...

    def tidy(self) -> None:
        """Before a step, where a sequence has ended or memory retired since the last one: put in order what is left."""
        return

    def settle(self) -> bool:
        """The work queued so far is done: let go of what was retiring, and say whether there was any."""
        return False

    def usage(self) -> Usage:
        """What is in use now."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...
