"""Which batch sizes are captured, as public logs count them, and the rough estimate of their pool."""

from __future__ import annotations

import pytest

from paged.planner.graphs import capture_sizes, estimate_graphs


@pytest.mark.parametrize(
    ("seqs", "piecewise", "full"),
    [
        (256, 51, 35),  # "PIECEWISE ... 51/51", "FULL ... 35/35" in the log of github.com/vllm-project/vllm/pull/46389
        (64, 19, 11),  # 19/19 and 11/11 in github.com/aivrar/vllm-windows-build/issues/4
    ],
)
def test_as_many_graphs_as_vllm_logs(seqs: int, piecewise: int, full: int) -> None:
    found = estimate_graphs(32, seqs, 8192)
    assert (found.piecewise, found.full) == (piecewise, full)
    assert found.bytes == 32 * (piecewise + full) * 150 * 1024


def test_the_sizes_themselves() -> None:
    """1 to 80 are the sizes that a vLLM 0.19 log prints for max_num_seqs 40."""
    assert capture_sizes(40, 8192) == (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80)
    assert capture_sizes(1024, 8192)[-3:] == (480, 496, 512)
    assert capture_sizes(1024, 20) == (1, 2, 4, 8, 16)
    assert capture_sizes(1, 8192) == (1, 2)


def test_eager_captures_nothing() -> None:
    found = estimate_graphs(32, 256, 8192, eager=True)
    assert (found.piecewise, found.full, found.bytes) == (0, 0, 0)
