"""What a picture says of a pool's rows: how they lie in planes, what one takes and holds."""

from __future__ import annotations

from vmm import format_size

from .picture import Picture


def memory_title(picture: Picture) -> str:
    """What the section shows, and how the planes stand to it."""
    if picture.planes == 1:
        return "Physical memory under the range: row i is chunk i"
    alike = "alike" if picture.planes_alike else "NOT alike"
    return f"Physical memory under plane 0 of {picture.planes}: row i is chunk i of every plane, all {alike}"


def memory_note(picture: Picture) -> str:
    """What a row takes and holds."""
    a_row = picture.chunk / picture.block_stride
    blocks = "1 block" if a_row == 1 else f"{a_row:g} blocks"
    return f"a row is {format_size(picture.row_bytes)}: {blocks} of {format_size(picture.block_bytes)}"
