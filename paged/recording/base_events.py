"""A state as the events that lead to it, so that a recording always begins with nothing."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .kinds import Kind
from .state import State


def base_events(state: State) -> tuple[array[int], array[int]]:
    """Flat arrays of events, all at the state's moment."""
    rows, ids = array("q"), array("i")

    def note(kind: Kind, sequence: int = -1, a: int = 0, named: Sequence[int] = ()) -> None:
        rows.extend((state.moment, kind, sequence, a, 0, 0, 0, state.live, len(named)))
        ids.extend(named)

    for number, sequence in state.sequences.items():
        note(Kind.START, number, sequence.label)
    note(Kind.COMMIT, a=state.retiring, named=sorted(state.rows))
    for number, sequence in state.sequences.items():
        note(Kind.PUT, number, -1, sequence.table)
        if sequence.dropped:
            note(Kind.DROP, number, sequence.dropped)
    if state.cached:
        note(Kind.CACHE, named=sorted(state.cached))
    if state.asleep:
        note(Kind.SLEEP)
    return rows, ids
