"""ModelPool: the KV cache of a model whose layers do not all keep the same: one pool a group, on one supply.

Full and windowed layers and latent attention are groups of their own (``KVSpec``). A sequence of the model has its
tokens in every group, so it grows in all of them or in none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence as Ids
from dataclasses import dataclass

from vmm import ChunkSupply, Device, OutOfMemoryError, Size, Supply, format_size, parse_size
from vmm.finishing import Finishing
from vmm.uninterrupted import uninterrupted, whole

from .layout import KVLayout
from .model_sequence import ModelSequence
from .pool import KVPool
from .prefix.known_tokens import TokenIds, as_ids
from .sequence import Sequence
from .spec import KVSpec, ModelSpec


@dataclass(frozen=True, slots=True)
class GroupUse:
    """What one group has, in bytes, and its blocks that are held (``idle`` ones of the prefix cache included)."""

    spec: KVSpec
    committed: int
    live: int
    blocks: int
    idle: int

    def __str__(self) -> str:
        return f"{self.spec}: {format_size(self.live)} live in {format_size(self.committed)}, {self.blocks} blocks"


class ModelPool:
    """A pool for each of ``groups`` on ``device``: KVSpecs, KVLayouts, or a ModelSpec with its groups.

    ``budget`` bounds the committed bytes of all groups together; ``supply`` is where the chunks come from instead, a
    ``Share`` of a supply that several models use, say. Memory goes to the group that needs it. ``order``, ``layout``,
    ``block_size`` and ``chunk`` are those of ``KVLayout``, for groups that are given as KVSpecs. One thread at a time.
    ``pools`` has the KVPool of each group, in their order, and ``ModelSequence.parts`` the Sequence in each: attention,
    batches, compaction and swap spaces take those, group by group.

    Raises ValueError for no group, for a budget that holds no row of each group, and unless one of ``budget`` and a
    ``supply`` with a bound is given.
    """

    @whole
    def __init__(
        self,
        device: Device,
        groups: ModelSpec | Ids[KVSpec | KVLayout],
        *,
        budget: Size | None = None,
        supply: Supply | None = None,
        block_size: int = 16,
        order: str = "block",
        layout: str = "hnd",
        chunk: int | None = None,
        prefix_cache: bool = False,
        reserve_rows: int = 0,
        name: str = "model",
    ) -> None:
        size = (device.granularity if chunk is None else chunk) if supply is None else supply.chunk_size
        if isinstance(groups, KVSpec | KVLayout):
            raise ValueError(
                f"groups must be a ModelSpec or a list of KVSpecs or KVLayouts, not one {type(groups).__name__}"
            )
        specs = groups.groups if isinstance(groups, ModelSpec) else groups
        layouts = [
            one if isinstance(one, KVLayout) else KVLayout(one, block_size, order, layout, size) for one in specs
        ]
        bound = _bound(budget, supply)
        least = sum(one.rows(1).count * one.row_bytes for one in layouts)
        if not layouts or bound < least:
            what = f"{format_size(bound)} for {len(layouts)} groups, which need {format_size(least)} for a block each"
            raise ValueError(f"a model pool needs groups and memory for them, not {what}")
        self.device, self.name, self.prefix_cache = device, name, prefix_cache
        self._owns = supply is None
        self.supply: Supply = ChunkSupply(device, layouts[0].chunk, budget=bound) if supply is None else supply
        self.pools: list[KVPool] = []
        self._sequences: dict[ModelSequence, None] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for number, one in enumerate(layouts):
                self.pools.append(
                    KVPool(
                        device,
                        one,
                        budget=bound,
                        supply=self.supply,
                        prefix_cache=prefix_cache,
                        reserve_rows=reserve_rows,
                        name=f"{name}.{number}",
                    )
                )
            undo.pop_all()

    def __repr__(self) -> str:
        return f"ModelPool({self.name!r}, {len(self.pools)} groups, {format_size(self.committed)} committed)"

    def __enter__(self) -> ModelPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """Bytes of physical memory of all groups."""
        return sum(pool.committed for pool in self.pools)

    @property
    def live(self) -> int:
        """Bytes of the tokens that exist, over all groups."""
        return sum(pool.live for pool in self.pools)

    @property
    def sequences(self) -> list[ModelSequence]:
        """The sequences that have not been freed."""
        return list(self._sequences)

    def groups(self) -> list[GroupUse]:
        """What each group has."""
        return [
            GroupUse(pool.layout.spec, pool.committed, pool.live, pool.block_pool.used, pool.blocks_idle)
            for pool in self.pools
        ]

    def check(self) -> None:
        """Prove the invariants of every pool, and that a sequence has its tokens in all; else it is a bug of ours."""
        for pool in self.pools:
            pool.check()
        for sequence in self._sequences:
            if len({part.length for part in sequence.parts if part.is_open}) > 1:  # some may have been freed alone
                raise AssertionError(f"{sequence} has {[part.length for part in sequence.parts]} tokens in its groups")

    # -- changes ------------------------------------------------------------------------------------------------

    @uninterrupted
    def sequence(self, prompt: TokenIds | None = None, *, salt: int = 0) -> ModelSequence:
        """A new sequence: without tokens, or with the longest prefix of ``prompt`` that every group's cache knows.

        Raises as ``KVPool.sequence``; no group has anything then.
        """
        parts = self._begin(prompt, salt)
        shortest = min(part.length for part in parts)
        if prompt is not None and any(part.length > shortest for part in parts):
            self._end(parts)
            ids = as_ids(prompt)
            assert ids is not None, "it was a prompt"
            parts = self._begin(ids[: shortest + 1], salt)  # one token is always left over
        made = ModelSequence(self, parts)
        self._sequences[made] = None
        return made

    def adopt(self, parts: Ids[Sequence]) -> ModelSequence:
        """A sequence from its parts, one a group; what ``ModelSequence.fork`` does."""
        made = ModelSequence(self, list(parts))
        self._sequences[made] = None
        return made

    def forget(self, sequence: ModelSequence) -> None:
        """Strike a freed sequence off the list; ``ModelSequence.free`` does it."""
        self._sequences.pop(sequence, None)

    @uninterrupted
    def trim(self, *, cache: bool = False) -> int:
        """Give back every empty row of every group, with ``cache`` idle blocks too; the bytes."""
        return sum(pool.trim(cache=cache) for pool in self.pools)

    @uninterrupted
    def close(self) -> None:
        """Close every pool, and the supply if it is the pool's own. Closing twice does nothing."""
        with Finishing() as rest:
            for pool in self.pools:
                rest.run(pool.close)
            self._sequences.clear()
            if self._owns:
                rest.run(self.supply.close)

    # -- room -----------------------------------------------------------------------------------------------------

    def plan(self, needs: Ids[int]) -> list[int] | None:
        """How many idle blocks each group must drop so that it can have ``needs`` blocks, all at once; None: not now.

        The groups draw on one supply, so that each could have its blocks says nothing about all of them.
        """
        rows = self._new_rows(needs, [0] * len(self.pools))
        if rows is not None and self._have(rows, self.supply.available):
            return [0] * len(self.pools)
        drops = self._drops(needs)
        rows = self._new_rows(needs, drops)
        if rows is None:
            return None
        return drops if self._have(rows, self.supply.obtainable(*self.busy(needs))) else None

    def busy(self, needs: Ids[int]) -> list[KVPool]:
        """The groups that have no blocks to spare for others while they take ``needs``."""
        return [pool for pool, need in zip(self.pools, needs, strict=True) if need > pool.block_pool.available]

    def new_chunks(self, needs: Ids[int]) -> int:
        """Chunks that ``needs`` blocks take of the supply, once idle blocks have gone for them."""
        rows = self._new_rows(needs, self._drops(needs)) or []
        return sum(count * pool.layout.planes for pool, count in zip(self.pools, rows, strict=True))

    def drop_idle(self, drops: Ids[int]) -> None:
        """Drop idle blocks as ``plan`` said."""
        for pool, count in zip(self.pools, drops, strict=True):
            if count and pool.prefix:
                pool.prefix.evict(count)

    # -- steps --------------------------------------------------------------------------------------------------

    def _drops(self, needs: Ids[int]) -> list[int]:
        """Idle blocks of each group that go rather than new rows come."""
        return [
            min(pool.blocks_idle, max(0, need - pool.block_pool.available))
            for pool, need in zip(self.pools, needs, strict=True)
        ]

    def _new_rows(self, needs: Ids[int], drops: Ids[int]) -> list[int] | None:
        """Rows that each group must commit, or None where one has not the room."""
        try:
            return [
                len(pool.block_pool.choose(need - drop).rows)
                for pool, need, drop in zip(self.pools, needs, drops, strict=True)
            ]
        except OutOfMemoryError:
            return None

    def _have(self, rows: Ids[int], left: int | None) -> bool:
        needed = sum(count * pool.layout.row_bytes for pool, count in zip(self.pools, rows, strict=True))
        return left is None or needed <= left

    def _begin(self, prompt: TokenIds | None, salt: int) -> list[Sequence]:
        with contextlib.ExitStack() as undo:
            parts: list[Sequence] = []
            undo.callback(self._end, parts)
            for pool in self.pools:
                parts.append(pool.sequence(prompt, salt=salt))
            undo.pop_all()
        return parts

    def _end(self, parts: list[Sequence]) -> None:
        for part in parts:
            part.free()


def _bound(budget: Size | None, supply: Supply | None) -> int:
    """The bytes that all groups together may have."""
    if supply is None and budget is not None:
        return parse_size(budget, name="budget")
    if supply is None or budget is not None or supply.budget is None:
        raise ValueError("a model pool needs either budget=, or supply= with a budget or a ceiling")
    return supply.budget
