"""AttachedKV: sequences of another process's pool, to be attended over here without a copy.

    exporter = vmm.sharing.Exporter(pool.range, handoff.chunks)        # there
    memory = vmm.sharing.attach(device, path)                          # here
    kv = paged.AttachedKV(memory, paged.Handoff.from_json(text))
    out = paged.attached_attention.decode(kv, layer, query)

Tokens that are generated here go to a pool of this process; ``attached_attention`` says how the two are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernels_cu import PagedKV
from vmm import ClosedError, StateError
from vmm.sharing import SharedRange

from .handoff import Handoff
from .layout import check_place
from .tables.batched_table import DROPPED, Numbers
from .tables.block_table import Tables, batch_lengths, batch_tables
from .tables.step_tables import StepTables


class AttachedKV:
    """The sequences of ``handoff`` in ``memory``, which ``vmm.sharing.attach`` has mapped; that stays the caller's.

    ``tables`` int32 [B, max_blocks] and ``lengths`` int32 [B] are theirs. Nothing can be appended: it is the other
    pool's memory. Raises ValueError where the chunks are not those of the layout or more than is shared,
    StateError for a block whose memory is not shared.
    """

    def __init__(self, memory: SharedRange, handoff: Handoff) -> None:
        if not isinstance(memory, SharedRange) or not isinstance(handoff, Handoff):
            kinds = f"{type(memory).__name__} and {type(handoff).__name__}"
            raise ValueError(f"AttachedKV takes what attach returned and a Handoff (from_json makes it), not {kinds}")
        _check_shared(memory, handoff)
        self.memory, self.handoff = memory, handoff
        self.device, self.layout = memory.device, handoff.layout
        self.tables: Tables = np.maximum(batch_tables(handoff.tables), 0)  # a dropped block's entry is an id, as any
        self.lengths: Tables = batch_lengths(handoff.lengths)
        self._dropped: Numbers = np.array([handoff.dropped(number) for number in range(len(self))], np.int64)

    def __repr__(self) -> str:
        return f"AttachedKV({len(self)} sequences, {int(self.lengths.sum())} tokens of {self.memory.name!r})"

    def __len__(self) -> int:
        return len(self.handoff.lengths)

    def kv(self, layer: int) -> PagedKV:
        """Where the kernels find K and V of one layer, here. Raises ClosedError once the memory was let go."""
        if self.memory.closed:
            raise ClosedError(f"{self.memory.name} is closed; attach again")
        return self.layout.kv(self.memory.base, self.handoff.blocks, layer)

    def step_tables(self, rows: Sequence[int] | None, like: Any) -> StepTables:
        """What a launch needs of the sequences ``rows`` (None: all), on the side of the array ``like``.

        Raises RangeError for a row that is not there.
        """
        listed = range(len(self)) if rows is None else [check_place("row", row, len(self)) for row in rows]
        chosen = np.array(listed, np.int64)
        tables = np.asarray(self.tables[chosen], like=like)
        return StepTables(tables, self.lengths[chosen], self._dropped[chosen])


def _check_shared(memory: SharedRange, handoff: Handoff) -> None:
    """Refuse what a kernel would read beyond the memory: another pool's layout, and blocks that are not shared."""
    if memory.chunk_size != handoff.layout.chunk:
        raise ValueError(
            f"{memory.name!r} has chunks of {memory.chunk_size} bytes, the handoff of {handoff.layout.chunk}; "
            "attach to the range of the pool that it was made of"
        )
    held = [set(table) - {DROPPED} for table in handoff.tables]
    if any(held) and handoff.layout.block_bytes > memory.committed:  # or to count one block's chunks could take minutes
        raise ValueError(
            f"one block of the handoff has {handoff.layout.block_bytes} bytes, all that {memory.name!r} shares has "
            f"{memory.committed}; attach to the range of the pool that it was made of"
        )
    shared = set(memory.committed_chunks())
    for number, blocks in enumerate(held):
        for block in blocks:
            missing = next((chunk for chunk in handoff.chunks_of(block) if chunk not in shared), None)
            if missing is not None:
                raise StateError(
                    f"block {block} of sequence {number} lies in chunk {missing}, which is not shared; "
                    "give the exporter the chunks of the handoff"
                )
