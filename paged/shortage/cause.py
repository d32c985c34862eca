"""Why a pool has not so many blocks: the limit that binds, what fills it up, and what would help."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vmm import OutOfMemoryError, Shortage
from vmm.shortage import Limit

from .limits import holders_of, limits_of, portions_of
from .remedies import remedies_of

if TYPE_CHECKING:
    from ..pool import KVPool


def shortage_of(pool: KVPool, asked: int) -> Shortage | None:
    """What ``KVPool.shortage`` does."""
    limits = limits_of(pool, asked)
    granted = min(pool.blocks_free, limits[0].allows or 0)
    if asked <= granted:
        return None
    remedies = remedies_of(pool, asked, limits[0])
    return Shortage(
        name=pool.range.name,
        unit="blocks",
        asked=asked,
        granted=granted,
        cause=_cause(limits[0], {remedy.action for remedy in remedies}),
        limits=limits,
        portions=tuple(portions_of(pool)),
        holders=tuple(holders_of(pool, limits[0])),
        remedies=tuple(remedies),
    )


@contextlib.contextmanager
def explained(pool: KVPool, asked: int) -> Iterator[None]:
    """Give an OutOfMemoryError from inside the ``with`` its report."""
    try:
        yield
    except OutOfMemoryError as error:
        report = shortage_of(pool, asked)
        if report is None:  # the driver refuses what it seemed to have: what is known of that call stays
            raise
        error.report = report
        if report.cause == "device":
            error.add(report.advice())  # the refused call and its chunk are told already
        else:
            error.args = (f"{report.lines()[0]}; {report.advice()}",)
        raise


def _cause(limit: Limit, helpful: set[str]) -> str:
    """The limit, or what keeps a lowered budget from being met."""
    if limit.name == "lowered budget":
        return "fragmentation" if "compact" in helpful else "pinned" if "unpin" in helpful else limit.name
    return "floor" if "lower floor" in helpful else limit.name
