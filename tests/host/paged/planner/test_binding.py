"""Which limit binds, one case each, and whether the remedy works when it is applied."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from paged.planner import Plan, make_plan, read_options

GIB = 1 << 30


def plan_of(**options: str | bool) -> Plan:
    return make_plan(read_options({"model": "llama-2-7b", "gpu": "H100-80GB", **options}))


def remedied(found: Plan) -> Plan:
    """The same plan with the option that the remedy names."""
    match = re.match(r"--([a-z-]+) (\S+) ", found.verdict.remedy)
    assert match is not None, found.verdict
    changed = read_options({match[1].replace("-", "_"): match[2]})
    name = match[1].replace("-", "_")
    options = dataclasses.replace(found.setting.options, **{name: getattr(changed, name)})
    return make_plan(options)


@pytest.mark.parametrize(
    ("options", "limit", "words", "remedy"),
    [
        (
            {"gpu": "8 GiB"},
            "weights",
            "the weights alone take 12.55 GiB of a GPU with 8 GiB",
            "--tensor-parallel-size 4 would start",
        ),
        (
            {"gpu": "17 GiB", "gpu_memory_utilization": "0.7"},
            "utilization",
            "the weights take 12.55 GiB, more than the 11.90 GiB that utilization 0.7 gives",
            "--gpu-memory-utilization 0.92 would start",
        ),
        (
            {"gpu": "17 GiB", "gpu_memory_utilization": "0.75", "max_model_len": "2048"},
            "utilization",
            "weights, activations, workspace and graphs take 13.",
            "--gpu-memory-utilization 0.92 would start",
        ),
        (
            {"gpu": "17 GiB", "max_num_seqs": "4096", "max_num_batched_tokens": "32768", "gpu_memory_utilization": "1"},
            "activations",
            "weights take 12.55 GiB, activations 4.",
            "--tensor-parallel-size 2 would start",
        ),
        (
            {"gpu": "16 GiB", "kv_cache_memory_bytes": "4G"},
            "GPU memory",
            "the KV pool and the rest take 17.",
            "--tensor-parallel-size 2 would start",
        ),
        (
            {"gpu": "16 GiB", "kv_cache_memory_bytes": "1000"},
            "KV pool",
            "the KV pool holds one sequence of 0 tokens, not of 4,096 (2 GiB)",
            "",
        ),
        (
            {"gpu": "14.9GiB", "gpu_memory_utilization": "0.95", "enforce_eager": True},
            "KV pool",
            "the KV pool holds one sequence of 2,",
            "--kv-cache-dtype fp8 would start",
        ),
    ],
)
def test_what_keeps_a_server_from_starting(options: dict[str, str | bool], limit: str, words: str, remedy: str) -> None:
    found = plan_of(**options)
    assert (found.verdict.starts, found.verdict.limit) == (False, limit), found.verdict
    assert words in found.verdict.why
    assert found.verdict.remedy == remedy
    assert not remedy or remedied(found).verdict.starts


def test_a_split_that_is_not_even_is_no_remedy() -> None:
    """28 heads go over 2 and 4 GPUs, which is too few, and not over 8 or 16."""
    found = plan_of(model="qwen2.5-7b", gpu="2 GiB", max_model_len="64", max_num_seqs="1")
    assert (found.verdict.starts, found.verdict.limit, found.verdict.remedy) == (False, "weights", "")


def test_a_pool_of_fewer_tokens_than_a_sequence_is_remedied_by_a_shorter_one() -> None:
    """Where nothing cheaper helps: no wider split is even, and KV is narrow already."""
    options = {"gpu": "14 GiB", "gpu_memory_utilization": "0.95", "kv_cache_dtype": "fp8", "enforce_eager": True}
    found = plan_of(**options, max_num_seqs="8", tensor_parallel_size="1", num_gpu_blocks_override="100")
    assert found.verdict.limit == "KV pool"
    assert found.verdict.remedy == "--max-model-len 1600 would start"
    assert remedied(found).verdict.starts


@pytest.mark.parametrize(
    ("options", "limit", "remedy"),
    [
        ({"max_num_seqs": "128"}, "KV pool", "--kv-cache-dtype fp8 would hold 2.0 times as many"),
        ({"max_num_seqs": "128", "kv_cache_dtype": "fp8"}, "max_num_seqs", "--max-num-seqs 202 would use the pool"),
        (
            {"max_num_seqs": "64", "max_num_batched_tokens": "64", "block_size": "32"},
            "max_num_seqs",
            "--max-num-seqs 10",
        ),
    ],
)
def test_what_keeps_a_server_from_running_more(options: dict[str, str], limit: str, remedy: str) -> None:
    found = plan_of(**options)
    assert (found.verdict.starts, found.verdict.limit) == (True, limit)
    assert found.verdict.remedy.startswith(remedy)


def test_twice_the_sequences_fit_with_kv_of_half_the_width() -> None:
    before, after = plan_of(max_num_seqs="1024"), plan_of(max_num_seqs="1024", kv_cache_dtype="fp8")
    assert after.sequences[0].held / before.sequences[0].held == pytest.approx(2.0, rel=0.02)


def test_more_tokens_than_positions_are_planned_with_the_positions_and_said() -> None:
    found = plan_of(max_model_len="8192")
    assert (found.longest, found.longest_by) == (4096, "the positions of the model")
    assert found.notes[0].startswith(
        "max_model_len 8,192 is more than the 4,096 positions of llama-2-7b: vLLM refuses to start"
    )
    rows = {row.label: row.tokens for row in found.sequences}
    assert (rows["longest (the positions of the model)"], rows["max_model_len as asked"]) == (4096, 8192)


def test_vllm_can_be_told_to_take_more_than_positions() -> None:
    found = plan_of(max_model_len="8192", allow_long=True)
    assert (found.longest, found.longest_by) == (8192, "max_model_len")
    assert "with tokens the model was not made for" in found.notes[0]


def test_a_length_below_the_positions_is_the_option_s() -> None:
    found = plan_of(max_model_len="2048")
    assert (found.longest, found.longest_by) == (2048, "max_model_len")
    assert found.lengths.total.max() <= 2048


def test_auto_is_the_longest_sequence_that_fits() -> None:
    options = {"model": "mistral-7b", "max_model_len": "auto"}
    assert plan_of(**options).longest == 32768  # its window is small
    few = plan_of(model="llama-3-8b", max_model_len="auto", num_gpu_blocks_override="100", max_num_seqs="8")
    assert (few.longest, few.longest_by, few.verdict.starts) == (1600, "what fits", True)


def test_too_few_batched_tokens_are_refused_as_vllm_does() -> None:
    with pytest.raises(ValueError, match="--max-num-batched-tokens 64 is less than --max-num-seqs 128"):
        plan_of(max_num_seqs="128", max_num_batched_tokens="64")


def test_parts_add_up_to_the_gpu() -> None:
    for options in ({}, {"count_graphs": False}, {"gpu": "80 GiB", "enforce_eager": True}, {"gpu": "4 GiB"}):
        found = plan_of(**options)
        assert sum(part.bytes for part in found.parts) == found.setting.gpu.memory
        assert [part.name for part in found.parts if part.estimate][:3] == ["activations", "workspace", "CUDA graphs"]


def test_graphs_come_out_of_the_utilization_or_on_top_of_it() -> None:
    """vLLM counts them since 0.21."""
    counted, on_top = plan_of(), plan_of(count_graphs=False)
    graphs = counted.memory.graphs.bytes
    assert graphs == on_top.memory.graphs.bytes > 0
    assert on_top.memory.pool.budget - counted.memory.pool.budget == graphs
    assert on_top.parts[-1].bytes == counted.parts[-1].bytes - graphs
    assert (counted.parts[-1].estimate, on_top.parts[-1].estimate) == (False, True)


@pytest.mark.parametrize("name", ["kv_cache_memory_bytes", "num_gpu_blocks_override"])
def test_a_pool_that_is_given_is_taken(name: str) -> None:
    found = plan_of(**{name: "1000"})
    assert found.memory.pool.budget == (1000 if name == "kv_cache_memory_bytes" else 1000 * 16 * 524288)
    assert not next(part for part in found.parts if part.name == "KV pool").estimate


def test_blocks_of_several_kinds_are_not_overridden(config_file: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match="this model keeps several, leave it out"):
        plan_of(model=config_file("windows"), num_gpu_blocks_override="100")


def test_the_tightest_stage_bounds_all(config_file: Callable[..., str]) -> None:
    """The last stage samples: with 1,024 sequences of a large vocabulary its GPU has the least left."""
    found = make_plan(read_options({"model": config_file("llama-3.3-70b"), "pipeline_parallel_size": "4"}))
    assert (found.stages, found.stage) == (4, 4)
    assert found.memory.activations.sampling == 1024 * 128256 * 38 + (8192 + 1024) * 8192 * 2


def test_tensor_parallel_splits_what_a_token_takes() -> None:
    one, four = plan_of(), plan_of(tensor_parallel_size="4")
    assert (one.memory.pool.token_bytes, four.memory.pool.token_bytes) == (524_288, 131_072)
    assert four.setting.gpus == 4


def test_json_is_plain_data_with_a_formula_for_each_part() -> None:
    found = plan_of().to_json()
    assert found["model"]["kv_token_bytes"] == 524_288
    assert {part["name"]: part["estimate"] for part in found["parts"]} == {
        "weights": False,
        "activations": True,
        "workspace": True,
        "CUDA graphs": True,
        "KV pool": True,
        "left free": False,
    }
    assert all(part["formula"] for part in found["parts"])
