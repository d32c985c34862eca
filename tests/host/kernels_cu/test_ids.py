"""Ids that lie on the host are looked at before a launch: nobody follows one to memory that is not the pool's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kernels_cu import (
    Blocks,
    HostTarget,
    LaunchError,
    PagedKV,
    Rotary,
    checked_launch,
    launch,
    plan_decode,
    plan_prefill,
)
from kernels_cu.rotary import rotary_table

BLOCKS, SIZE, D = 6, 16, 64
KV = PagedKV(1 << 40, 1 << 41, "float16", "hnd", SIZE, 2, D, 2 * SIZE * D, SIZE * D, D, BLOCKS)
ROWS = np.zeros((2, 2, D), np.float16)


class _Never:
    """A kernel that may not run."""

    name, parameters = "never", ()

    def launch(self, *_):
        raise AssertionError("something was launched")


@pytest.fixture
def never(monkeypatch):
    """The CPU, where everything happens but the run of a kernel."""
    monkeypatch.setattr(checked_launch, "load", lambda *_: _Never())
    monkeypatch.setattr(checked_launch, "check_arguments", lambda *_: None)
    return HostTarget()


@pytest.fixture
def recorded(never):
    """The same, where launches wait in a list."""
    never.queued = []
    never.submit = lambda *launch: never.queued.append(launch[1])
    return never


def _append(target, kv, slots):
    launch.append_kv(target, kv, ROWS[: len(slots)], ROWS[: len(slots)], np.array(slots, np.int64))


def _gather(target, kv, slots):
    launch.gather_kv(target, kv, np.array(slots, np.int64), ROWS[: len(slots)].copy(), ROWS[: len(slots)].copy())


@pytest.mark.parametrize("act", [_append, _gather])
def test_a_slot_beyond_the_pool_is_refused(never, act):
    with pytest.raises(LaunchError, match="slots has slot 96, which is not there; the pool has slots 0 to 95"):
        act(never, KV, [3, 96])
    with pytest.raises(LaunchError, match="slots has slot 9223372036854775807, which is not there"):
        act(never, KV, [2**63 - 1])
    for kv, slots in ((KV, [95, -1]), (dataclasses.replace(KV, blocks=None), [96, 0])):
        with pytest.raises(AssertionError, match="something was launched"):
            act(never, kv, slots)


def _simple(target, kv, tables, lengths):
    query = np.zeros((2, 2, D), np.float16)
    launch.paged_attention_simple(target, kv, query, tables, lengths, query.copy())


def _decode(target, kv, tables, lengths, window=None):
    query, plan = np.zeros((2, 2, D), np.float16), plan_decode(lengths, 2, 2, shares=1, window=window)
    launch.paged_decode(target, kv, plan, query, tables, lengths, query.copy())


def _prefill(target, kv, tables, lengths, window=None):
    plan = plan_prefill([2, 2], lengths, 2, 2)
    query = np.zeros((4, 2, D), np.float16)
    launch.paged_prefill(target, kv, plan, query, tables, query.copy(), window=window)


@pytest.mark.parametrize("act", [_simple, _decode, _prefill])
@pytest.mark.parametrize("wrong", [BLOCKS, 1 << 30, -1])
def test_a_block_that_a_kernel_would_follow_is_refused(never, act, wrong):
    tables, lengths = np.array([[0, 5, 9], [2, 3, -7]], np.int32), np.array([32, 17], np.int32)
    with pytest.raises(AssertionError, match="something was launched"):
        act(never, KV, tables, lengths)  # behind the length anything may stand
    tables[1, 1] = wrong
    text = rf"block_tables\[1, 1\] is {wrong}, which is not there; the pool has blocks 0 to 5"
    with pytest.raises(LaunchError, match=text):
        act(never, KV, tables, lengths)
    unknown = dataclasses.replace(KV, blocks=None)
    error, text = (LaunchError, "no block has a negative id") if wrong < 0 else (AssertionError, "was launched")
    with pytest.raises(error, match=text):
        act(never, unknown, tables, lengths)


@pytest.mark.parametrize("act", [_decode, _prefill])
def test_what_lies_before_a_window_may_be_gone(never, act):
    tables, lengths = np.array([[-1, 5, 1], [2, 3, 4]], np.int32), np.array([40, 48], np.int32)
    seen = 23 if act is _prefill else 24  # the first of two queries sees one token more
    with pytest.raises(AssertionError, match="something was launched"):
        act(never, KV, tables, lengths, window=seen)
    with pytest.raises(LaunchError, match=r"block_tables\[0, 0\] is -1"):
        act(never, KV, tables, lengths, window=seen + 1)


def test_blocks_beyond_their_memory_are_refused(never):
    memory, other = (Blocks(1 << 40, 32, 32, blocks=count) for count in (4, 8))
    for pairs, text in (
        ([[4, 0]], "pairs has source block 4, which is not there; the pool has source blocks 0 to 3"),
        ([[0, 8]], "pairs has destination block 8, which is not there; the pool has destination blocks 0 to 7"),
    ):
        for act in (launch.copy_blocks, launch.swap_blocks, launch.swap_runs):
            with pytest.raises(LaunchError, match=text):
                act(never, memory, other, np.array(pairs, np.int64))
    with pytest.raises(LaunchError, match="ids has block 4, which is not there; the pool has blocks 0 to 3"):
        launch.fill_blocks(never, memory, np.array([0, 4], np.int64))
    with pytest.raises(AssertionError, match="something was launched"):
        launch.copy_blocks(never, memory, other, np.array([[3, 7], [9, -1]], np.int64))


def test_positions_beyond_the_table_are_refused(never):
    turns = rotary_table(10, D)
    for positions, text in (([0, 10], "positions has position 10, which is not there"), ([-1, 0], "positions has -1")):
        rotary = Rotary(turns, np.array(positions, np.int32))
        with pytest.raises(LaunchError, match=text):
            launch.rotate_query(never, ROWS, rotary, ROWS.copy())
        with pytest.raises(LaunchError, match=text):
            launch.append_kv(never, KV, ROWS, ROWS, np.array([0, 1]), rotary=rotary)


def test_a_queued_launch_looks_when_it_runs(recorded):
    """Work before it may change tables, as a patch of device tables does; what is wrong by then is refused."""
    tables, lengths = np.array([[-1, 9], [0, 0]], np.int32), np.array([32, 17], np.int32)
    _simple(recorded, KV, tables, lengths)
    tables[0] = [1, 2]
    with pytest.raises(AssertionError, match="something was launched"):
        recorded.queued.pop()()
    _simple(recorded, KV, tables, lengths)
    tables[0, 1] = 77
    with pytest.raises(LaunchError, match=r"block_tables\[0, 1\] is 77"):
        recorded.queued.pop()()


def test_a_count_that_makes_no_sense_is_refused():
    with pytest.raises(LaunchError, match="blocks must be at least 0, not -1"):
        dataclasses.replace(KV, blocks=-1)
