"""Places: where the rows and blocks of a recording lie, from its geometry alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..blocks.rows import Rows


class Places:
    """Addresses of a recorded pool: row r is chunk r of every plane, block b lies in every plane at b strides."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.base: int = about["base"]
        self.planes: int = about["planes"]
        self.plane_stride: int = about["plane_stride"]
        self.block_stride: int = about["block_stride"]
        self.chunk: int = about["chunk"]
        self.rows = Rows(about["blocks"], self.block_stride, self.chunk)
        self.touching = self.rows.touching

    def addresses(self, block: int) -> list[int]:
        """Where a block begins, in each plane."""
        start = self.base + block * self.block_stride
        return [start + plane * self.plane_stride for plane in range(self.planes)]

    def row_spans(self, rows: Iterable[int]) -> list[tuple[int, int]]:
        """(address, bytes) of the chunks of some rows, neighbours joined, plane by plane."""
        runs = runs_of(rows)
        return [
            (self.base + plane * self.plane_stride + first * self.chunk, count * self.chunk)
            for plane in range(self.planes)
            for first, count in runs
        ]


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """(first, count) of each run of neighbours."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][0] + found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return found
