"""Lengths: how many tokens a sequence has between two of its events.

Events know a length only where a block is taken. Decoding adds one token a step, so between two such events tokens come
evenly; after the last one they go on at the same pace until the sequence ends, never beyond the room of its blocks.
"""

from __future__ import annotations

import bisect

from ..recording import Recording
from ..recording.kinds import Kind
from ..recording.state import Tokens


class Lengths:
    """The moments and lengths of all sequences of a recording whose lengths an event tells."""

    def __init__(self, recording: Recording) -> None:
        self._size: int = recording.about["block_size"]
        self._moments: dict[int, list[int]] = {}
        self._tokens: dict[int, list[int]] = {}
        columns = recording.columns()
        wanted = (columns["kind"] == Kind.PUT) | (columns["kind"] == Kind.END)
        fields = (columns[name][wanted].tolist() for name in ("kind", "sequence", "moment", "a"))
        for kind, number, moment, tokens in zip(*fields, strict=True):
            if tokens < 0 and kind == Kind.END and number in self._moments:
                tokens = self._tokens[number][-1] + self._size - 1  # at most: its last block is full then
            if tokens >= 0:
                self._moments.setdefault(number, []).append(moment)
                self._tokens.setdefault(number, []).append(tokens)

    def at(self, number: int, sequence: Tokens, moment: int) -> int:
        """Tokens of a sequence at a moment, within what its blocks can hold."""
        room = len(sequence.table) * self._size
        moments, tokens = self._moments.get(number), self._tokens.get(number)
        if not moments or not tokens:
            return room
        after = bisect.bisect_right(moments, moment)
        if after == 0:
            return min(room, tokens[0])
        found = tokens[after - 1]
        if after < len(moments) and moments[after] > moments[after - 1]:
            part = (moment - moments[after - 1]) / (moments[after] - moments[after - 1])
            found += int((tokens[after] - found) * part)
        return max(min(room, found), max(0, room - self._size + 1) if found else 0)
