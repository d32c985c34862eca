"""Picture: both page tables of a pool at one moment, as integers. Knows no driver, and nothing of it changes later."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..blocks.rows import Rows

Numbers = np.ndarray[Any, np.dtype[Any]]


class ChunkState(enum.IntEnum):
    """What the driver's layer has at a chunk: the states of ``KVPool.explain``."""

    RESERVED = 0
    COMMITTED = 1
    RETIRING = 2
    ASLEEP = 3


class BlockKind(enum.IntEnum):
    """Who holds a block: nobody, only the prefix cache, somebody by its id alone, one sequence, or several holders."""

    FREE = 0
    IDLE = 1
    BY_ID = 2
    OWN = 3
    SHARED = 4


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The block tables of S sequences, one behind the other.

    ``names`` int64 [S] are the sequences' rows in the pool's table, ascending. Sequence s has ``lengths[s]`` tokens in
    ``dropped[s]`` blocks that it gave up and then ``blocks[starts[s] : starts[s + 1]]``; ``starts`` is int64 [S + 1].
    """

    names: Numbers
    lengths: Numbers
    dropped: Numbers
    starts: Numbers
    blocks: Numbers

    def __len__(self) -> int:
        return len(self.names)

    def held(self, place: int) -> Numbers:
        """The blocks that the sequence at this place holds, in the order of its tokens."""
        found: Numbers = self.blocks[self.starts[place] : self.starts[place + 1]]
        return found

    @property
    def counts(self) -> Numbers:
        """How many blocks each sequence holds."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Numbers:
        """The place of the sequence of each entry of ``blocks``."""
        found: Numbers = np.repeat(np.arange(len(self)), self.counts)
        return found

    @property
    def columns(self) -> Numbers:
        """The logical block, dropped ones counted, of each entry of ``blocks``."""
        first: Numbers = np.repeat(self.starts[:-1] - self.dropped, self.counts)
        return np.arange(len(self.blocks)) - first


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A pool of blocks of ``block_size`` tokens, ``block_stride`` bytes a plane, over chunks of ``chunk`` bytes.

    ``states`` (ChunkState) and ``handles`` are [planes, rows]: what is mapped at a chunk; a handle is 0 where nothing
    is committed. By block: ``counts`` is how many hold it, the prefix cache not counted, which has it if
    ``cached``; ``filled`` how many of its slots have a token of a sequence. ``tokens`` exist in all.
    """

    name: str
    order: str
    base: int
    chunk: int
    block_size: int
    block_stride: int
    token_bytes: int
    tokens: int
    states: Numbers
    handles: Numbers
    counts: Numbers
    cached: Numbers
    filled: Numbers
    kinds: Numbers
    tables: Tables

    @property
    def planes(self) -> int:
        """Planes of the pool: 1, or one a layer."""
        return int(self.states.shape[0])

    @property
    def rows(self) -> Rows:
        """How the blocks lie in rows."""
        return Rows(len(self.counts), self.block_stride, self.chunk)

    @property
    def row_bytes(self) -> int:
        """Physical memory of one row."""
        return self.planes * self.chunk

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all planes."""
        return self.planes * self.block_stride

    @property
    def reserved(self) -> int:
        """Bytes of addresses."""
        return int(self.states.size) * self.chunk

    @property
    def committed(self) -> int:
        """Bytes of physical memory, ``retiring`` included."""
        return self.bytes_in(ChunkState.COMMITTED) + self.retiring

    @property
    def retiring(self) -> int:
        """Bytes that were given back and stay mapped until work is done."""
        return self.bytes_in(ChunkState.RETIRING)

    @property
    def asleep(self) -> int:
        """Bytes that come back when the pool's range wakes."""
        return self.bytes_in(ChunkState.ASLEEP)

    @property
    def live(self) -> int:
        """Bytes of the tokens that exist."""
        return self.tokens * self.token_bytes

    def bytes_in(self, state: ChunkState) -> int:
        """Bytes of the chunks in one state."""
        return int(np.count_nonzero(self.states == state)) * self.chunk

    @property
    def planes_alike(self) -> bool:
        """Whether every plane has its chunks in the states of the first one, as rows are committed whole."""
        return bool((self.states == self.states[:1]).all())

    def copies_next(self, place: int) -> bool:
        """Whether the next append to the sequence at this place copies its last block, because others hold it too."""
        held = self.tables.held(place)
        partly = int(self.tables.lengths[place]) % self.block_size
        return bool(len(held) and partly and self.counts[held[-1]] > 1)

    def holders(self) -> Holders:
        """Which sequences hold each block."""
        order = np.argsort(self.tables.blocks, kind="stable")
        starts = np.searchsorted(self.tables.blocks[order], np.arange(len(self.counts) + 1))
        return Holders(starts, self.tables.owners[order])


@dataclass(frozen=True, slots=True, eq=False)
class Holders:
    """Block b is in the tables of the sequences at the places ``places[starts[b] : starts[b + 1]]``, ascending."""

    starts: Numbers
    places: Numbers

    def of(self, block: int) -> list[int]:
        """The places of the sequences that hold a block."""
        found: list[int] = self.places[self.starts[block] : self.starts[block + 1]].tolist()
        return found

    def first(self) -> Numbers:
        """The lowest place that holds each block; -1 where no sequence does."""
        many = np.diff(self.starts) > 0
        found = np.full(len(many), -1, np.int64)
        found[many] = self.places[self.starts[:-1][many]]
        return found
