"""Every instruction of ptx.cuh on a GPU and on the CPU: the same bits, but for an approximation's last places."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernels_cu import HostTarget
from kernels_cu.checked_launch import launch_checked

PTX = Path(__file__).parents[1] / "host" / "kernels_cu" / "ptx.cu"
KINDS = re.findall(r"\w+", re.search(r"enum \{(.*?)\}", PTX.read_text(), re.DOTALL)[1])
THREADS = 256
CLOSE = {"EXP2": 4e-7, "LOG2": 4e-7, "RECIPROCAL": 2e-7}
"""Largest relative difference of an approximation."""
FLOATS = ("TO_HALF", "TO_BFLOAT16", "HALF2", "BFLOAT162", "TO_INT8", "TO_E4M3")
MATRICES = [kind for kind in KINDS if kind.startswith(("LDMATRIX", "MOVMATRIX", "MMA"))]
OTHERS = ("HALF_TO_FLOAT", "PERMUTE", "FROM_E4M3", "COPY", "VOTES", "RING", "LOAD_ONCE")


def run(target, array, address, kind, words):
    """What each thread of ptx.cu writes in one of its kinds; ``array`` moves NumPy arrays to where it runs."""
    given, out = array(words), array(np.full_like(words, 0xEEEEEEEE))
    arguments = (np.uint64(address(out)), np.uint64(address(given)), np.int32(KINDS.index(kind)))
    extents = (1, 1, 1), (len(words), 1, 1)
    options = {"stream": 0, "keepalive": (given, out), "shared_bytes": 48 * len(words)}
    launch_checked(target, PTX, {}, *extents, arguments, **options)
    return out if isinstance(out, np.ndarray) else out.get()


def words_for(kind, rng):
    """Operands [threads, 32] of a kind, as test_ptx.py of the CPU describes them."""
    words = rng.integers(0, 1 << 32, (THREADS, 32), np.uint32)
    if kind in CLOSE or kind in FLOATS:
        numbers = rng.standard_normal((THREADS, 32)) * 10.0 ** rng.integers(-9, 9, (THREADS, 32))
        numbers = np.clip(abs(numbers), 1e-30, 120) if kind in CLOSE else numbers
        words = numbers.astype(np.float32).view(np.uint32)
    if kind in MATRICES:
        dtype = ml_dtypes.bfloat16 if kind.endswith("BF16") else np.float16
        small = rng.integers(-8, 9, (THREADS, 12)).astype(
            dtype
        )  # whole numbers: every order of addition gives the same
        words[:, :6] = small.view(np.uint32).reshape(THREADS, 6)
        words[:, 6:10] = rng.integers(-99, 99, (THREADS, 4)).astype(np.float32).view(np.uint32)
        words[:, 10] = rng.permuted(np.tile(np.arange(32), (THREADS // 32, 1)), axis=1).ravel()
    if kind == "HALF_TO_FLOAT":
        words[:, 0] &= 0xFBFF  # no NaN, whose bits nobody promises
    if kind == "COPY":
        words[:, 28:31] = rng.integers(0, (17, 9, 5), (THREADS, 3))
    if kind == "VOTES":
        words[:, 0] = rng.integers(0, 2, THREADS)
    return words


@pytest.mark.parametrize("kind", [*CLOSE, *FLOATS, *MATRICES, *OTHERS])
def test_the_cpu_gives_what_the_gpu_gives(cupy, target, kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(10):
        words = words_for(kind, rng)
        wanted = run(target, cupy.asarray, lambda array: array.data.ptr, kind, words)
        found = run(HostTarget(), np.array, lambda array: array.ctypes.data, kind, words)
        if kind in CLOSE:
            one, other = (bits[:, 0].copy().view(np.float32).astype(np.float64) for bits in (wanted, found))
            assert np.allclose(one, other, rtol=CLOSE[kind], atol=1e-6 if kind == "LOG2" else 0)
        else:
            assert (wanted == found).all()
