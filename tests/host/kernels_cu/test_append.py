"""append_kv on the CPU: every byte of the pool is compared, those that must not change too."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_cu import HostRun, HostTarget, LaunchError, launch, reference

LAYOUTS = ["hnd", "nhd", "vllm"]


def _pools_with_noise(cases, rng, layout, dtype, blocks=9, block_size=5, heads=3, head_dim=40):
    pools = cases.empty_pools(layout, dtype, blocks, block_size, heads, head_dim)
    for pool in pools:
        pool.view(np.uint8)[...] = rng.integers(0, 256, pool.view(np.uint8).shape)
    return pools


def _tokens(cases, rng, dtype, tokens, heads=3, head_dim=40):
    shape = (tokens, heads, head_dim)
    return tuple(rng.standard_normal(shape).astype(cases.DTYPES[dtype]) for _ in range(2))


def _same_bytes(mine, theirs):
    return all(a.tobytes() == b.tobytes() for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_only_the_slots_of_the_tokens_change(target, cases, dtype, layout):
    rng = np.random.default_rng(1)
    pools = _pools_with_noise(cases, rng, layout, dtype)
    wanted = [pool.copy() for pool in pools]
    key, value = _tokens(cases, rng, dtype, 17)
    slots = rng.choice(9 * 5, 17, replace=False).astype(np.int64)
    slots[[3, 11]] = -1
    slots[7] = -1234
    reference.append(layout, *wanted, key, value, slots)
    launch.append_kv(target, cases.paged_kv(layout, dtype, *pools), key, value, slots)
    assert _same_bytes(pools, wanted)
    assert not _same_bytes(pools, _pools_with_noise(cases, np.random.default_rng(1), layout, dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_heads_and_dims_than_threads(target, cases, layout):
    rng = np.random.default_rng(2)
    sizes = {"heads": 5, "head_dim": 256}
    pools = _pools_with_noise(cases, rng, layout, "float16", **sizes)
    wanted = [pool.copy() for pool in pools]
    key, value = _tokens(cases, rng, "float16", 45, **sizes)
    slots = rng.permutation(45)
    reference.append(layout, *wanted, key, value, slots)
    launch.append_kv(target, cases.paged_kv(layout, "float16", *pools), key, value, slots)
    assert _same_bytes(pools, wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_appended_is_gathered_again(target, cases, layout):
    case = cases.Case("bfloat16", layout, head_dim=40, block_size=7, lengths=(1, 30))
    case.append(target)
    for table, key, value in zip(case.tables, case.keys, case.values, strict=True):
        found = reference.gather(layout, case.key_pool, case.value_pool, table, len(key))
        assert (found[0] == key).all()
        assert (found[1] == value).all()


def test_tokens_may_lie_apart_and_run_backward(target, cases):
    rng = np.random.default_rng(3)
    pools = _pools_with_noise(cases, rng, "hnd", "float32")
    wanted = [pool.copy() for pool in pools]
    heads_q, heads, dim = 6, 3, 40
    fused = rng.standard_normal((10, (heads_q + 2 * heads) * dim)).astype(np.float32)  # one row: q, k, v of a token
    key = fused[:, heads_q * dim : (heads_q + heads) * dim].reshape(10, heads, dim)[::-1]
    value = fused[:, (heads_q + heads) * dim :].reshape(10, heads, dim)[::2]
    slots = np.arange(20, 25)
    reference.append("hnd", *wanted, key[:5], value, slots)
    launch.append_kv(target, cases.paged_kv("hnd", "float32", *pools), key[:5], value, slots)
    assert key.strides[0] < 0 < value.strides[0]
    assert _same_bytes(pools, wanted)


@pytest.mark.parametrize("schedule", ["ascending", "descending", "interleaved"])
@pytest.mark.usefixtures("target")
def test_every_schedule_writes_the_same(cases, schedule):
    rng = np.random.default_rng(4)
    pools = _pools_with_noise(cases, rng, "vllm", "float16")
    wanted = [pool.copy() for pool in pools]
    key, value = _tokens(cases, rng, "float16", 30)
    slots = rng.permutation(45)[:30]
    reference.append("vllm", *wanted, key, value, slots)
    run = HostRun(schedule, "shuffled", threads=2)
    launch.append_kv(HostTarget(run), cases.paged_kv("vllm", "float16", *pools), key, value, slots)
    assert _same_bytes(pools, wanted)


@pytest.mark.usefixtures("target")
def test_no_tokens_launch_nothing(never, cases):
    pools = cases.empty_pools("hnd", "float32", 2, 4, 3, 40)
    nothing = np.empty((0, 3, 40), np.float32)
    launch.append_kv(never, cases.paged_kv("hnd", "float32", *pools), nothing, nothing, np.empty(0, np.int64))
    with pytest.raises(AssertionError, match="something was launched"):
        one = np.zeros((1, 3, 40), np.float32)
        launch.append_kv(never, cases.paged_kv("hnd", "float32", *pools), one, one, np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"key": lambda a: a[:3]}, r"key must have shape \[4, 3, 40\], not \[3, 3, 40\]"),
        ({"value": lambda a: a.astype(np.float64)}, "value must be float32, not float64"),
        ({"value": lambda a: a.transpose(0, 2, 1).copy().transpose(0, 2, 1)}, "value must be packed behind its first"),
        ({"slots": lambda a: a.astype(np.int32)}, "slots must be int64, not int32; convert it with astype"),
        ({"slots": lambda a: a[None]}, r"slots must have shape \[any\], not \[1, 4\]"),
        ({"slots": lambda a: a[::2]}, "slots must be packed, but axis 0 has a stride of 16 bytes"),
    ],
)
def test_wrong_arguments_are_one_line_errors(cases, wrong, text):
    pools = cases.empty_pools("hnd", "float32", 2, 4, 3, 40)
    arguments = {
        "key": np.zeros((4, 3, 40), np.float32),
        "value": np.zeros((4, 3, 40), np.float32),
        "slots": np.arange(4),
    }
    for name, change in wrong.items():
        arguments[name] = change(arguments[name])
    with pytest.raises(LaunchError, match=text) as caught:
        launch.append_kv(HostTarget(), cases.paged_kv("hnd", "float32", *pools), **arguments)
    assert "\n" not in str(caught.value)
