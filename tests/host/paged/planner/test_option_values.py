"""Values of options as text."""

from __future__ import annotations

import pytest

from paged.planner import read_options
from paged.planner.option_values import whole_number


@pytest.mark.parametrize(
    ("text", "value"), [("128", 128), ("8k", 8000), ("8K", 8192), ("25.6k", 25_600), ("1M", 1 << 20), (" 7 ", 7)]
)
def test_whole_numbers_are_read_as_vllm_reads_them(text: str, value: int) -> None:
    assert whole_number("--max-model-len", text) == value


@pytest.mark.parametrize("text", ["0", "-3", "many", "1.5", "1.5K", "", "1e3", "9" * 40, "١٢"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--max-num-seqs must be a whole number of at least 1, not") as found:
        whole_number("--max-num-seqs", text)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 180


def test_auto_is_the_longest_that_fits() -> None:
    assert [read_options({"max_model_len": text}).max_model_len for text in ("auto", "-1", "AUTO")] == [-1, -1, -1]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpu_memory_utilization", "1.2", "--gpu-memory-utilization must be above 0 and at most 1, not '1.2'"),
        ("gpu_memory_utilization", "nan", "above 0 and at most 1"),
        ("gpu_memory_utilization", "0", "above 0 and at most 1"),
        ("cpu_offload_gb", "-1", "--cpu-offload-gb must be a number of GiB of 0 or more"),
        ("block_size", "512", "--block-size must be 1 to 256 tokens, not 512"),
        ("order", "rows", "--order must be one of block, layer, not 'rows'"),
        ("chunk", "1 MiB", "--chunk '1 MiB' is no multiple of the granularity"),
        ("tensor_parallel_size", "2000", "--tensor-parallel-size must be 1 to 1024 GPUs"),
        ("model", " ", "--model is empty"),
    ],
)
def test_a_bad_value_names_the_option(name: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_options({name: text})
