"""Handoff: what another process must know to attend over sequences of a pool whose memory it attaches to.

The bytes stay where they are: ``vmm.sharing`` maps the same chunks there. What must be told besides is how the pool is
laid out and which blocks hold the tokens: a few numbers, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from vmm import AlignmentError, RangeError

from .handoff_text import VERSION, read_handoff
from .layout import KVLayout
from .pool import KVPool
from .row_memory import MOST_BLOCKS
from .sequence import Sequence
from .tables.batched_table import DROPPED
from .whole_number import whole_number

_MOST_ADDRESSES = 1 << 57
"""Bytes that an address of the widest page tables there are (five levels) can name."""
_PAGE = 4096
"""Bytes of the smallest page: no chunk of memory is a part of one."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """Where the tokens of some sequences lie in a pool of ``blocks`` blocks, laid out by ``layout``.

    ``tables`` are their block ids in the order of the tokens, -1 where a block was dropped; ``lengths`` are in tokens.
    Made by ``Handoff.of`` and ``Handoff.from_json``, for ``AttachedKV``. Raises RangeError for a block that is not
    there and for a layout that no addresses hold, AlignmentError for chunks that are no whole pages, ValueError for a
    table that does not fit its length.
    """

    layout: KVLayout
    blocks: int
    tables: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.layout, KVLayout):
            raise ValueError(f"layout must be a KVLayout, as a pool has it, not {self.layout!r}")
        blocks = whole_number("blocks", self.blocks)
        if not 1 <= blocks <= MOST_BLOCKS:
            raise RangeError(f"blocks must be 1 to {MOST_BLOCKS}, not {blocks}")
        if self.layout.chunk % _PAGE:
            raise AlignmentError(f"chunks of {self.layout.chunk} bytes are no whole pages of {_PAGE}")
        if self.layout.reserve_bytes(blocks) > _MOST_ADDRESSES:
            raise RangeError(
                f"{blocks} blocks of its layout need more than 2**57 bytes of addresses, which no range has"
            )
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
        ValueError for one of another pool, and for what is no pool or no list of sequences, StateError while the pool
        sleeps or where bytes are lost.
        """
        if not isinstance(pool, KVPool):
            raise ValueError(f"a handoff is of a KVPool; a {type(pool).__name__} was given")
        if not isinstance(sequences, Iterable):
            raise ValueError(f"a handoff is of a list of sequences; a {type(sequences).__name__} was given")
        listed = list(sequences)
        for sequence in listed:
            if not isinstance(sequence, Sequence):
                raise ValueError(f"a handoff is of Sequences of its pool; a {type(sequence).__name__} was given")
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

    def chunks_of(self, block: int) -> Iterator[int]:
        """The chunks in which one block lies, one by one: another process's layout may make them any number."""
        rows = self.layout.rows(self.blocks).of(block)
        return (chunk for row in rows for chunk in self.layout.chunks_of(row, self.blocks))

    def dropped(self, number: int) -> int:
        """Tokens at the beginning of a sequence whose blocks were given up."""
        return self.tables[number].count(DROPPED) * self.layout.block_size

    def to_json(self) -> str:
        """One line of text that ``from_json`` takes."""
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Handoff:
        """What another process has said. Raises ValueError for text that is no handoff, or does not fit together."""
        try:
            return cls(**read_handoff(text))
        except (TypeError, ValueError) as error:
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
