"""Why a swap space does not take a sequence: its pinned host memory is full, or in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vmm import Shortage, format_size
from vmm.shortage import Held, Limit, Portion, Remedy

if TYPE_CHECKING:
    from ..host_room import HostRoom
    from ..swap import Swapped


def room_shortage(room: HostRoom, blocks: int, each: int, held: Iterable[Swapped] = ()) -> Shortage:
    """Why there is no room for ``blocks`` blocks of ``each`` bytes beside the sequences in ``held``."""
    granted = room.would_hold(each) * each
    free = room.free + room.leaving
    text = f"{format_size(free)} of {format_size(room.size)} are free, {format_size(granted)} in blocks of {each} bytes"
    sequences = list(held)
    return Shortage(
        name="swap space",
        unit="bytes",
        asked=blocks * each,
        granted=granted,
        cause="fragmentation" if free >= blocks * each else "swap space",
        limits=(Limit("swap space", granted, text),),
        portions=(Portion("swapped", room.size - free), Portion("leaving", room.leaving)),
        holders=tuple(Held(_named(one), one.host_bytes) for one in sequences),
        remedies=tuple(_remedies(room, blocks, each, sequences, granted)),
    )


def _remedies(room: HostRoom, blocks: int, each: int, held: list[Swapped], granted: int) -> list[Remedy]:
    """Discard one sequence that is enough, the shortest such; or a space with so much more at its end."""
    found, enough = [], [one for one in held if room.would_hold(each, one.spans) >= blocks]
    if enough:
        chosen = min(enough, key=lambda one: one.length)
        cost = f"{chosen.length} tokens to compute again"
        text = f"restore or discard {_named(chosen)}"
        found.append(Remedy("free", (held.index(chosen),), room.would_hold(each, chosen.spans) * each, text, cost))
    size = room.size + blocks * each - granted
    text = f"make a swap space of {format_size(size)} ({size} bytes)"
    cost = f"{format_size(size - room.size)} more of the host's memory"
    found.append(Remedy("larger swap space", size, blocks * each, text, cost))
    return found


def _named(swapped: Swapped) -> str:
    return f"a sequence of {swapped.length} tokens of {swapped.pool.range.name!r}"
