"""The time of a step, against figures worked out by hand."""

import pytest

from paged.serving.roofline import BANDWIDTH, COMPUTE, H100_BANDWIDTH, H100_FLOPS, OVERHEAD, Roofline

LINE = Roofline(parameters=10, weight_bytes=100, token_bytes=4, flops=1000, bandwidth=200, overhead_s=0.25)


def test_a_step_bound_by_compute() -> None:
    assert LINE.step(tokens=100, kv_tokens=25) == (2 * 10 * 100 / 1000 + 0.25, COMPUTE)  # 2 s against (100 + 100)/200


def test_a_step_bound_by_bandwidth() -> None:
    assert LINE.step(tokens=10, kv_tokens=75) == ((100 + 75 * 4) / 200 + 0.25, BANDWIDTH)  # 2 s against 0.2 s


def test_a_step_bound_by_overhead() -> None:
    line = Roofline(10, 1, 1, flops=1e6, bandwidth=1e6, overhead_s=0.25)
    seconds, bound = line.step(1, 1)
    assert bound == OVERHEAD
    assert seconds == pytest.approx(0.25002)


def test_a_copy_comes_before_the_step_and_moves_each_byte_twice() -> None:
    assert LINE.step(tokens=100, kv_tokens=25, copied=50) == (2 + 0.5 + 0.25, COMPUTE)
    assert LINE.step(tokens=100, kv_tokens=25, copied=300) == (2 + 3 + 0.25, BANDWIDTH)


def test_llama_3_8b_decodes_one_token_in_about_five_milliseconds() -> None:
    """16.06 GB of weights at 3.35 TB/s take 4.79 ms, a thousand tokens of KV at 128 KiB another 0.04 ms."""
    line = Roofline(8_030_261_248, 16_060_522_496, 131_072, overhead_s=0)
    seconds, bound = line.step(1, 1000)
    assert seconds == pytest.approx(4.79e-3 + 0.039e-3, rel=1e-2)
    assert bound == BANDWIDTH
    assert (H100_FLOPS, H100_BANDWIDTH) == (989e12, 3.35e12)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("flops", 0, "FLOP rate must be a number above 0, not 0"),
        ("bandwidth", float("nan"), "bandwidth must be a number above 0, not nan"),
        ("overhead_s", -1, "overhead must be 0 s or more, not -1"),
    ],
)
def test_constants_that_make_no_sense(field: str, value: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Roofline(10, 100, 4, **{field: value})
