"""Why a BlockPool has not so many blocks or rows: its own numbers alone, without a pool around it. Integers only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmm.shortage import Limit, Remedy, Shortage
from vmm.shortage.report import sorted_limits

if TYPE_CHECKING:
    from ..blocks.block_pool import BlockPool


def block_shortage(books: BlockPool, asked: int, rows: int | None) -> Shortage:
    """Why ``asked`` blocks are not to be had, where ``rows`` more rows may be had from elsewhere."""
    granted = books.largest_grantable(rows)
    ids = Limit("virtual range", books.rows.blocks - books.used, f"{books.used} of {books.rows.blocks} are in use")
    name, stands = _row_limit(books, rows)
    limits = sorted_limits([ids, Limit(name, granted, stands)])
    return Shortage("block ids", "blocks", asked, granted, limits[0].name, limits, remedies=_more_rows(books, asked))


def row_shortage(books: BlockPool, asked: int, left: int, rows: int | None) -> Shortage:
    """Why ``asked`` more rows may not be committed, and ``left`` may."""
    name, stands = _row_limit(books, rows)
    remedies: tuple[Remedy, ...] = ()
    most = books.committed.count + asked
    if most <= books.rows.count:
        remedies = (Remedy("raise limit", most, asked, f"let {most} rows be committed", f"{asked - left} more rows"),)
    return Shortage("rows", "rows", asked, left, name, (Limit(name, left, stands),), remedies=remedies)


def _row_limit(books: BlockPool, rows: int | None) -> tuple[str, str]:
    stands = f"{books.committed.count} of {books.max_rows} rows are committed"
    if books.over:
        return "lowered budget", stands
    own = books.max_rows - books.committed.count
    return ("budget", stands) if rows is None or rows >= own else ("shared budget", f"{rows} more rows are to be had")


def _more_rows(books: BlockPool, asked: int) -> tuple[Remedy, ...]:
    """The limit that would be enough, if so many rows have addresses."""
    new, gained = books.committed.plan(max(0, asked - books.places), books.rows.count)
    if books.places + gained < asked:
        return ()
    most = books.committed.count + len(new)
    return (Remedy("raise limit", most, books.places + gained, f"let {most} rows be committed", f"{len(new)} rows"),)
