"""The numbers that a picture is about, in a line or two."""

from __future__ import annotations

from vmm import format_size

from .picture import Picture


def headline(picture: Picture) -> str:
    """The numbers that a picture is about, in one line."""
    tables = picture.tables
    sizes = f"{format_size(picture.reserved)} reserved, {format_size(picture.committed)} committed"
    if picture.asleep:
        sizes += f", {format_size(picture.asleep)} asleep"
    count = f"{len(tables):,} sequence{'s' * (len(tables) != 1)}, {picture.tokens:,} tokens"
    return f"{sizes}, {format_size(picture.live)} live; {count}"


def describe(picture: Picture) -> str:
    """The shape of the pool, in one line."""
    planes = f"order {picture.order}: {picture.planes} plane{'s' * (picture.planes != 1)}"
    blocks = f"blocks of {picture.block_size} tokens ({format_size(picture.block_bytes)})"
    held = int((picture.counts > 0).sum())
    shared = int((picture.counts > 1).sum())
    return f"{blocks}, {planes} of {format_size(picture.chunk)} chunks; {held:,} blocks held, {shared:,} of them shared"
