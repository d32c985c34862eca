"""State: both page tables of a pool at one moment, rebuilt from events. Integers only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .kinds import WIDTH, Columns, Kind
from .recording_error import RecordingError

Ids = Sequence[int]


@dataclass(slots=True)
class Tokens:
    """One sequence: its ``label`` and its block table, of which the first ``dropped`` are given up."""

    label: int
    table: list[int] = field(default_factory=list)
    dropped: int = 0

    @property
    def held(self) -> list[int]:
        """The blocks that it holds, in the order of its tokens."""
        return self.table[self.dropped :]


class State:
    """``sequences`` by number, committed ``rows``, blocks that the prefix cache knows, and what retires, in bytes.

    ``counts`` has how many tables name a block. ``taken`` and ``given`` are the blocks that the latest event gave to
    their first holder, a sequence or the cache, and took from their last; ``what`` says in words what it was.
    """

    def __init__(self) -> None:
        self.moment = 0
        self.sequences: dict[int, Tokens] = {}
        self.rows: set[int] = set()
        self.cached: set[int] = set()
        self.counts: dict[int, int] = {}
        self.idle = 0  # blocks of the cache that no sequence holds
        self.what = ""
        self.taken: list[int] = []
        self.given: list[int] = []
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
        self.taken, self.given = [], []
        self.what = _WORDS[event.kind]
        _APPLY[event.kind](self, event, ids)

    def holders(self) -> dict[int, list[int]]:
        """Block -> the sequences whose tables name it."""
        found: dict[int, list[int]] = {}
        for number, sequence in self.sequences.items():
            for block in sequence.held:
                found.setdefault(block, []).append(number)
        return found

    def _hold(self, blocks: Ids) -> None:
        counts, cached = self.counts, self.cached
        for block in blocks:
            count = counts.get(block, 0)
            counts[block] = count + 1
            if not count:
                if block in cached:
                    self.idle -= 1
                else:
                    self.taken.append(block)

    def _let_go(self, blocks: Ids) -> None:
        counts, cached = self.counts, self.cached
        for block in blocks:
            count = counts.get(block, 0) - 1
            if count < 0:
                raise RecordingError(f"the recording is damaged: block {block} leaves a table that does not name it")
            if count:
                counts[block] = count
                continue
            del counts[block]
            if block in cached:
                self.idle += 1
            else:
                self.given.append(block)

    # -- one kind each ------------------------------------------------------------------------------------------

    def _start(self, event: Columns, _ids: Ids) -> None:
        self.sequences[event.sequence] = Tokens(event.a)

    def _put(self, event: Columns, ids: Ids) -> None:
        sequence = self.sequences.get(event.sequence)
        if sequence is not None:
            replaced = sequence.table[event.b : event.b + len(ids)]
            sequence.table[event.b : event.b + len(ids)] = ids
            self._hold(ids)
            if replaced:
                self.what = "copy on write"
            elif ids and not self.taken:
                self.what = "share"  # a fork, or a prefix that was known
            self._let_go(replaced)

    def _put_each(self, event: Columns, ids: Ids) -> None:
        for number, column, block in zip(ids[::3], ids[1::3], ids[2::3], strict=True):
            self._put(event._replace(sequence=number, b=column), [block])

    def _drop(self, event: Columns, _ids: Ids) -> None:
        sequence = self.sequences.get(event.sequence)
        if sequence is not None:
            self._let_go(sequence.table[sequence.dropped : event.a])
            sequence.dropped = event.a

    def _end(self, event: Columns, _ids: Ids) -> None:
        sequence = self.sequences.pop(event.sequence, None)
        if sequence is not None:
            self._let_go(sequence.held)

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
        self.counts = {places.get(block, block): count for block, count in self.counts.items()}
        self.given, self.taken = list(ids[:half]), list(ids[half:])

    def _hit(self, _event: Columns, _ids: Ids) -> None:
        """The blocks come into a table by the event that follows."""

    def _cache(self, _event: Columns, ids: Ids) -> None:
        for block in ids:
            if block not in self.cached:
                self.cached.add(block)
                if block not in self.counts:
                    self.idle += 1
                    self.taken.append(block)

    def _evict(self, _event: Columns, ids: Ids) -> None:
        for block in ids:
            if block in self.cached:
                self.cached.discard(block)
                if block not in self.counts:
                    self.idle -= 1
                    self.given.append(block)

    def _sleep(self, _event: Columns, _ids: Ids) -> None:
        self.asleep = True

    def _wake(self, _event: Columns, _ids: Ids) -> None:
        self.asleep = False


_APPLY = {kind.value: getattr(State, f"_{kind.name.lower()}") for kind in Kind}


_WORDS: dict[int, str] = {
    Kind.START: "start",
    Kind.PUT: "append",
    Kind.PUT_EACH: "append each",
    Kind.DROP: "drop",
    Kind.END: "end",
    Kind.COMMIT: "commit",
    Kind.DECOMMIT: "give back",
    Kind.COLLECT: "collect",
    Kind.MOVE: "compact",
    Kind.HIT: "prefix hit",
    Kind.CACHE: "prefix store",
    Kind.EVICT: "prefix evict",
    Kind.SLEEP: "sleep",
    Kind.WAKE: "wake",
}


def split(rows: Ids, ids: Ids) -> Iterator[tuple[Columns, Ids]]:
    """The events of two flat arrays, one by one."""
    at, made = 0, Columns._make
    for numbers in zip(*[iter(rows)] * WIDTH, strict=True):
        event = made(numbers)
        stop = at + event.named
        yield event, ids[at:stop]
        at = stop
