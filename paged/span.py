"""Span: the addresses of one sequence that has no block table. It grows by tokens from its first address on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmm import After, Shortage

from .whole_number import more_tokens

if TYPE_CHECKING:
    from .contiguous import ContiguousKV


class Span:
    """The addresses of one sequence, ``length`` tokens of them in use. Made by ``ContiguousKV.open``."""

    __slots__ = ("index", "kv", "length")

    def __init__(self, kv: ContiguousKV, index: int) -> None:
        self.kv, self.index, self.length = kv, index, 0

    def __repr__(self) -> str:
        return f"Span({self.index}, {self.length} tokens)" if self.index >= 0 else "Span(closed)"

    @property
    def room(self) -> int:
        """Tokens that the committed part of the span has room for."""
        return self.kv.layout.room(self.length)

    def can_append(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens can be had now. Raises RangeError for a negative number."""
        longer = self.length + more_tokens(tokens)
        return longer <= self.kv.max_length and self.kv.can_commit(self.kv.steps(longer) - self.kv.steps(self.length))

    def shortage(self, tokens: int) -> Shortage | None:
        """Why ``tokens`` more tokens are not to be had, in tokens; None where they are. See ``vmm.Shortage``."""
        return self.kv.shortage(tokens, self)

    def append(self, tokens: int) -> None:
        """Make room for ``tokens`` more tokens, committing chunks in every plane where they are needed.

        Raises RangeError beyond ``max_length``, OutOfMemoryError beyond the budget or the device's memory; nothing has
        changed then, and the error's ``report`` is the shortage.
        """
        self.kv.grow(self, tokens)

    def close(self, *, after: After = None) -> None:
        """Give all memory of the span back; the addresses go to the next sequence. Closing twice does nothing.

        The memory goes when the work ``after`` is done (by default all of the device's; see
        ``GrowableRange.decommit``); nothing waits for it.
        """
        if self.index >= 0:
            self.kv.retire(self, after)
