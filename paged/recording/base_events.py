"""A state as the events that lead to it, so that a recording always begins with nothing."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .kinds import Kind
from .state import State


def base_events(state: State) -> tuple[array[int], array[int]]:
    """Flat arrays of events, all at the state's moment; sequences keep the moments of their starts."""
    rows, ids = array("q"), array("i")

    def note(kind: Kind, sequence: int = -1, a: int = 0, named: Sequence[int] = (), moment: int = state.moment) -> None:
        rows.extend((moment, kind, sequence, a, 0, 0, 0, state.live, len(named)))
        ids.extend(named)

    for number, sequence in sorted(state.sequences.items(), key=lambda item: item[1].started):
        note(Kind.START, number, sequence.label, moment=sequence.started)
    note(Kind.COMMIT, a=state.retiring, named=sorted(state.rows))
    for number, sequence in state.sequences.items():
        note(Kind.PUT, number, sequence.tokens, sequence.table)
        if sequence.dropped:
            note(Kind.DROP, number, sequence.dropped)
    if state.cached:
        note(Kind.CACHE, named=sorted(state.cached))
    if state.asleep:
        note(Kind.SLEEP)
    return rows, ids
