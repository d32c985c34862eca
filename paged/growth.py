"""Growth: a sequence gets room for more tokens. A partly filled last block that others hold too is copied first.

Nothing here guards against a second thread or an interrupt: what calls it does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from vmm import Stream

from .allocation import take, take_array
from .block_copies import copy_blocks
from .prefix.chain_hash import Tokens
from .release import free
from .tables.block_table import Slots, slots_of
from .whole_number import more_tokens

if TYPE_CHECKING:
    from .pool import KVPool
    from .sequence import Sequence


def append(sequence: Sequence, count: int, ids: Tokens | None, stream: Stream) -> Slots:
    """What ``Sequence.append`` does, once all has been looked at and published."""
    pool, table, row = sequence.pool, sequence.pool.table, sequence.row
    start, size = table.length(row), table.block_size
    stop = start + count
    used, columns = -(-start // size), -(-stop // size)
    if columns > table.columns:
        _make_room(sequence, columns, count)
    if start % size and tail_is_shared(sequence, count):
        _append_to_a_copy(sequence, columns - used, count, stream)
    elif columns > used:
        new = take_array(pool, columns - used)
        pool.tokens += count  # first: whoever is told of the table asks how many there are
        table.put(row, used, new)
    else:
        pool.tokens += count
    if ids is not None and sequence._known:
        sequence._known.put(start, ids, size)
    table.lengthen(row, count)
    if start % size or not count:
        return slots_of(table.blocks[row], start, stop, size)
    return slots_of(new, 0, count, size)


def share(pool: KVPool, blocks: list[int]) -> None:
    """What ``KVPool.fork`` does."""
    pool.check_not_closed()
    pool.block_pool.fork(blocks)
    if pool.prefix:
        pool.prefix.cache.use(blocks)


def blocks_for(sequence: Sequence, tokens: int) -> int:
    """Blocks that ``tokens`` more tokens take, the copy of a shared last block included."""
    table = sequence.pool.table
    needed = -(-(sequence.length + tokens) // table.block_size) - table.used(sequence.row)
    return needed + tail_is_shared(sequence, tokens)


def tail_is_shared(sequence: Sequence, tokens: int) -> bool:
    """Whether ``tokens`` more tokens would write into a block that somebody else holds too."""
    pool = sequence.pool
    if not pool.block_pool.shared or not tokens or not sequence.length % pool.table.block_size:
        return False
    return pool.count(_tail(sequence)) > 1


def tokens_held_alone(sequence: Sequence) -> int:
    """Tokens that no longer exist once this sequence is gone."""
    pool, table, row = sequence.pool, sequence.pool.table, sequence.row
    if not pool.block_pool.shared:
        return sequence.length - sequence.dropped
    size = table.block_size
    places = np.arange(sequence.dropped // size, table.used(row))
    blocks = table.blocks[row, places]
    counts = pool.prefix.holders_of(blocks) if pool.prefix else pool.block_pool.counts.numbers[blocks]
    return int(np.minimum(size, sequence.length - places[counts == 1] * size).sum())


def token_count(tokens: Any) -> int:
    """A number of tokens as Python's int: NumPy's small ones overflow when they are multiplied by bytes."""
    if type(tokens) is int and tokens >= 0:
        return tokens
    try:
        return more_tokens(tokens)
    except TypeError:
        raise ValueError(
            f"append takes a number of tokens, or their ids in a list or an array, not {tokens!r}"
        ) from None


# -- steps ------------------------------------------------------------------------------------------------------


def _tail(sequence: Sequence) -> int:
    """The last block."""
    table = sequence.pool.table
    return int(table.blocks[sequence.row, table.used(sequence.row) - 1])


def _make_room(sequence: Sequence, columns: int, tokens: int) -> None:
    """Have so many columns in the table, if there are the blocks for them: every row gets as many."""
    pool, needed = sequence.pool, blocks_for(sequence, tokens)
    if not pool.can_allocate(needed):
        free(pool, take(pool, needed), None)  # says why not
    pool.table.make_room(columns)


def _append_to_a_copy(sequence: Sequence, needed: int, count: int, stream: Stream) -> None:
    """Exchange the shared last block for a copy of it, and take ``needed`` blocks besides, for ``count`` tokens."""
    pool, table, shared = sequence.pool, sequence.pool.table, _tail(sequence)
    with contextlib.ExitStack() as undo:
        new = take(pool, needed + 1)
        undo.callback(free, pool, new, None)
        copy_blocks(pool, [shared], new[:1], stream)
        undo.pop_all()
    pool.tokens += count + sequence.length % table.block_size
    table.put(sequence.row, table.used(sequence.row) - 1, new)
    free(pool, [shared], None)
