"""What can happen in a pool, as numbers, and the columns that describe one event."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Kind(enum.IntEnum):
    """Kinds of events. ``sequence`` of an event is a number that no other sequence of the recording has.

    Those that end in a comment about a, b or ids use these columns; the others leave them 0 and empty.
    """

    START = 0  # a: the label of the sequence, such as the number of a request; -1 without one
    PUT = 1  # a: tokens of the sequence now, -1 unknown; b: first column; ids: blocks that its table names from there
    PUT_EACH = 2  # ids: sequence, column, block in turn: one more block for each of several sequences
    DROP = 3  # a: so many blocks at the beginning of the table are given up
    END = 4  # a: tokens at the end, -1 unknown
    COMMIT = 5  # ids: rows that got physical memory; a: bytes that retire
    DECOMMIT = 6  # ids: rows whose memory goes back; a: bytes that retire
    COLLECT = 7  # a: bytes that retire still, after some have been unmapped
    MOVE = 8  # ids: blocks, then as many places that their bytes moved to
    HIT = 9  # ids: blocks that the prefix cache had for a prompt; a: tokens of the prompt
    CACHE = 10  # ids: blocks that the prefix cache knows from now on
    EVICT = 11  # ids: blocks that it knows no more
    SLEEP = 12  # all physical memory is given up
    WAKE = 13  # and is back


class Columns(NamedTuple):
    """One event as it is kept: ``moment`` on the recording's clock, from which on it holds, in nanoseconds.

    ``time`` is perf_counter_ns at its beginning, ``duration`` the nanoseconds until it was done; 0 if nobody looked.
    ``live`` is the number of tokens that exist, as far as is known then, ``named`` how many ids belong to the event.
    """

    moment: int
    kind: int
    sequence: int
    a: int
    b: int
    time: int
    duration: int
    live: int
    named: int


WIDTH = len(Columns._fields)
