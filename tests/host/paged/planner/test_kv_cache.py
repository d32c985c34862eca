"""Bytes and blocks of sequences: by hand, and against sums that count one token after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from paged.planner.architecture import find_architecture
from paged.planner.kv_cache import BlockUse
from paged.planner.kv_pool import PoolSize
from paged.planner.lengths import Lengths
from paged.spec import KVSpec


@pytest.mark.parametrize(
    ("model", "dtype", "token"),
    [
        ("llama-2-7b", "auto", 2 * 32 * 32 * 128 * 2),
        ("llama-2-7b", "fp8", 2 * 32 * 32 * 128),
        ("llama-2-7b", "fp8_e5m2", 2 * 32 * 32 * 128),
        ("llama-2-7b", "float32", 2 * 32 * 32 * 128 * 4),
        ("llama-3-8b", "auto", 2 * 32 * 8 * 128 * 2),
        ("mistral-7b", "bfloat16", 2 * 32 * 8 * 128 * 2),
    ],
)
def test_bytes_of_a_token(model: str, dtype: str, token: int) -> None:
    (group,) = find_architecture(model, kv_cache_dtype=dtype).spec.groups
    assert BlockUse(group, 16).block_bytes == 16 * token


def test_a_type_that_nothing_is_kept_in_is_refused() -> None:
    with pytest.raises(ValueError, match="KV cache dtype 'int3' is unknown; use one of"):
        find_architecture("llama-2-7b", kv_cache_dtype="int3")


@pytest.mark.parametrize(
    ("asked", "own", "kept"),
    [
        ("auto", "float32", "float16"),
        ("auto", "bfloat16", "bfloat16"),
        ("half", "bfloat16", "float16"),
        ("float", "bfloat16", "float32"),
    ],
)
def test_auto_keeps_what_the_model_computes_in(
    config_file: Callable[..., str], asked: str, own: str, kept: str
) -> None:
    model = find_architecture(config_file("llama-3.1-8b", torch_dtype=own), asked)
    assert (model.dtype, model.spec.groups[0].dtype) == (kept, kept)


def test_a_type_that_nothing_computes_in_is_refused() -> None:
    with pytest.raises(ValueError, match="--dtype 'int8' is unknown; use auto, half"):
        find_architecture("llama-2-7b", "int8")


@pytest.mark.parametrize(
    ("scaling", "positions"),
    [
        (None, 32768),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 32768),
        ({"type": "linear", "factor": 2}, 65536),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, 163840),
        ({"type": "dynamic", "factor": "2"}, 32768),
    ],
)
def test_positions_with_a_scaled_rotary_embedding(
    config_file: Callable[..., str], scaling: dict[str, object] | None, positions: int
) -> None:
    path = config_file("llama-3.1-8b", max_position_embeddings=32768, rope_scaling=scaling)
    assert find_architecture(path).spec.max_positions == positions


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (16, 1), (17, 2), (64, 4), (65, 5), (66, 5), (1000, 5)])
def test_a_window_keeps_a_bounded_number_of_blocks(tokens: int, blocks: int) -> None:
    """The last 50 tokens: at most ceil(50 / 16) + 1 = 5 blocks."""
    use = BlockUse(KVSpec(1, 1, 8, window=50), 16)
    assert use.blocks(tokens) == blocks
    assert use.live_tokens(tokens) == min(tokens, 50)


@pytest.mark.parametrize("window", [None, 1, 50, 64])
@pytest.mark.parametrize("size", [1, 7, 16])
def test_sums_over_steps_are_those_of_counting(window: int | None, size: int) -> None:
    use = BlockUse(KVSpec(1, 1, 8, window=window), size)
    generator = np.random.default_rng(1)
    prompt, output = generator.integers(1, 200, 20), generator.integers(1, 90, 20)
    steps = [n for p, o in zip(prompt.tolist(), output.tolist(), strict=True) for n in range(p + 1, p + o + 1)]
    assert use.block_steps(prompt + 1, prompt + output) == sum(use.blocks(n) for n in steps)
    assert use.live_steps(prompt + 1, prompt + output) == sum(use.live_tokens(n) for n in steps)


def pool(budget: int, size: int = 16, window: int | None = None) -> PoolSize:
    """Of one layer that keeps 32 bytes a token."""
    return PoolSize(budget, (BlockUse(KVSpec(1, 1, 8, window=window), size),))


def test_a_pool_holds_whole_blocks() -> None:
    found = pool(10 * 16 * 32 + 500)
    assert (found.blocks, found.tokens, found.token_bytes) == (10, 160, 32)
    assert [found.holds(tokens) for tokens in (1, 16, 17, 80, 81, 160, 161)] == [10, 10, 5, 2, 1, 1, 0]
    assert (found.longest(4096), found.longest(100)) == (160, 100)


@pytest.mark.parametrize("budget", [-5, 0, 511])
def test_a_pool_without_a_block_holds_nothing(budget: int) -> None:
    found = pool(budget)
    assert (found.blocks, found.tokens, found.holds(1), found.longest(4096)) == (0, 0, 0, 0)


def test_with_a_window_a_sequence_may_be_longer_than_the_pool() -> None:
    found = pool(10 * 16 * 32, window=50)
    assert (found.holds(4096), found.longest(4096)) == (2, 4096)


def test_layers_that_keep_different_things_share_the_bytes() -> None:
    full, narrow = BlockUse(KVSpec(1, 1, 8), 16), BlockUse(KVSpec(1, 1, 8, window=16), 16)
    found = PoolSize(10 * 16 * 32, (full, narrow))
    assert (found.blocks, found.tokens) == (None, None)
    assert PoolSize(-5, (full, narrow)).holds(16) == 0
    assert [found.holds(tokens) for tokens in (16, 32, 48, 128, 129)] == [5, 2, 2, 1, 0]  # 1+1, 2+2, 3+2, 8+2, 9+2


def test_what_is_held_while_sequences_decode() -> None:
    """Prompt 15, output 3: 16, 17 and 18 tokens in 1, 2 and 2 blocks, 5/3 on average; 10 blocks hold 6 of them."""
    lengths = Lengths("one", np.array([15]), np.array([3]))
    assert pool(10 * 16 * 32).holds_decoding(lengths) == 6
    assert lengths.steps == 3
