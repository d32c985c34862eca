"""AppendUndo: a sequence as it was before an append that belongs together with others, of which one may fail."""

from __future__ import annotations

from vmm import Stream

from .sequence import Sequence


class AppendUndo:
    """Remembers ``sequence``; ``undo`` takes back one append after that."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._length, self._held = sequence.length, sequence.held
        self._tokens = sequence.pool.tokens
        known = sequence._known
        self._known = None if known is None else (min(known.count, self._length), known.keys, known.stored)

    def undo(self, stream: Stream) -> None:
        """Give up the new blocks behind the work on ``stream``, and hold the old last block again if it was shared.

        Token ids that were known beyond the length are forgotten: they may have been written over.
        """
        sequence, table = self._sequence, self._sequence.pool.table
        kept = len(self._held)
        now, pool = sequence.held, sequence.pool
        if now == self._held and sequence.length == self._length:
            return
        new = now[kept:]
        if kept and now[kept - 1] != self._held[-1]:  # a copy of the shared block stands there
            pool.fork(self._held[-1:])
            new = now[kept - 1 :]
            table.put(sequence.row, int(table.dropped[sequence.row]) + kept - 1, self._held[-1:])
        table.lengths[sequence.row] = self._length
        pool.tokens = self._tokens
        if self._known is not None and sequence._known is not None:
            sequence._known.count, sequence._known.keys, sequence._known.stored = self._known
            sequence._known.keys = sequence._known.keys[: sequence._known.count // table.block_size]
        pool.free(new, after=stream)
