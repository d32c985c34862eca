"""Why a ModelPool's sequence cannot grow in all of its groups: one of them has not the blocks, or not all together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence as Ids
from typing import TYPE_CHECKING

from vmm import Shortage
from vmm.shortage import Held

if TYPE_CHECKING:
    from ..model_pool import ModelPool


def group_shortage(model: ModelPool, needs: Ids[int]) -> Shortage | None:
    """Why the groups cannot have ``needs`` blocks at once; None where they can.

    In blocks of the group that alone has not enough, or in bytes of the supply, on which all of them draw.
    """
    if model.plan(needs) is not None:
        return None
    alone = [pool.shortage(need) for pool, need in zip(model.pools, needs, strict=True)]
    short = [one for one in alone if one is not None]
    if short:
        return max(short, key=lambda one: one.asked - (one.granted or 0))
    together = model.supply.shortage(model.new_chunks(needs), *model.busy(needs))
    assert together is not None, "each group alone has the blocks, so it is the supply that has not"
    holders = tuple(Held(pool.range.name, pool.committed) for pool in model.pools)
    return dataclasses.replace(together, name=f"groups of {model.name}", holders=(*holders, *together.holders))
