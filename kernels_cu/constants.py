"""The -D constants that a kernel is compiled with."""

from __future__ import annotations

from collections.abc import Mapping

from .paged_kv import PagedKV

Constants = Mapping[str, int | str]
"""Name and value of each constant."""


def constants_for(dtype: str, head_dim: int, layout: str) -> dict[str, int | str]:
    """What the kernels are compiled for. hnd and nhd are one build: they differ in their strides alone."""
    return {"ELEMENT": dtype, "HEAD_DIM": head_dim, "LAYOUT_VLLM": int(layout == "vllm")}


def constants_of(kv: PagedKV) -> dict[str, int | str]:
    """The constants of the kernels that walk ``kv``."""
    return constants_for(kv.dtype, kv.head_dim, kv.layout)


def define(constants: Constants) -> tuple[str, ...]:
    """The compiler options that set ``constants``, in the order of their names."""
    return tuple(f"-D{name}={value}" for name, value in sorted(constants.items()))
