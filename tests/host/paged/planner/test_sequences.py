"""Lengths of a trace, and how many sequences of them run at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paged.planner import make_plan, read_options
from paged.planner.lengths import Lengths, read_lengths
from paged.planner.memory import find_setting
from paged.serving.workload import TraceError

SIZES = {"gpu": "80 GiB", "kv_cache_memory_bytes": str(1000 * 16 * 131072)}
"""1,000 blocks of 16 tokens of llama-3-8b."""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Four requests of 16, 17, 40 and 9,000 tokens."""
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n15,1\n15,2\n30,10\n8000,1000\n")
    return str(path)


def test_lengths_of_a_trace_without_what_is_too_long(trace: str) -> None:
    found = read_lengths(trace, 8192)
    assert found.total.tolist() == [16, 17, 40]
    assert (found.left_out, found.steps, round(found.mean, 2)) == (1, 13, 24.33)
    assert [found.percentile(p) for p in (50, 90, 99)] == [17, 40, 40]


def test_a_request_of_just_the_longest_length_is_kept(trace: str) -> None:
    assert read_lengths(trace, 40).total.tolist() == [16, 17, 40]
    assert read_lengths(trace, 39).total.tolist() == [16, 17]


def test_without_a_trace_the_published_quantiles_are_stated() -> None:
    found = read_lengths(None, 100_000)
    assert found.name == "2,000 requests with the published quantiles of azure_conv 2023"
    assert len(found.prompt) == 2000


def test_a_trace_of_which_nothing_fits_is_refused(trace: str) -> None:
    with pytest.raises(ValueError, match="every request is longer than the 10 tokens of a sequence"):
        read_lengths(trace, 10)
    with pytest.raises(TraceError, match="there is no such file"):
        read_lengths("nowhere.csv", 10)


def test_sequences_at_the_lengths_of_a_trace(trace: str) -> None:
    """1,000 blocks; 16, 17 and 40 tokens take 1, 2 and 3 of them, and 8,192 take 512."""
    found = make_plan(read_options({**SIZES, "max_num_seqs": "400"}), trace)
    assert found.notes == ("requests that are longer than a sequence may be are left out: 1",)
    rows = {row.label: (round(row.tokens), row.held, row.running, row.limit) for row in found.sequences}
    assert rows["p50 when it ends"] == (17, 500, 400, "max_num_seqs")
    assert rows["p90 when it ends"] == (40, 333, 333, "KV pool")
    assert rows["longest (the positions of the model)"] == (8192, 1, 1, "KV pool")
    blocks = [1, 1, 2, *(-(-n // 16) for n in range(31, 41))]
    tokens = [16, 16, 17, *range(31, 41)]
    held = 1000 * 13 // sum(blocks)
    assert rows["mean over decode steps"] == (round(np.mean(tokens)), held, 400, "max_num_seqs")


def test_the_batched_tokens_bound_what_decodes(trace: str) -> None:
    """Where no number of sequences is given, vLLM bounds its own by the tokens."""
    given = make_plan(read_options({**SIZES, "max_num_seqs": "64", "max_num_batched_tokens": "64"}), trace)
    assert {row.limit for row in given.sequences} == {"max_num_seqs", "KV pool"}
    found = make_plan(read_options({**SIZES, "max_num_batched_tokens": "64"}), trace)
    assert found.setting.max_num_seqs == 64
    assert (found.sequences[0].running, found.sequences[0].limit) == (64, "max_num_batched_tokens")
    assert found.verdict.limit == "max_num_batched_tokens"
    assert "max_num_batched_tokens lets 64 run" in found.verdict.why
    assert found.verdict.remedy.startswith(f"--max-num-batched-tokens {found.sequences[0].held} would")


def test_a_few_short_sequences_need_no_larger_step() -> None:
    """vLLM's own default is no more than what all sequences have together."""
    options = {"gpu": "80 GiB", "max_num_seqs": "2", "max_model_len": "128"}
    assert find_setting(read_options(options)).max_num_batched_tokens == 256


def test_lengths_count_tokens_and_steps() -> None:
    found = Lengths("two", np.array([10, 20]), np.array([1, 3]))
    assert (found.total.tolist(), found.steps, found.mean) == ([11, 23], 4, 17.0)
