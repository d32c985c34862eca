"""Serving: intervals, growth with the batch, prefill against decode, and how full blocks are, each by hand."""

import math

import numpy as np
import pytest

from paged.doctor.block_fill import fill_of, fill_of_room
from paged.doctor.concurrency import Growth, Point, growth, points, step_seconds
from paged.doctor.length_counts import LengthCounts
from paged.doctor.phases import phases
from paged.doctor.serving_tally import Sample, ServingTally
from paged.serving.trace_reader import MAX_TOKENS
from paged.serving.workload import Workload


def served(*rows: tuple[float, float, float, int]) -> ServingTally:
    """A tally of (time, prompt tokens/s, output tokens/s, running), ten seconds for a time of None."""
    tally = ServingTally()
    for line, (time_s, prompt, output, running) in enumerate(rows, 1):
        tally.add(Sample(line, prompt, output, running, 0, usage=0.5), 0, time_s, "V1")
    return tally


def test_a_line_tells_of_the_time_since_the_one_before() -> None:
    tally = served((100, 0, 50, 1), (108, 0, 50, 1), (120, 0, 50, 1))
    assert tally.total().seconds == 10 + 8 + 12  # the first stands for the usual ten seconds


@pytest.mark.parametrize(("generation", "usual"), [("V0", 5), ("V1", 10)])
def test_after_silence_a_line_tells_of_one_usual_interval(generation: str, usual: int) -> None:
    tally = ServingTally()
    for time_s in (100.0, 5000.0, 4000.0, None):  # a gap, a clock that goes back, and none at all
        tally.add(Sample(1, 0.0, 50.0, 1, 0), 0, time_s, generation)
    assert tally.total().seconds == 4 * usual


def test_each_engine_has_a_clock_of_its_own() -> None:
    tally = ServingTally()
    for engine in (0, 1, 0, 1):
        tally.add(Sample(1, 0.0, 50.0, 1, 0), engine, 100.0 + 6 * (tally.lines // 2), "V1")
    assert tally.total().seconds == 2 * (10 + 6)


def test_idle_lines_are_not_busy() -> None:
    tally = ServingTally()
    tally.add(Sample(1, 0.0, 0.0, 0, 0), 0, None, "V1")
    tally.add(Sample(2, 0.0, 5.0, 0, 0), 0, None, "V1")  # what ended just before the line
    assert (tally.idle_s, tally.total().seconds) == (10, 10)


def test_a_point_for_each_doubling_of_the_batch_with_enough_time() -> None:
    tally = served(
        *[(10.0 * n, 0, 900, 9) for n in range(2)], *[(20 + 10.0 * n, 0, 1500, 15) for n in range(2)], (40, 0, 4000, 40)
    )
    found = points(tally)
    assert found == [Point(running=12, rate=1200, usage=0.5, seconds=40)]  # 9 and 15 together; 40 has ten seconds only
    assert found[0].step_s == 0.01


def test_lines_with_many_prompts_are_no_decode() -> None:
    tally = served((0, 51, 100, 4), (10, 50, 100, 4), (20, 0, 100, 4))
    assert [point.seconds for point in points(tally)] == [20]


def test_growth_is_from_a_batch_well_below_the_largest() -> None:
    ten, fourteen, forty = (Point(n, rate, 0.1, 60) for n, rate in ((10, 1000), (14, 1300), (40, 1300)))
    assert growth([]) is None
    assert growth([forty]) is None
    assert growth([ten, fourteen]) is None  # 1.4 times is not enough
    grown = growth([ten, fourteen, forty])
    assert grown == Growth(fourteen, forty)
    assert grown.exponent == 0
    assert grown.stopped


@pytest.mark.parametrize(("rate", "exponent", "stopped"), [(4000, 1.0, False), (2000, 0.5, False), (1400, 0.243, True)])
def test_the_exponent_of_growth(rate: float, exponent: float, stopped: bool) -> None:
    grown = Growth(Point(10, 1000, 0.1, 60), Point(40, rate, 0.1, 60))
    assert grown.exponent == pytest.approx(exponent, abs=1e-3)
    assert grown.stopped is stopped


def test_seconds_of_a_step_between_two_points() -> None:
    found = [Point(10, 1000, 0.1, 60), Point(30, 1500, 0.1, 60)]  # 10 ms and 20 ms
    assert step_seconds(found, 5) == 0.01
    assert step_seconds(found, 10) == 0.01
    assert step_seconds(found, 20) == pytest.approx(0.015)
    assert step_seconds(found, 60) == pytest.approx(0.04)
    assert step_seconds([], 5) is None


def test_prefill_against_decode_by_hand() -> None:
    tally = served(
        (0, 0, 1000, 10),  # decode: 10 running at 1000/s is 10 ms a step
        (10, 0, 1000, 10),
        (20, 5000, 600, 10),  # both: 600/10 steps of 10 ms are 0.6 of each second
        (30, 9000, 0, 10),  # prefill
    )
    found = phases(tally, points(tally))
    assert found.decode_s == pytest.approx(20 + 6)
    assert found.prefill_s == pytest.approx(10 + 4)
    assert found.unknown_s == 0
    assert (found.prompt_tokens, found.output_tokens) == (140_000, 26_000)


def test_without_a_line_of_decode_what_has_both_is_not_split() -> None:
    tally = served((0, 5000, 600, 10), (10, 9000, 0, 10))
    found = phases(tally, points(tally))
    assert (found.prefill_s, found.decode_s, found.unknown_s) == (10, 0, 10)


def test_decode_never_takes_more_than_there_was() -> None:
    tally = served((0, 0, 1000, 10), (10, 0, 1000, 10), (20, 2000, 1900, 10))
    found = phases(tally, points(tally))
    assert (found.decode_s, found.prefill_s) == (30, 0)


def naive_fill(requests: list[tuple[int, int]], block: int) -> float:
    used = taken = 0
    for prompt, output in requests:
        for tokens in range(prompt, prompt + output):
            used += tokens
            taken += block * math.ceil(tokens / block)
    return used / taken


@pytest.mark.parametrize("block", [1, 2, 16, 128])
def test_fill_is_that_of_counting_every_step(block: int) -> None:
    generator = np.random.default_rng(3)
    prompt, output = generator.integers(1, 90, 50), generator.integers(1, 60, 50)
    load = Workload("x", np.zeros(50), prompt, output)
    assert fill_of(load, block) == pytest.approx(
        naive_fill(list(zip(prompt.tolist(), output.tolist(), strict=True)), block)
    )


def test_fill_by_hand() -> None:
    load = Workload("x", np.zeros(1), np.array([15]), np.array([3]))  # 15, 16, 17 tokens in 1, 1, 2 blocks of 16
    assert fill_of(load, 16) == (15 + 16 + 17) / (16 + 16 + 32)
    assert fill_of_room(150.0, 16) == 1 - 7.5 / 150
    assert fill_of_room(1.0, 16) == 0.0
    assert fill_of_room(0.0, 16) == 1.0


def test_lengths_are_counted_in_bounded_memory() -> None:
    counts = LengthCounts()
    for tokens in range(1, 200_000):
        counts.add(tokens)
    assert len(counts) == 199_999
    assert len(counts.counts) < 3_500
    assert counts.quantile(0.5) == pytest.approx(100_000, rel=0.005)
    assert counts.quantile(0.001) == 200
    assert counts.summary()["max"] == 200_000
    for wrong in (-1, MAX_TOKENS + 1):
        with pytest.raises(ValueError, match="is no length of a request"):
            counts.add(wrong)
    with pytest.raises(ValueError, match="no lengths were seen"):
        LengthCounts().quantile(0.5)
