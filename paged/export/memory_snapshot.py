"""The memory snapshot that PyTorch's viewer opens: a pickled dictionary of segments and of the history of blocks.

Its fields are those that ``torch.cuda.memory._snapshot`` documents. A run of committed chunks is an expandable segment,
a KV block (in every plane) a block of it, mapping and unmapping rows are segment_map and segment_unmap, and a block's
first holder and last are alloc and free. The stack of a block says whose it is.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from ..recording import Recording
from ..recording.kinds import Columns, Kind
from ..recording.places import Places
from ..recording.state import Ids, State, split

MOST_ENTRIES = 200_000
"""Entries of history, the latest: the viewer goes back from the end, and slows down with more."""

Entry = dict[str, Any]


def write(recording: Recording, out: BinaryIO) -> None:
    """The snapshot at the end of the recording."""
    pickle.dump(snapshot(recording), out, protocol=4)


def snapshot(recording: Recording, most: int = MOST_ENTRIES) -> Entry:
    """The snapshot as data, with at most ``most`` entries of history."""
    history = _History(Places(recording.about), most)
    for event, ids in split(recording.rows, recording.ids):
        history.add(event, ids)
    segments = list(history.segments())
    return {
        "segments": segments,
        "device_traces": [list(history.entries)],
        "external_annotations": [],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True},
    }


class _History:
    """Follows a recording and keeps the latest entries; ``owned`` are the blocks that the viewer knows as allocated."""

    def __init__(self, places: Places, most: int) -> None:
        self.places, self.state = places, State()
        self.entries: deque[Entry] = deque(maxlen=most)
        self.owned: dict[int, list[Entry]] = {}  # block -> its stack

    def add(self, event: Columns, ids: Ids) -> None:
        """Let one event happen."""
        time = event.moment // 1000
        if event.kind == Kind.DECOMMIT:  # its blocks come free with it, though their sequence ends a moment later
            self._free((block for row in ids for block in self.places.touching(row)), time)
        self.state.apply(event, ids)
        frames = _frames(event, self.state)
        if event.kind in (Kind.COMMIT, Kind.DECOMMIT):
            action = "segment_map" if event.kind == Kind.COMMIT else "segment_unmap"
            for address, size in self.places.row_spans(ids):
                self._note(action, address, size, time, frames)
        self._free(self.state.given, time)
        for block in self.state.taken:
            self.owned[block] = frames
            for address in self.places.addresses(block):
                self._note("alloc", address, self.places.block_stride, time, frames)

    def _free(self, blocks: Iterable[int], time: int) -> None:
        for block in blocks:
            frames = self.owned.pop(block, None)
            if frames is None:  # it came free with its row already
                continue
            for address in self.places.addresses(block):
                for action in ("free_requested", "free_completed"):
                    self._note(action, address, self.places.block_stride, time, frames)

    def _note(self, action: str, address: int, size: int, time: int, frames: list[Entry]) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames}
        self.entries.append(entry)

    def segments(self) -> Iterator[Entry]:
        """One a run of committed rows in each plane, with its blocks in the order of their addresses."""
        live = sorted((address, block) for block in self.owned for address in self.places.addresses(block))
        at = 0
        for start, size in sorted(self.places.row_spans(sorted(self.state.rows))):
            inside = []
            while at < len(live) and live[at][0] < start + size:
                inside.append(live[at])
                at += 1
            yield self._segment(start, size, inside)

    def _segment(self, start: int, size: int, live: Sequence[tuple[int, int]]) -> Entry:
        blocks, end, stride = [], start, self.places.block_stride
        for address, block in live:
            if address > end:
                blocks.append(_block(end, address - end, 0, "inactive", []))
            blocks.append(_block(address, stride, stride, "active_allocated", self.owned[block]))
            end = address + stride
        if end < start + size:
            blocks.append(_block(end, start + size - end, 0, "inactive", []))
        used = len(live) * stride
        return {
            "device": 0,
            "address": start,
            "total_size": size,
            "allocated_size": used,
            "active_size": used,
            "requested_size": used,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": True,
            "frames": [],
            "blocks": blocks,
        }


def _block(address: int, size: int, requested: int, state: str, frames: list[Entry]) -> Entry:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def _frames(event: Columns, state: State) -> list[Entry]:
    """A stack of one frame: what happened, and to whom."""
    sequence = state.sequences.get(event.sequence)
    who = "pool" if sequence is None else f"sequence {event.sequence}"
    if sequence is not None and sequence.label >= 0:
        who = f"request {sequence.label}"
    return [{"filename": who, "line": 0, "name": state.what}]
