"""Sequence: the tokens of one request in a pool. It grows by tokens, takes blocks as it needs them, and can fork."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING, Any

import numpy as np

from vmm import After, ClosedError, RangeError, StateError, Stream, handles_of
from vmm.finishing import Finishing
from vmm.uninterrupted import uninterrupted

from .prefix.chain_hash import Tokens
from .prefix.known_tokens import KnownTokens, as_ids
from .tables.batched_table import Numbers
from .tables.block_table import Slots, Tables, slots_of
from .whole_number import whole_number

if TYPE_CHECKING:
    from .pool import KVPool


class Sequence:
    """A block table and a length in tokens: a view of one row of the pool's ``table``.

    Made by ``KVPool.sequence`` and ``Sequence.fork``. Only the last block may be partly filled.
    """

    __slots__ = ("_known", "_table", "_turn", "pool", "row")

    def __init__(self, pool: KVPool) -> None:
        self.pool, self._table = pool, pool.table
        self.row = pool.table.open(pool.range.losses)
        self._turn = pool.table.turn(self.row)
        self._known: KnownTokens | None = None

    def begin(self, blocks: Ids[int] | Numbers | Tables, known: KnownTokens | None, length: int) -> None:
        """Start with blocks that are held for it already; ``KVPool.sequence`` and ``fork`` do it."""
        self._table.put(self.row, 0, blocks)
        self._table.lengths[self.row] = length
        self._known = known

    def __repr__(self) -> str:
        return f"Sequence({self.length} tokens, blocks {self.table})" if self.is_open else "Sequence(freed)"

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it was neither freed nor ended with its pool."""
        return self._table.turn(self.row) == self._turn

    @property
    def length(self) -> int:
        """Tokens, those that were dropped included; 0 once it was freed."""
        return self._table.length(self.row) if self.is_open else 0

    @property
    def table(self) -> list[int]:
        """The block ids in the order of the tokens, -1 where a block was dropped; a copy."""
        return self._table.table(self.row) if self.is_open else []

    @property
    def held(self) -> list[int]:
        """The block ids that it holds: ``table`` without what was dropped."""
        return self._table.held(self.row) if self.is_open else []

    @property
    def dropped(self) -> int:
        """Tokens at the beginning whose blocks were given up by ``drop_before``."""
        return int(self._table.dropped[self.row]) * self.pool.layout.block_size if self.is_open else 0

    @property
    def lost(self) -> bool:
        """Whether the bytes of its tokens are undefined, because the pool slept without a backup."""
        losses = self.pool.range.losses
        return bool(losses and self.length and self._table.epochs[self.row] != losses)

    def can_append(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens can be had now."""
        tokens = _count(tokens)
        self._check_open()
        return self.pool.can_allocate(self._new_blocks(tokens) + self._tail_is_shared(tokens))

    # -- changes ------------------------------------------------------------------------------------------------

    @uninterrupted
    def append(self, tokens: int | Ids[int] | Tokens, *, stream: Stream = 0) -> Slots:
        """Make room for more tokens, by their number or their ids, and return their slots, int64 [tokens].

        With a prefix cache, blocks whose tokens are known by their ids (the prompt's are) can be found by later prompts
        as soon as the sequence goes on or ends, or after ``publish``: their bytes must be queued to be written by then.
        A partly filled last block that another sequence shares is copied first, on ``stream``, so that the other's
        bytes stay. Raises OutOfMemoryError when the pool has not enough blocks; nothing has changed then.
        """
        ids = as_ids(tokens)
        tokens = _count(tokens if ids is None else len(ids))
        self.check_in(self.pool)
        self.publish()
        start, size = self.length, self._table.block_size
        used = -(-start // size)
        needed = -(-(start + tokens) // size) - used
        self._make_room(used + needed, tokens)
        if start % size and self._tail_is_shared(tokens):
            self._append_to_a_copy(needed, stream)
        elif needed:
            self._table.put(self.row, used, self.pool.allocate_array(needed))
        if ids is not None and self._known:
            self._known.put(start, ids, self.pool.layout.block_size)
        self._table.lengthen(self.row, tokens)
        self.pool.tokens += tokens
        return slots_of(self._table.blocks[self.row], start, start + tokens, self.pool.layout.block_size)

    @uninterrupted
    def fork(self) -> Sequence:
        """A second sequence with the same tokens: it shares every block, the partly filled one too."""
        self._check_open()
        self.pool.check_usable()
        self._learn()
        self.pool.fork(self.held)
        child = self.pool.sequence()
        child.begin(
            self._table.blocks[self.row, : self._table.used(self.row)], self._known and self._known.copy(), self.length
        )
        for of_row in (self._table.dropped, self._table.epochs):
            of_row[child.row] = of_row[self.row]
        return child

    def publish(self) -> None:
        """Let later prompts find the whole blocks of this sequence whose token ids are known."""
        self._learn()
        known = self._known
        if not known or not self.pool.prefix:
            return
        length = self.length
        if min(length, known.count) // self._table.block_size > known.stored and not self.lost:
            self.pool.forget_lost()
            self.pool.prefix.publish(known, self._table.blocks[self.row], length)

    @uninterrupted
    def drop_before(self, token: int, *, after: After = None) -> int:
        """Give up the whole blocks before ``token``, which no layer of the pool will look at again; how many.

        What a sliding window does: with a window of W tokens and n tokens, those before n - W. Places and lengths stay
        as they were; attention over the sequence must have a window from now on. ``after`` as in ``KVPool.free``.
        Raises RangeError for a token that is not there yet.
        """
        self._check_open()
        token = whole_number("token", token)
        if not 0 <= token <= self.length:
            raise RangeError(f"token {token} cannot be dropped up to; the sequence has {self.length}")
        handles_of(after)
        self.publish()
        dropped, size = int(self._table.dropped[self.row]), self.pool.layout.block_size
        blocks = token // size
        if blocks <= dropped:
            return 0
        leaving = self.table[dropped:blocks]
        gone = size * (sum(self.pool.count(block) == 1 for block in leaving))
        if self._known and self._known.stored <= blocks:
            self._known = None  # the next block of the chain would have none before it
        with Finishing() as rest:
            rest.run(self.pool.free, leaving, after=after)
            self._table.drop(self.row, blocks)
            self.pool.tokens -= gone
        return len(leaving)

    @uninterrupted
    def free(self, *, after: After = None) -> None:
        """Give up every block; those that nobody else holds go back to the pool. Freeing twice does nothing.

        ``after`` is the work that may still use them, as in ``KVPool.free``.
        """
        if not self.is_open:
            return
        handles_of(after)  # raises for what is neither a stream nor an event, before anything changes
        self.publish()
        gone = self._tokens_held_alone()
        with Finishing() as rest:
            rest.run(self.pool.free, self.held, after=after)
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
        if self.is_open:
            self._table.close(self.row)

    # -- steps --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self.is_open:
            raise ClosedError("the sequence was freed, or its pool closed; make a new one with pool.sequence()")

    def _check_defined(self) -> None:
        if self.lost:
            raise StateError(
                f"the bytes of {self} were lost when {self.pool.range.name!r} slept without a backup; "
                "free it and compute it again"
            )
        if self.pool.range.losses:
            self._table.epochs[self.row] = self.pool.range.losses

    def _learn(self) -> None:
        """Hear of the ids that a batch has appended."""
        tails = self.pool.tail_ids
        if tails and tails.waits(self.row):
            start, ids = tails.take(self.row, self.length)
            if self._known:
                self._known.put(start, ids, self.pool.layout.block_size)

    def _new_blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` more tokens need."""
        return -(-(self.length + tokens) // self.pool.layout.block_size) - self._table.used(self.row)

    def _tail_length(self) -> int:
        """Tokens in the last block if it is partly filled, else 0."""
        return self.length % self.pool.layout.block_size

    def _tail_is_shared(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens would write into a block that somebody else holds too."""
        if not self.pool.block_pool.shared or not tokens or not self._tail_length():
            return False
        return self.pool.count(self._tail()) > 1

    def _tail(self) -> int:
        """The last block."""
        return int(self._table.blocks[self.row, self._table.used(self.row) - 1])

    def _make_room(self, columns: int, tokens: int) -> None:
        """Have so many columns in the table, if there are the blocks for them: it does not become narrow again."""
        if columns > self._table.blocks.shape[1] and not self.can_append(tokens):
            lacking = self._new_blocks(tokens) + self._tail_is_shared(tokens)
            self.pool.free(self.pool.allocate(lacking))  # says why not
        self._table.make_room(columns)

    def _append_to_a_copy(self, needed: int, stream: Stream) -> None:
        """Exchange the shared last block for a copy of it, and take ``needed`` blocks besides."""
        shared = self._tail()
        with contextlib.ExitStack() as undo:
            new = self.pool.allocate(needed + 1)
            undo.callback(self.pool.free, new)
            self.pool.copy_block(shared, new[0], stream=stream)
            undo.pop_all()
        self._table.put(self.row, self._table.used(self.row) - 1, new)
        self.pool.free([shared])
        self.pool.tokens += self._tail_length()

    def _tokens_held_alone(self) -> int:
        """Tokens that no longer exist once this sequence is gone."""
        if not self.pool.block_pool.shared:
            return self.length - self.dropped
        size = self.pool.layout.block_size
        places = np.arange(self.dropped // size, self._table.used(self.row))
        blocks, prefix = self._table.blocks[self.row, places], self.pool.prefix
        counts = prefix.holders_of(blocks) if prefix else self.pool.block_pool.counts.numbers[blocks]
        return int(np.minimum(size, self.length - places[counts == 1] * size).sum())


def _count(tokens: Any) -> int:
    """A number of tokens as Python's int: NumPy's small ones overflow when they are multiplied by bytes."""
    try:
        count = operator.index(tokens)
    except TypeError:
        raise ValueError(
            f"append takes a number of tokens, or their ids in a list or an array, not {tokens!r}"
        ) from None
    if count < 0:
        raise RangeError(f"cannot append {count} tokens; append 0 or more")
    return count
