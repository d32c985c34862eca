"""What append and gather do to values on their way: turned by position, divided by a scale, rounded. NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def turned(rows: Values, turns: Values, positions: Values, style: str) -> NDArray[np.float64]:
    """Rows [T, H, D] with their first R elements turned by the row of ``turns`` [P, R] of each token's position."""
    result = rows.astype(np.float64)
    size = turns.shape[1]
    cosine, sine = np.split(turns[positions].astype(np.float64)[:, None, :], 2, axis=2)
    first, second = (
        (slice(0, size // 2), slice(size // 2, size))
        if style == "halves"
        else (
            slice(0, size, 2),
            slice(1, size, 2),
        )
    )
    x, y = result[..., first].copy(), result[..., second].copy()
    result[..., first] = x * cosine - y * sine
    result[..., second] = y * cosine + x * sine
    return result


def quantised(rows: Values, dtype: str, scale: Values) -> Values:
    """Rows [T, H, D] times 1 / scale [H] or [1], in float32, rounded to e4m3 (at most 448) or int8 (-128 to 127)."""
    scaled = rows.astype(np.float32) * (np.float32(1) / scale.astype(np.float32))[:, None]
    if dtype == "int8":
        return np.clip(np.rint(scaled), -128, 127).astype(np.int8)
    return np.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn)


def dequantised(rows: Values, scale: Values) -> NDArray[np.float64]:
    """Rows [T, H, D] of a narrow type times scale [H] or [1]."""
    result: NDArray[np.float64] = rows.astype(np.float64) * scale.astype(np.float64)[:, None]
    return result
