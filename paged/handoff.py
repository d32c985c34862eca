"""Handoff: what another process must know to attend over sequences of a pool whose memory it attaches to.

The bytes stay where they are: ``vmm.sharing`` maps the same chunks there. What must be told besides is how the pool is
laid out and which blocks hold the tokens: a few numbers, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vmm import RangeError

from .layout import KVLayout
from .pool import KVPool
from .row_memory import MOST_BLOCKS
from .sequence import Sequence
from .spec import KVSpec
from .tables.batched_table import DROPPED
from .whole_number import whole_number

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Handoff:
    """Where the tokens of some sequences lie in a pool of ``blocks`` blocks, laid out by ``layout``.

    ``tables`` are their block ids in the order of the tokens, -1 where a block was dropped; ``lengths`` are in tokens.
    Made by ``Handoff.of`` and ``Handoff.from_json``, for ``AttachedKV``. Raises RangeError for a block that is not
    there, ValueError for a table that does not fit its length.
    """

    layout: KVLayout
    blocks: int
    tables: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        blocks = whole_number("blocks", self.blocks)
        if not 1 <= blocks <= MOST_BLOCKS:
            raise RangeError(f"blocks must be 1 to {MOST_BLOCKS}, not {blocks}")
        if len(self.tables) != len(self.lengths):
            raise ValueError(
                f"there are {len(self.tables)} tables and {len(self.lengths)} lengths; give one a sequence"
            )
        for number, (table, length) in enumerate(zip(self.tables, self.lengths, strict=True)):
            self._check(number, table, whole_number("a length", length))

    @classmethod
    def of(cls, pool: KVPool, sequences: Iterable[Sequence]) -> Handoff:
        """Of sequences as they are now. Hold them until the other process is done.

        A block that is freed belongs to whoever gets it next, and is written while the other still reads it. Order the
        work that writes them too: synchronize before the other process looks. Raises ClosedError for a freed sequence,
        ValueError for one of another pool, StateError while the pool sleeps or where bytes are lost.
        """
        listed = list(sequences)
        for sequence in listed:
            sequence.check_in(pool)
        tables = tuple(tuple(sequence.table) for sequence in listed)
        return cls(pool.layout, pool.block_pool.rows.blocks, tables, tuple(sequence.length for sequence in listed))

    @property
    def chunks(self) -> list[int]:
        """The chunks of the pool's range in which the blocks lie: what an ``Exporter`` must share.

        Blocks of other sequences may lie in the same chunks; whoever attaches can read those too.
        """
        held = {block for table in self.tables for block in table if block != DROPPED}
        return sorted({chunk for block in held for chunk in self.chunks_of(block)})

    def chunks_of(self, block: int) -> list[int]:
        """The chunks in which one block lies."""
        rows = self.layout.rows(self.blocks).of(block)
        return [chunk for row in rows for chunk in self.layout.chunks_of(row, self.blocks)]

    def dropped(self, number: int) -> int:
        """Tokens at the beginning of a sequence whose blocks were given up."""
        return self.tables[number].count(DROPPED) * self.layout.block_size

    def to_json(self) -> str:
        """One line of text that ``from_json`` takes."""
        return json.dumps({"version": _VERSION, **dataclasses.asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Handoff:
        """What another process has said. Raises ValueError for text that is no handoff, or does not fit together."""
        try:
            told = json.loads(text)
            if told.pop("version") != _VERSION:
                raise ValueError(f"it is not of version {_VERSION}, the only one that this process knows")
            layout, tables = told.pop("layout"), tuple(tuple(table) for table in told.pop("tables"))
            made = KVLayout(**{**layout, "spec": KVSpec(**layout["spec"])})
            return cls(made, tables=tables, lengths=tuple(told.pop("lengths")), **told)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"this is no handoff: {error}; give what to_json() returned") from None

    def _check(self, number: int, table: tuple[Any, ...], length: int) -> None:
        """Look at one sequence's table: a wrong entry would be another's memory, or none."""
        size = self.layout.block_size
        if length < 0 or len(table) != -(-length // size):
            raise ValueError(
                f"sequence {number} has {length} tokens and a table of {len(table)} blocks of {size}; they do not fit"
            )
        dropped = table.count(DROPPED)
        for entry in table[dropped:]:
            if not 0 <= whole_number("a block", entry) < self.blocks:
                raise RangeError(f"sequence {number} names block {entry}; the pool has blocks 0 to {self.blocks - 1}")
