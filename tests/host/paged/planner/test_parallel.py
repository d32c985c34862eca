"""Splits over GPUs: which are even, and how layers are divided."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paged.planner.architecture import find_architecture
from paged.planner.memory import find_setting, stage_memories
from paged.planner.options import read_options
from paged.planner.parallel import check_tensor_parallel, pipeline_stages, split_group
from paged.spec import KVSpec


@pytest.mark.parametrize(
    ("layers", "size", "counts"),
    [(32, 1, [32]), (32, 4, [8, 8, 8, 8]), (3, 2, [2, 1]), (4, 3, [1, 2, 1]), (27, 2, [14, 13]), (30, 4, [7, 8, 8, 7])],
)
def test_what_is_left_over_goes_to_the_stages_before_the_last(layers: int, size: int, counts: list[int]) -> None:
    """3 and 4 layers as vLLM's tests/distributed/test_pipeline_partition.py has them; the rest by the same rule."""
    stages = pipeline_stages(layers, size)
    assert [stage.layers for stage in stages] == counts
    assert [stage.first for stage in stages[1:]] == [stage.last for stage in stages[:-1]]
    assert [stage.begins for stage in stages] == [True] + [False] * (size - 1)
    assert [stage.ends for stage in stages] == [False] * (size - 1) + [True]


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="--pipeline-parallel-size 6 is more than the model's 5 layers"):
        pipeline_stages(5, 6)


@pytest.mark.parametrize(
    ("model", "size", "words"),
    [
        ("qwen2.5-7b", 8, "--tensor-parallel-size 8 does not divide the 28 query heads; use one of 1, 2, 4"),
        ("llama-2-7b", 3, "does not divide the 32 query heads"),
        ("llama-2-7b", 64, "does not divide the 32 query heads"),
    ],
)
def test_heads_must_divide(model: str, size: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_tensor_parallel(find_architecture(model), size)


@pytest.mark.parametrize(
    ("changed", "size", "words"),
    [
        (
            {"num_key_value_heads": 6, "num_attention_heads": 24, "hidden_size": 3072},
            4,
            "does not divide the 6 KV heads",
        ),
        (
            {"num_key_value_heads": 6, "num_attention_heads": 24, "hidden_size": 3072},
            8,
            "8 is no multiple of the 6 KV heads",
        ),
        ({"intermediate_size": 14337}, 2, "does not divide the 14337 intermediate_size"),
    ],
)
def test_kv_heads_and_inner_sizes_must_divide(
    config_file: Callable[..., str], changed: dict[str, int], size: int, words: str
) -> None:
    model = find_architecture(config_file("llama-3.1-8b", **changed))
    with pytest.raises(ValueError, match=words):
        check_tensor_parallel(model, size)


def test_a_latent_is_whole_on_every_gpu(config_file: Callable[..., str]) -> None:
    model = find_architecture(config_file("deepseek-v2-lite"))
    check_tensor_parallel(model, 4)
    (group,) = model.spec.groups
    assert group.token_bytes == split_group(group, 4).token_bytes == 27 * (512 + 64) * 2


def test_kv_heads_are_shared_and_at_least_one_stays() -> None:
    group = KVSpec(32, 8, 128)
    assert [split_group(group, size).kv_heads for size in (1, 2, 8, 16)] == [8, 4, 1, 1]


def test_each_stage_keeps_its_own_layers(config_file: Callable[..., str]) -> None:
    """Layers alternate; three stages of 4 have 1, 2 and 1, and so one kind, both, and one."""
    options = {"model": config_file("windows"), "pipeline_parallel_size": "3", "gpu": "80 GiB"}
    stages = stage_memories(find_setting(read_options(options)))
    kinds = [[(use.group.layers, use.group.window) for use in found.pool.uses] for found in stages]
    assert kinds == [[(1, 1024)], [(1, None), (1, 1024)], [(1, None)]]
    assert [found.activations.sampling > 0 for found in stages] == [False, False, True]
