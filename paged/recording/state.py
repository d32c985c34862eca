"""State: both page tables of a pool at one moment, rebuilt from events. Integers only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .kinds import WIDTH, Columns, Kind

Ids = Sequence[int]


@dataclass(slots=True)
class Tokens:
    """One sequence: its ``label``, the moment it started, and its block table, of which ``dropped`` are given up.

    ``tokens`` is its length at ``moment``, where it is known, else what its blocks have room for is the only bound.
    """

    label: int
    started: int
    table: list[int] = field(default_factory=list)
    dropped: int = 0
    tokens: int = -1
    moment: int = 0

    @property
    def held(self) -> list[int]:
        """The blocks that it holds, in the order of its tokens."""
        return self.table[self.dropped :]


class State:
    """``sequences`` by number, committed ``rows``, blocks that the prefix cache knows, and what retires, in bytes."""

    def __init__(self) -> None:
        self.moment = 0
        self.sequences: dict[int, Tokens] = {}
        self.rows: set[int] = set()
        self.cached: set[int] = set()
        self.retiring = 0
        self.live = 0
        self.asleep = False

    def apply_all(self, rows: Ids, ids: Ids) -> None:
        """Let all events of two flat arrays happen."""
        for event, named in split(rows, ids):
            self.apply(event, named)

    def apply(self, event: Columns, ids: Ids) -> None:
        """Let one event happen."""
        self.moment, self.live = event.moment, event.live
        _APPLY[event.kind](self, event, ids)

    def holders(self) -> dict[int, list[int]]:
        """Block -> the sequences whose tables name it."""
        found: dict[int, list[int]] = {}
        for number, sequence in self.sequences.items():
            for block in sequence.held:
                found.setdefault(block, []).append(number)
        return found

    # -- one kind each ------------------------------------------------------------------------------------------

    def _start(self, event: Columns, _ids: Ids) -> None:
        self.sequences[event.sequence] = Tokens(event.a, event.moment, moment=event.moment, tokens=0)

    def _put(self, event: Columns, ids: Ids) -> None:
        sequence = self.sequences.get(event.sequence)
        if sequence is not None:
            sequence.table[event.b : event.b + len(ids)] = ids
            sequence.tokens, sequence.moment = event.a, event.moment

    def _put_each(self, event: Columns, ids: Ids) -> None:
        for number, column, block in zip(ids[::3], ids[1::3], ids[2::3], strict=True):
            self._put(event._replace(sequence=number, b=column, a=-1), [block])

    def _drop(self, event: Columns, _ids: Ids) -> None:
        if event.sequence in self.sequences:
            self.sequences[event.sequence].dropped = event.a

    def _end(self, event: Columns, _ids: Ids) -> None:
        self.sequences.pop(event.sequence, None)

    def _commit(self, event: Columns, ids: Ids) -> None:
        self.rows.update(ids)
        self.retiring = event.a

    def _decommit(self, event: Columns, ids: Ids) -> None:
        self.rows.difference_update(ids)
        self.retiring = event.a

    def _collect(self, event: Columns, _ids: Ids) -> None:
        self.retiring = event.a

    def _move(self, _event: Columns, ids: Ids) -> None:
        half = len(ids) // 2
        places = dict(zip(ids[:half], ids[half:], strict=True))
        for sequence in self.sequences.values():
            sequence.table = [places.get(block, block) for block in sequence.table]
        self.cached = {places.get(block, block) for block in self.cached}

    def _hit(self, _event: Columns, _ids: Ids) -> None:
        """The blocks come into a table by the event that follows."""

    def _cache(self, _event: Columns, ids: Ids) -> None:
        self.cached.update(ids)

    def _evict(self, _event: Columns, ids: Ids) -> None:
        self.cached.difference_update(ids)

    def _sleep(self, _event: Columns, _ids: Ids) -> None:
        self.asleep = True

    def _wake(self, _event: Columns, _ids: Ids) -> None:
        self.asleep = False


_APPLY = {kind.value: getattr(State, f"_{kind.name.lower()}") for kind in Kind}


def split(rows: Ids, ids: Ids) -> Iterator[tuple[Columns, Ids]]:
    """The events of two flat arrays, one by one."""
    at = 0
    for start in range(0, len(rows), WIDTH):
        event = Columns(*rows[start : start + WIDTH])
        yield event, ids[at : at + event.named]
        at += event.named
