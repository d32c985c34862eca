"""The net under the fast kernels: right ones pass, wrong ones are a warning and are not used, and it looks once."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest

from kernels_cu import CompileError, HostTarget, PagedKV, Scoring, checked_launch, net
from kernels_cu.net import KERNELS

SHAPES = [
    ("float16", "float16", "hnd", 128, 16, 4),
    ("e4m3", "bfloat16", "nhd", 64, 8, 1),
    ("bfloat16", "bfloat16", "hnd", 64, 32, 12),
    ("e4m3", "bfloat16", "hnd", 128, 16, 8),
    ("e4m3", "float16", "nhd", 64, 16, 2),
    ("bfloat16", "bfloat16", "nhd", 256, 16, 1),
    ("int8", "bfloat16", "hnd", 64, 1, 4),
]


def _kv(dtype="float16", layout="hnd", head_dim=64, block_size=16):
    """A cache at no address in particular: the net has memory of its own."""
    row = 2 * head_dim
    strides = (block_size * head_dim, head_dim) if layout == "hnd" else (head_dim, row)
    return PagedKV(1 << 40, 1 << 41, dtype, layout, block_size, 2, head_dim, 2 * block_size * row, *strides)


def _holds(device, kernel, kv=None, query_dtype="float16", group=2, target=None):
    found = target or HostTarget()
    return net.holds(found, device, kernel, kv or _kv(), query_dtype, group, move=np.array, wait=lambda: None)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_that_are_right_pass(kernel):
    for shape in SHAPES[:2]:
        _passes(kernel, shape)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_that_are_right_pass_in_every_shape(kernel):
    for shape in SHAPES[2:]:
        _passes(kernel, shape)


def _passes(kernel, shape):
    dtype, query, layout, head_dim, block_size, group = shape
    assert _holds("a GPU of right kernels", kernel, _kv(dtype, layout, head_dim, block_size), query, group), shape


def _another_type(monkeypatch, kernel):
    """Built for bfloat16 where K and V are float16."""
    load = checked_launch.load

    def load_wrong(source, constants, *what):
        wrong = {name: "bfloat16" if value == "float16" else value for name, value in constants.items()}
        return load(source, wrong if source == kernel else constants, *what)

    monkeypatch.setattr(checked_launch, "load", load_wrong)


def _another_sequence(monkeypatch, kernel):
    """The block table, or the start, of each sequence is another's."""
    _change(monkeypatch, kernel, lambda plan, walk, options: (plan, np.roll(walk, 1, axis=0), options))


def _another_scale(monkeypatch, kernel):
    """Scores are a little too large."""
    options = {"scoring": Scoring(scale=0.15)}
    _change(monkeypatch, kernel, lambda plan, walk, given: (plan, walk, {**given, **options}))


def _fewer_tokens(monkeypatch, kernel):
    """The last tokens of each piece of work are left out, those that fill no tile."""

    def shorter(plan, walk, options):
        if kernel == "paged_prefill":
            return plan, walk, {**options, "window": 30}
        segments = plan.segments.copy()
        segments[:, 4] = np.maximum(segments[:, 4] // 16 * 16, 1)
        return dataclasses.replace(plan, segments=segments), walk, options

    _change(monkeypatch, kernel, shorter)


def _nothing_written(monkeypatch, kernel):
    """The output is what it was."""
    monkeypatch.setattr(net.launch, kernel, lambda *_, **__: None)


def _change(monkeypatch, kernel, change):
    right = getattr(net.launch, kernel)

    def wrong(target, kv, plan, query, walk, *rest, **options):
        plan, walk, options = change(plan, walk, options)
        right(target, kv, plan, query, walk, *rest, **options)

    monkeypatch.setattr(net.launch, kernel, wrong)


WRONG = (_another_type, _another_sequence, _another_scale, _fewer_tokens, _nothing_written)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("make_wrong", WRONG)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_that_is_wrong_is_a_warning_and_is_not_used(monkeypatch, kernel, make_wrong):
    make_wrong(monkeypatch, kernel)
    with pytest.warns(RuntimeWarning, match=f"^{kernel} does not agree with the simple kernel on a GPU with_"):
        assert not _holds(f"a GPU with{make_wrong.__name__}", kernel)


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
