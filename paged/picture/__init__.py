"""A picture of both page tables of a pool: chunks above, block tables below, one colour for a sequence in both.

``picture_of(pool)`` is the snapshot, integers only; ``show`` prints it, ``draw`` writes it as a PNG or SVG file.
"""

from .draw import draw, show
from .picture import BlockKind, ChunkState, Picture, Tables
from .snapshot import picture_of
from .spending import Spending, spending_of
from .text import plain_text

__all__ = [
    "BlockKind",
    "ChunkState",
    "Picture",
    "Spending",
    "Tables",
    "draw",
    "picture_of",
    "plain_text",
    "show",
    "spending_of",
]
