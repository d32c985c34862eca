"""patch_table and tlb_probe on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_cu import HostTarget, LaunchError, launch, reference_blocks


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_patches_change_their_entries_and_nothing_else(target, dtype):
    rng = np.random.default_rng(1)
    wide = rng.integers(0, 1 << 30, (9, 20)).astype(dtype)
    table = wide[::2, 3:17]  # rows that lie apart
    wanted_wide = wide.copy()
    places = rng.permutation(5 * 14)[:40]
    patches = np.stack([places // 14, places % 14, rng.integers(-5, 1 << 30, 40)], axis=1)
    patches[[3, 9, 20, 21]] = [[-1, 0, 7], [0, 14, 7], [5, 0, 7], [0, -1, 7]]
    reference_blocks.patch_table(wanted_wide[::2, 3:17], patches)
    launch.patch_table(target, table, patches)
    assert (wide == wanted_wide).all()
    assert (table[tuple(patches[0, :2])] == patches[0, 2]).all()


def test_a_table_of_one_axis_is_one_row(target):
    lengths = np.zeros(300, np.int32)
    patches = np.stack([np.zeros(200, np.int64), np.arange(200) + 50, np.arange(200) + 1], axis=1)
    launch.patch_table(target, lengths, patches)
    assert (lengths == np.concatenate([np.zeros(50), np.arange(200) + 1, np.zeros(50)])).all()


def test_no_patches_launch_nothing(never):
    launch.patch_table(never, np.zeros((2, 2), np.int32), np.empty((0, 3), np.int64))


@pytest.mark.parametrize(
    ("table", "patches", "text"),
    [
        (np.zeros((2, 2), np.float32), np.zeros((1, 3), np.int64), "table must be one of int32, int64, not float32"),
        (np.zeros((2, 2, 2), np.int32), np.zeros((1, 3), np.int64), "table must have one or two axes, not 3"),
        (np.zeros((2, 2), np.int32), np.zeros((1, 2), np.int64), r"patches must have shape \[any, 3\], not \[1, 2\]"),
        (np.zeros((2, 4), np.int32)[:, ::2], np.zeros((1, 3), np.int64), "table must be packed behind its first axis"),
    ],
)
def test_wrong_arguments_are_one_line_errors(table, patches, text):
    with pytest.raises(LaunchError, match=text):
        launch.patch_table(HostTarget(), table, patches)


def test_the_probe_follows_the_chain(target):
    rng = np.random.default_rng(2)
    words = np.full(4096, -(1 << 40), np.int64)  # who leaves the chain leaves the memory
    offsets = rng.permutation(4096)[:100] * 8
    launch.patch_table(target, words, launch.probe_patches(offsets))
    for steps in (0, 1, 57, 100, 257):
        out = np.full(1, -1, np.int64)
        launch.tlb_probe(target, words.ctypes.data, int(offsets[0]), steps, out)
        assert out[0] == offsets[steps % 100] == reference_blocks.tlb_probe(words, int(offsets[0]), steps)


def test_a_chain_or_walk_that_cannot_be_is_refused():
    with pytest.raises(LaunchError, match="offsets must be different multiples of 8 bytes"):
        launch.probe_patches(np.array([0, 8, 0]))
    with pytest.raises(LaunchError, match="address 0x4 and start 0 must be multiples of 8, steps 1 not negative"):
        launch.tlb_probe(HostTarget(), 4, 0, 1, np.zeros(1, np.int64))
