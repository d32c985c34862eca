"""The estimate of activations, computed by hand from its formula, and what bounds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paged.planner.activations import estimate_activations
from paged.planner.architecture import find_architecture
from paged.planner.workspace import estimate_workspace


def test_a_dense_model() -> None:
    """Gate, up and their product, 3 * 11008, are wider than q, k, v and output, 4 * 32 * 128."""
    found = estimate_activations(find_architecture("llama-2-7b"), tokens=8192, seqs=128, tensor=1, samples=True)
    assert found.forward == 8192 * 2 * (2 * 4096 + 3 * 11008) == 675_282_944
    assert found.sampling == 128 * 32000 * 38 + (8192 + 128) * 4096 * 2 == 223_805_440
    assert found.peak == 675_282_944


def test_tensor_parallel_splits_the_layers_and_not_the_logits() -> None:
    model = find_architecture("llama-2-7b")
    one, four = (estimate_activations(model, 8192, 128, gpus, samples=True) for gpus in (1, 4))
    assert four.forward == 8192 * 2 * (2 * 4096 + 3 * 11008 // 4)
    assert four.sampling == one.sampling


def test_many_sequences_of_a_large_vocabulary_are_the_peak() -> None:
    found = estimate_activations(find_architecture("llama-3-8b"), 8192, 1024, 1, samples=True)
    assert found.peak == found.sampling == 1024 * 128256 * 38 + (8192 + 1024) * 4096 * 2


def test_a_stage_without_the_output_samples_nothing() -> None:
    found = estimate_activations(find_architecture("llama-3-8b"), 8192, 1024, 1, samples=False)
    assert (found.sampling, found.peak) == (0, found.forward)


def test_no_more_sequences_than_tokens_are_sampled() -> None:
    model = find_architecture("llama-2-7b")
    assert estimate_activations(model, 64, 256, 1, samples=True) == estimate_activations(model, 64, 64, 1, samples=True)


def test_a_mixture_of_experts_computes_each_token_in_each_chosen_one(config_file: Callable[..., str]) -> None:
    found = estimate_activations(find_architecture(config_file("mixtral")), 2048, 1, 1, samples=True)
    assert found.forward == 2048 * 2 * (2 * 4096 + 2 * (2 * 14336 + 14336) + 4096)


def test_latent_attention_with_a_dense_first_layer(config_file: Callable[..., str]) -> None:
    """3 * 10944 of the dense layer is wider than 6 experts (27,392) and attention (9,792)."""
    model = find_architecture(config_file("deepseek-v2-lite"))
    assert estimate_activations(model, 2048, 1, 1, samples=True).forward == 2048 * 2 * (2 * 2048 + 3 * 10944)
    narrow = find_architecture(config_file("deepseek-v2-lite", intermediate_size=16, moe_intermediate_size=16))
    routed = 6 * (2048 + 16) + 2048
    assert estimate_activations(narrow, 2048, 1, 1, samples=True).forward == 2048 * 2 * (2 * 2048 + routed)
    few = find_architecture(
        config_file("deepseek-v2-lite", intermediate_size=16, moe_intermediate_size=16, num_experts_per_tok=1)
    )
    attention = 16 * (64 + 2 * 128 + 2 * 128) + 512 + 64
    assert estimate_activations(few, 2048, 1, 1, samples=True).forward == 2048 * 2 * (2 * 2048 + attention)


@pytest.mark.parametrize(("gpus", "low", "high"), [(1, 0.13, 0.16), (2, 0.54, 0.55), (8, 0.54, 0.55)])
def test_workspace_is_what_logs_call_non_torch_memory(gpus: int, low: float, high: float) -> None:
    assert low <= estimate_workspace(gpus) / (1 << 30) <= high
