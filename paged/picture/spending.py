"""Spending: what the physical memory of a picture is spent on. The parts add up to it, to the byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .picture import BlockKind, Picture


@dataclass(frozen=True, slots=True)
class Spending:
    """Bytes of ``live`` tokens, of ``unfilled`` slots of the sequences' last blocks, of blocks held ``by_id`` alone, of
    blocks that only the prefix cache has (``idle``), of ``free`` places in committed rows, and of rows that retire.

    Where the pool sleeps, they are the bytes that will be committed when it wakes.
    """

    live: int
    unfilled: int
    by_id: int
    idle: int
    free: int
    retiring: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.live + self.unfilled + self.by_id + self.idle + self.free + self.retiring


def spending_of(picture: Picture) -> Spending:
    """What ``picture.committed`` (or, of a pool that sleeps, ``picture.asleep``) is spent on."""
    block = picture.block_bytes
    named = np.zeros(len(picture.counts), np.bool_)
    named[picture.tables.blocks] = True
    in_tables = int(np.count_nonzero(named)) * block
    by_id = int(np.count_nonzero((picture.counts > 0) & ~named)) * block
    idle = int(np.count_nonzero(picture.kinds == BlockKind.IDLE)) * block
    live = int(picture.filled.sum()) * picture.token_bytes
    free = picture.committed + picture.asleep - picture.retiring - in_tables - by_id - idle
    return Spending(live, in_tables - live, by_id, idle, free, picture.retiring)
