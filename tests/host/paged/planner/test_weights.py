"""Bytes of weights, counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paged.planner.architecture import find_architecture
from paged.planner.memory import find_setting, stage_memories
from paged.planner.options import read_options
from paged.planner.parallel import pipeline_stages
from paged.planner.quantization import find_quantization
from paged.planner.weights import Weights, stage_weights

LLAMA_2_LAYERS = 32 * (2 * 4096 + 4 * 4096 * 4096 + 3 * 4096 * 11008)
LLAMA_2_TABLE = 32000 * 4096


def weights_of(model: str, *, tensor: int = 1, pipeline: int = 1, quantization: str | None = None) -> list[Weights]:
    """Of one GPU of each stage."""
    found = find_architecture(model)
    method = find_quantization(quantization, found.config)
    return [stage_weights(found, stage, tensor, method) for stage in pipeline_stages(found.spec.layers, pipeline)]


def test_one_gpu_holds_every_weight_once() -> None:
    (found,) = weights_of("llama-2-7b")
    assert found == Weights(2 * LLAMA_2_LAYERS, 2 * (2 * LLAMA_2_TABLE + 4096))
    assert found.total == 13_476_831_232  # 6,738,415,616 published weights of 2 bytes


def test_two_gpus_hold_half_of_the_layers_and_tables_each_and_the_last_norm_twice() -> None:
    (found,) = weights_of("llama-2-7b", tensor=2)
    assert found == Weights(LLAMA_2_LAYERS, 2 * (LLAMA_2_TABLE + 4096))


def test_fewer_kv_heads_than_gpus_are_repeated(config_file: Callable[..., str]) -> None:
    """8 KV heads on 16 GPUs: K and V projections of 4096 x 8 x 128 are held twice."""
    layer = 2 * 4096 + 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336
    (found,) = weights_of(config_file("llama-3.1-8b"), tensor=16)
    assert found.layers == 32 * 2 * (layer + 2 * 4096 * 8 * 128) // 16


def test_latent_attention_and_experts(config_file: Callable[..., str]) -> None:
    attention = 2048 * 16 * 192 + 2048 * 576 + 512 + 512 * 16 * 256 + 16 * 128 * 2048 + 2 * 2048
    dense, mixed = 3 * 2048 * 10944, 2048 * 64 + 66 * 3 * 2048 * 1408
    model = config_file("deepseek-v2-lite")
    (one,) = weights_of(model)
    assert one.layers == 2 * (27 * attention + dense + 26 * mixed)
    (two,) = weights_of(model, tensor=2)  # the projection to the latent is whole on both
    assert two.layers == one.layers // 2 + 27 * 2048 * 576
    first, second = weights_of(model, pipeline=2)  # 14 layers and 13; the dense one is the first
    assert first.layers == 2 * (14 * attention + dense + 13 * mixed)
    assert second.layers == 2 * (13 * attention + 13 * mixed)


def test_pipeline_stages_have_the_end_that_they_stand_at() -> None:
    first, middle, last = weights_of("llama-2-7b", pipeline=3)  # 11, 11 and 10 layers
    layer = LLAMA_2_LAYERS // 32
    assert first == Weights(2 * 11 * layer, 2 * LLAMA_2_TABLE)
    assert middle == Weights(2 * 11 * layer, 0)
    assert last == Weights(2 * 10 * layer, 2 * (LLAMA_2_TABLE + 4096))


def test_a_tied_table_is_there_once_and_at_both_ends_of_several_stages(config_file: Callable[..., str]) -> None:
    model = config_file("qwen3-0.6b")
    table = 2 * 151936 * 1024
    assert weights_of(model)[0].ends == table + 2 * 1024
    assert [found.ends for found in weights_of(model, pipeline=3)] == [table, 0, table + 2 * 1024]


def test_rows_of_the_tables_are_padded_to_64(config_file: Callable[..., str]) -> None:
    (found,) = weights_of(config_file("llama-3.1-8b", vocab_size=50257))
    assert found.ends == 2 * (2 * 50304 * 4096 + 4096)


@pytest.mark.parametrize(
    ("method", "bits"),
    [("fp8", 8.0), ("awq", 4.15625), ("gptq_marlin", 4.15625), ("bitsandbytes", 4.5), ("none", 16.0)],
)
def test_quantized_layers_with_tables_as_they_were(method: str, bits: float) -> None:
    (found,) = weights_of("llama-2-7b", quantization=method)
    assert found == Weights(int(LLAMA_2_LAYERS * bits / 8), 2 * (2 * LLAMA_2_TABLE + 4096))


@pytest.mark.parametrize(
    ("own", "bits"),
    [
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 8 + 24 / 32),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8.0),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8}}}}, 8.0),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 64}}},
            },
            4.25,
        ),
        ({}, None),
    ],
)
def test_the_configuration_says_how_weights_are_kept(
    config_file: Callable[..., str], own: dict[str, object], bits: float | None
) -> None:
    config = find_architecture(config_file("llama-3.1-8b", quantization_config=own)).config
    assert find_quantization(None, config).bits == bits


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("mystery", "--quantization 'mystery': its bytes a weight are not known here; known: fp8"),
        ("compressed-tensors", "give the config.json of the quantized model"),
    ],
)
def test_a_method_without_known_bits_is_refused(method: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        weights_of("llama-2-7b", quantization=method)


def test_weights_in_host_memory_take_nothing_here() -> None:
    memory = stage_memories(find_setting(read_options({"model": "llama-2-7b", "cpu_offload_gb": "10"})))[0]
    assert memory.weights == 13_476_831_232 - (10 << 30)
    all_away = stage_memories(find_setting(read_options({"model": "llama-2-7b", "cpu_offload_gb": "99"})))[0]
    assert all_away.weights == 0
