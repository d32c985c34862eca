"""Scoring: how scores are made of q . k and how they are summed, the same in decode and prefill."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass

import numpy as np

from .arrays import Array, ArrayView, optional_view
from .errors import LaunchError
from .paged_kv import NARROW, PagedKV
from .parameters import Argument

LOG2_E = math.log2(math.e)
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Scoring:
    """Options of attention. Arrays are float32, where the kernels run.

    ``scale`` multiplies q . k, 1 / sqrt(D) if None. ``soft_cap`` c turns a score x into c tanh(x / c). ``alibi`` [Hq]
    are slopes: slope * (token - the query's own position) is added. ``sinks`` [Hq] are one more logit of each head,
    which counts in the denominator alone, and in the LSE. ``key_scale`` and ``value_scale`` [Hkv] or [1] belong to a
    cache of e4m3 or int8: K and V are its values times these. Raises LaunchError for numbers that make no sense.
    """

    scale: float | None = None
    soft_cap: float | None = None
    alibi: Array | None = None
    sinks: Array | None = None
    key_scale: Array | None = None
    value_scale: Array | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.scale is not None:
            checked_scale(self.scale)
        cap = self.soft_cap
        if cap is not None and not (0 < _float32("soft_cap", cap, 1) <= LARGEST):
            raise LaunchError(f"soft_cap must be a positive number of float32, not {cap!r}; None is none")

    def flags(self) -> dict[str, int]:
        """The constants that say which options a kernel is compiled for."""
        return {
            "SOFT_CAP": int(self.soft_cap is not None),
            "ALIBI": int(self.alibi is not None),
            "SINKS": int(self.sinks is not None),
        }

    def arrays(self) -> tuple[Array | None, ...]:
        """What must live as long as the launch."""
        return (self.alibi, self.sinks, self.key_scale, self.value_scale)

    def arguments(self, kv: PagedKV, query_heads: int, arch: str) -> tuple[Argument, ...]:
        """alibi, sinks, key_scale, value_scale, scale_stride, scale in base 2, soft_cap, as every kernel takes them."""
        key, value, stride = scale_views(kv, self.key_scale, self.value_scale, arch)
        heads = (query_heads,)
        per_head = [optional_view(name, getattr(self, name), arch, "float32", heads) for name in ("alibi", "sinks")]
        factor = 1 / math.sqrt(kv.head_dim) if self.scale is None else self.scale
        return (
            *(np.uint64(seen.address) for seen in (*per_head, key, value)),
            np.int32(stride),
            np.float32(factor * LOG2_E),
            np.float32(self.soft_cap or 0),
        )


def checked_scale(scale: float) -> float:
    """``scale``. Raises LaunchError unless it is a number that float32 holds, as the kernels need it: times log2 e."""
    if not abs(_float32("scale", scale, LOG2_E)) <= LARGEST:
        raise LaunchError(f"scale must be a finite number of float32, not {scale!r}")
    return scale


def _float32(name: str, number: float, factor: float) -> float:
    """The product, rounded to float32, infinite where that holds no such number."""
    try:
        with np.errstate(over="ignore"):
            return float(np.float32((number + 0.0) * factor))
    except (TypeError, ValueError, OverflowError):
        raise LaunchError(f"{name} must be a number of float32, not {reprlib.repr(number)}") from None


def scale_views(
    kv: PagedKV, key_scale: Array | None, value_scale: Array | None, arch: str
) -> tuple[ArrayView, ArrayView, int]:
    """The scales of a narrow cache and the stride from one KV head's to the next: 0 for one of all heads.

    Raises LaunchError where scales are missing, of two extents, or given for a cache that has none.
    """
    arrays = {"key_scale": key_scale, "value_scale": value_scale}
    for name, array in arrays.items():
        if (array is None) == (kv.dtype in NARROW):
            wanted = f"needs {name}, float32 [{kv.kv_heads}] or [1]" if array is None else f"has no {name}"
            raise LaunchError(f"a cache of {kv.dtype} {wanted}")
    views = [optional_view(name, array, arch, "float32", (None,)) for name, array in arrays.items()]
    extents = {seen.shape[0] for seen in views}
    if kv.dtype in NARROW and extents not in ({1}, {kv.kv_heads}):
        raise LaunchError(f"key_scale and value_scale must both be [{kv.kv_heads}] or [1], not {sorted(extents)}")
    return views[0], views[1], int(kv.dtype in NARROW and extents == {kv.kv_heads} and kv.kv_heads > 1)
