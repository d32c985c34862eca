"""Sequence: the tokens of one request in a pool. It grows by tokens, takes blocks as it needs them, and can fork."""

from __future__ import annotations

from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING

from vmm import After, ClosedError, RangeError, StateError, Stream, handles_of
from vmm.finishing import Finishing
from vmm.one_thread import one_thread

from . import growth, release
from .known_prefix import forget_lost
from .prefix.known_tokens import KnownTokens, TokenIds, as_ids
from .tables.batched_table import Numbers
from .tables.block_table import Slots, Tables
from .whole_number import whole_number

if TYPE_CHECKING:
    from .pool import KVPool


class Sequence:
    """A block table and a length in tokens: a view of one row of the pool's ``table``.

    Made by ``KVPool.sequence`` and ``Sequence.fork``. Only the last block may be partly filled.
    """

    __slots__ = ("_known", "_table", "_turn", "busy", "pool", "row")

    def __init__(self, pool: KVPool, blocks: Numbers | None = None, known: KnownTokens | None = None) -> None:
        """With whole ``blocks`` that are held for it already."""
        self.pool, self._table, self._known = pool, pool.table, known
        self.busy = pool.busy  # a thread that changes the one has the other
        self.row = row = self._table.open(pool.range.losses)
        self._turn = self._table.turn(row)
        if blocks is not None and len(blocks):
            self._table.put(row, 0, blocks)
            self._table.lengthen(row, len(blocks) * self._table.block_size)
        pool.open_sequences[row] = self

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
        table, row = self._table, self.row
        return table.length(row) if table.turn(row) == self._turn else 0

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
        return int(self._table.dropped[self.row]) * self._table.block_size if self.is_open else 0

    @property
    def lost(self) -> bool:
        """Whether the bytes of its tokens are undefined, because the pool slept without a backup."""
        losses = self.pool.range.losses
        return bool(losses and self.length and self._table.epochs[self.row] != losses)

    def can_append(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens can be had now."""
        tokens = growth.token_count(tokens)
        self._check_open()
        return self.pool.can_allocate(growth.blocks_for(self, tokens))

    # -- changes ------------------------------------------------------------------------------------------------

    @one_thread
    def append(self, tokens: int | TokenIds, *, stream: Stream = 0) -> Slots:
        """Make room for more tokens, by their number or their ids, and return their slots, int64 [tokens].

        With a prefix cache, blocks whose tokens are known by their ids (the prompt's are) can be found by later prompts
        as soon as the sequence goes on or ends, or after ``publish``: their bytes must be queued to be written by then.
        A partly filled last block that another sequence shares is copied first, on ``stream``, so that the other's
        bytes stay. Raises OutOfMemoryError when the pool has not enough blocks; nothing has changed then.
        """
        ids = None if type(tokens) is int else as_ids(tokens)
        count = growth.token_count(tokens if ids is None else len(ids))
        self._check_usable()
        self._publish()
        return growth.append(self, count, ids, stream)

    @one_thread
    def fork(self) -> Sequence:
        """A second sequence with the same tokens: it shares every block, the partly filled one too."""
        self._check_open()
        self.pool.check_usable()
        self._learn()
        growth.share(self.pool, self.held)
        child, table = Sequence(self.pool), self._table
        child.begin(table.blocks[self.row, : table.used(self.row)], self._known and self._known.copy(), self.length)
        for of_row in (table.dropped, table.epochs):
            of_row[child.row] = of_row[self.row]
        return child

    @one_thread
    def publish(self) -> None:
        """Let later prompts find the whole blocks of this sequence whose token ids are known."""
        if self.is_open:
            self._publish()

    @one_thread
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
        self._publish()
        dropped, size = int(self._table.dropped[self.row]), self._table.block_size
        blocks = token // size
        if blocks <= dropped:
            return 0
        leaving = self.table[dropped:blocks]
        gone = size * (sum(self.pool.count(block) == 1 for block in leaving))
        if self._known and self._known.stored <= blocks:
            self._known = None  # the next block of the chain would have none before it
        with Finishing() as rest:
            rest.run(release.free, self.pool, leaving, after)
            self.pool.tokens -= gone
            self._table.drop(self.row, blocks)
        return len(leaving)

    @one_thread
    def free(self, *, after: After = None) -> None:
        """Give up every block; those that nobody else holds go back to the pool. Freeing twice does nothing.

        ``after`` is the work that may still use them, as in ``KVPool.free``.
        """
        if not self.is_open:
            return
        handles_of(after)  # raises for what is neither a stream nor an event, before anything changes
        self._publish()
        gone = growth.tokens_held_alone(self)
        with Finishing() as rest:
            rest.run(release.free, self.pool, self.held, after)
            self.pool.tokens -= gone
            del self.pool.open_sequences[self.row]
            self.end()

    def begin(self, blocks: Ids[int] | Numbers | Tables, known: KnownTokens | None, length: int) -> None:
        """Start an empty one with blocks that are held for it already; what restores a sequence does it."""
        self._table.put(self.row, 0, blocks)
        self._table.lengths[self.row] = length
        self._known = known

    def check_in(self, pool: KVPool) -> None:
        """Raise ClosedError if the sequence was freed, ValueError if it is another pool's.

        StateError if the pool sleeps, or slept without a backup since the sequence was made.
        """
        self._check_open()
        if self.pool is not pool:
            raise ValueError(f"a sequence of {self.pool.range.name!r} was given to {pool.range.name!r}, another pool")
        self._check_usable()

    def end(self) -> None:
        """Forget the blocks without giving them back: ``KVPool.close`` has taken the memory of all."""
        if self.is_open:
            self._table.close(self.row)

    # -- steps --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._table.turn(self.row) != self._turn:
            raise ClosedError("the sequence was freed, or its pool closed; make a new one with pool.sequence()")

    def _check_usable(self) -> None:
        """Open, in a pool that is awake, and its bytes are there."""
        self._check_open()
        self.pool.check_usable()
        losses = self.pool.range.losses
        if losses and self.lost:
            raise StateError(
                f"the bytes of {self} were lost when {self.pool.range.name!r} slept without a backup; "
                "free it and compute it again"
            )
        if losses:
            self._table.epochs[self.row] = losses

    def _learn(self) -> None:
        """Hear of the ids that a batch has appended."""
        tails = self.pool.tail_ids
        if tails and tails.waits(self.row):
            start, ids = tails.take(self.row, self.length)
            if self._known:
                self._known.put(start, ids, self._table.block_size)

    def _publish(self) -> None:
        """As ``publish``, for who has the turn already."""
        self._learn()
        known, prefix, table = self._known, self.pool.prefix, self._table
        if known is None or prefix is None:
            return
        length, least = table.length(self.row), (known.stored + 1) * table.block_size
        if length >= least and known.count >= least and not self.lost:
            forget_lost(self.pool)
            prefix.publish(known, table.blocks[self.row], length)
