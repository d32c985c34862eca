"""The net under the fast kernels: right ones pass, wrong ones are a warning and are not used, and it looks once."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest

from kernels_cu import CompileError, HostTarget, PagedKV, checked_launch, net
from kernels_cu.net import KERNELS
from kernels_cu.source import PACKAGE

SHAPES = [
    ("float16", "float16", "hnd", 128, 16, 4),
    ("bfloat16", "bfloat16", "nhd", 64, 8, 1),
    ("bfloat16", "bfloat16", "hnd", 64, 32, 12),
    ("e4m3", "bfloat16", "hnd", 128, 16, 8),
    ("e4m3", "float16", "nhd", 64, 16, 2),
    ("int8", "bfloat16", "hnd", 64, 1, 4),
]
BROKEN = {
    "paged_decode": [
        ("scores[n][e] = t < segment.end", "scores[n][e] = t <= segment.end"),
        ("const int bytes = row < last && (!WINDOW || row >= begin) ? 16 : 0;", "const int bytes = 16;"),
        ("ptx_movmatrix_trans(Core::pack(scores[n][0], scores[n][1]))", "Core::pack(scores[n][0], scores[n][1])"),
    ],
    "contiguous_decode": [("scores[n][e] = t < segment.end", "scores[n][e] = t <= segment.end")],
    "paged_prefill": [
        ("token <= position[r])", "token < position[r])"),
        (
            "rows.position[r] = tile.position + packed / group;",
            "rows.position[r] = tile.position + packed / group + 1;",
        ),
    ],
}


def _kv(dtype="float16", layout="hnd", head_dim=64, block_size=16):
    """A cache at no address in particular: the net has memory of its own."""
    row = 2 * head_dim
    strides = (block_size * head_dim, head_dim) if layout == "hnd" else (head_dim, row)
    return PagedKV(1 << 40, 1 << 41, dtype, layout, block_size, 2, head_dim, 2 * block_size * row, *strides)


def _holds(device, kernel, kv=None, query_dtype="float16", group=2, target=None):
    found = target or HostTarget()
    return net.holds(found, device, kernel, kv or _kv(), query_dtype, group, move=np.array, wait=lambda: None)


@pytest.fixture
def replaced(tmp_path, monkeypatch):
    """Replace a piece of the package's kernels, for one kernel, for the rest of the test."""

    def replace(kernel, before, after):
        for path in PACKAGE.glob("*.cu*"):
            shutil.copy(path, tmp_path)
        (path,) = [path for path in tmp_path.glob("*.cu*") if before in path.read_text()]
        path.write_text(path.read_text().replace(before, after))
        load = checked_launch.load
        monkeypatch.setattr(
            checked_launch,
            "load",
            lambda source, *what: load(tmp_path / f"{source}.cu" if source == kernel else source, *what),
        )

    return replace


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_that_are_right_pass_in_every_shape(kernel):
    for shape in SHAPES:
        dtype, query, layout, head_dim, block_size, group = shape
        kv = _kv(dtype, layout, head_dim, block_size)
        assert _holds("a GPU of right kernels", kernel, kv, query, group), shape


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize(("kernel", "change"), [(kernel, change) for kernel in BROKEN for change in BROKEN[kernel]])
def test_a_kernel_that_is_wrong_is_a_warning_and_is_not_used(replaced, kernel, change):
    replaced(kernel, *change)
    with pytest.warns(RuntimeWarning, match=f"^{kernel} does not agree with the simple kernel on a GPU with"):
        assert not _holds(f"a GPU with {change}", kernel)


@pytest.mark.usefixtures("target")
def test_a_kernel_that_does_not_compile_is_not_used(monkeypatch):
    def refuse(*_, **__):
        raise CompileError("NVRTC could not compile paged_decode: no such instruction")

    monkeypatch.setattr(net.launch, "paged_decode", refuse)
    with pytest.warns(RuntimeWarning, match="no such instruction; the simple kernel is used instead"):
        assert not _holds("a GPU without the instruction", "paged_decode")


class _Counting(HostTarget):
    def __init__(self):
        super().__init__()
        self.launches = 0

    def submit(self, stream, call, keepalive):
        self.launches += 1
        super().submit(stream, call, keepalive)


@pytest.mark.usefixtures("target")
def test_each_kernel_and_shape_is_looked_at_once_a_device():
    target = _Counting()
    counts = []
    for device, kernel, group in (("one", "paged_decode", 2), ("one", "paged_decode", 2), ("one", "paged_prefill", 2),
                                  ("one", "paged_decode", 4), ("another", "paged_decode", 2)):  # fmt: skip
        before = target.launches
        assert _holds(f"{device} that counts", kernel, group=group, target=target)
        counts.append(target.launches - before)
    assert counts == [3, 0, 2, 3, 3]  # decode, merge and simple; prefill and simple


def test_where_kernels_were_proven_nothing_is_launched(never, monkeypatch):
    monkeypatch.setattr(net, "DEVICES", frozenset({"NVIDIA Proven"}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(_holds("NVIDIA Proven", kernel, target=never) for kernel in KERNELS)


def test_other_kernels_have_no_net(never):
    with pytest.raises(ValueError, match="not 'append_kv'"):
        _holds("any", "append_kv", target=never)
