"""Sequence: the tokens of one request in a pool. It grows by tokens, takes blocks as it needs them, and can fork."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING, Any

from vmm import After, ClosedError, RangeError, StateError, handles_of
from vmm.finishing import Finishing

from .block_table import Slots, slots_of
from .chain_hash import Tokens
from .known_tokens import KnownTokens, as_ids

if TYPE_CHECKING:
    from .pool import KVPool


class Sequence:
    """A block table and a length in tokens. Made by ``KVPool.sequence`` and ``Sequence.fork``.

    ``table`` holds the block ids in the order of the tokens; only the last block may be partly filled.
    """

    __slots__ = ("_known", "_losses", "_open", "length", "pool", "table")

    def __init__(self, pool: KVPool) -> None:
        self.pool = pool
        self.table: list[int] = []
        self.length = 0
        self._open = True
        self._losses = pool.range.losses
        self._known: KnownTokens | None = None

    def begin(self, table: list[int], known: KnownTokens) -> None:
        """Start with the blocks of a prefix; ``KVPool.sequence`` does it."""
        self.table, self._known = table, known
        self.length = len(table) * self.pool.layout.block_size

    def __repr__(self) -> str:
        return f"Sequence({self.length} tokens, blocks {self.table})" if self._open else "Sequence(freed)"

    def can_append(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens can be had now."""
        tokens = _count(tokens)
        self._check_open()
        return self.pool.can_allocate(self._new_blocks(tokens) + self._tail_is_shared(tokens))

    def append(self, tokens: int | Ids[int] | Tokens) -> Slots:
        """Make room for more tokens, by their number or their ids, and return their slots, int64 [tokens].

        With a prefix cache, blocks whose tokens are known by their ids (the prompt's are) can be found by later prompts
        as soon as the sequence goes on or ends, or after ``publish``: their bytes must be queued to be written by then.
        A partly filled last block that another sequence shares is copied first, on the default stream, so that the
        other's bytes stay. Raises OutOfMemoryError when the pool has not enough blocks; nothing has changed then.
        """
        ids = as_ids(tokens)
        tokens = _count(tokens if ids is None else len(ids))
        self._check_open()
        self.pool.check_usable()
        self._check_defined()
        self.publish()
        needed = self._new_blocks(tokens)
        if self._tail_is_shared(tokens):
            self._append_to_a_copy(needed)
        elif needed:
            self.table += self.pool.allocate(needed)
        start = self.length
        if ids is not None and self._known:
            self._known.put(start, ids, self.pool.layout.block_size)
        self.length += tokens
        self.pool.tokens += tokens
        return slots_of(self.table, start, self.length, self.pool.layout.block_size)

    def fork(self) -> Sequence:
        """A second sequence with the same tokens: it shares every block, the partly filled one too."""
        self._check_open()
        self.pool.check_usable()
        self.pool.fork(self.table)
        child = self.pool.sequence()
        child.table, child.length, child._losses = list(self.table), self.length, self._losses
        child._known = self._known and self._known.copy()
        return child

    def publish(self) -> None:
        """Let later prompts find the whole blocks of this sequence whose token ids are known."""
        if self._known and self.pool.prefix and not self.lost:
            self.pool.forget_lost()
            self.pool.prefix.publish(self._known, self.table, self.length)

    @property
    def lost(self) -> bool:
        """Whether the bytes of its tokens are undefined, because the pool slept without a backup."""
        return bool(self.length) and self._losses != self.pool.range.losses

    def free(self, *, after: After = None) -> None:
        """Give up every block; those that nobody else holds go back to the pool. Freeing twice does nothing.

        ``after`` is the work that may still use them, as in ``KVPool.free``.
        """
        if not self._open:
            return
        handles_of(after)  # raises for what is neither a stream nor an event, before anything changes
        self.publish()
        gone = self._tokens_held_alone()
        with Finishing() as rest:
            rest.run(self.pool.free, self.table, after=after)
            self.pool.tokens -= gone
            self.pool.forget(self)
            self.end()

    def check_in(self, pool: KVPool) -> None:
        """Raise ClosedError if the sequence was freed, ValueError if it is another pool's.

        StateError if the pool sleeps, or slept without a backup since the sequence was made.
        """
        self._check_open()
        if self.pool is not pool:
            raise ValueError(f"a sequence of {self.pool.range.name!r} was given to {pool.range.name!r}, another pool")
        pool.check_usable()
        self._check_defined()

    def end(self) -> None:
        """Forget the blocks without giving them back: ``KVPool.close`` has taken the memory of all."""
        self._open, self.table, self.length = False, [], 0

    # -- steps --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._open:
            raise ClosedError("the sequence was freed, or its pool closed; make a new one with pool.sequence()")

    def _check_defined(self) -> None:
        if self.lost:
            raise StateError(
                f"the bytes of {self} were lost when {self.pool.range.name!r} slept without a backup; "
                "free it and compute it again"
            )
        self._losses = self.pool.range.losses

    def _new_blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` more tokens need."""
        return -(-(self.length + tokens) // self.pool.layout.block_size) - len(self.table)

    def _tail_length(self) -> int:
        """Tokens in the last block if it is partly filled, else 0."""
        return self.length % self.pool.layout.block_size

    def _tail_is_shared(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens would write into a block that somebody else holds too."""
        if not self.pool.block_pool.shared or not tokens or not self._tail_length():
            return False
        return self.pool.count(self.table[-1]) > 1

    def _append_to_a_copy(self, needed: int) -> None:
        """Exchange the shared last block for a copy of it, and take ``needed`` blocks besides."""
        shared = self.table[-1]
        with contextlib.ExitStack() as undo:
            new = self.pool.allocate(needed + 1)
            undo.callback(self.pool.free, new)
            self.pool.copy_block(shared, new[0])
            undo.pop_all()
        self.table[-1:] = new
        self.pool.free([shared])
        self.pool.tokens += self._tail_length()

    def _tokens_held_alone(self) -> int:
        """Tokens that no longer exist once this sequence is gone."""
        if not self.pool.block_pool.shared:
            return self.length
        size = self.pool.layout.block_size
        alone = [place for place, block in enumerate(self.table) if self.pool.count(block) == 1]
        return sum(min(size, self.length - place * size) for place in alone)


def _count(tokens: Any) -> int:
    """A number of tokens as Python's int: NumPy's small ones overflow when they are multiplied by bytes."""
    count = operator.index(tokens)
    if count < 0:
        raise RangeError(f"cannot append {count} tokens; append 0 or more")
    return count
