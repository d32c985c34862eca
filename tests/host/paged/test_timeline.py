"""Means weighted by time, peaks, causes of waste, and a timeline that stays small without losing an extreme."""

import random

import numpy as np
import pytest

from paged.policies.policy import CAUSES, Usage
from paged.serving.meter import Meter
from paged.serving.timeline import SERIES, Bucket, Span, Timeline


def test_means_are_weighted_by_time() -> None:
    meter = Meter(budget=1000)
    meter.set(Usage(500, 100, 60, row=40))
    meter.advance(1.0, live=10, running=1)
    meter.advance(3.0, live=40, running=2)
    meter.set(Usage(500, 400, 300, unused=100))
    meter.advance(4.0, live=300, running=5)
    meter.finish()
    assert meter.mean("committed") == (3 * 100 + 400) / 4
    assert meter.mean("live") == (10 + 2 * 40 + 300) / 4
    assert meter.mean("running") == (1 + 2 * 2 + 5) / 4
    assert (meter.committed_peak, meter.live_peak, meter.running_peak, meter.reserved_peak) == (400, 300, 5, 500)
    assert meter.whole_parts() == {
        "live": 98,  # 97.5, rounded so that all parts are the 175 bytes committed
        "tail": 22,
        "row": 30,
        "supply": 0,
        "prefix": 0,
        "retiring": 0,
        "unused": 25,
    }


def test_causes_of_waste_are_the_fields_of_usage() -> None:
    assert ("tail", *Usage._fields[3:]) == CAUSES


@pytest.mark.parametrize(
    ("usage", "words"),
    [(Usage(10, 9, 8), "do not add up"), (Usage(2000, 1001, 1001), "1001 bytes committed, budget 1000")],
)
def test_a_usage_that_cannot_be_is_noticed(usage: Usage, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        Meter(budget=1000).set(usage)


def test_live_bytes_without_room_are_noticed() -> None:
    meter = Meter(budget=1000)
    meter.set(Usage(10, 10, 10))
    with pytest.raises(AssertionError, match="11 bytes of tokens in room for 10"):
        meter.advance(1.0, 11, 1)


def run_meter(capacity: int, seed: int) -> tuple[Meter, list[tuple[float, float, Usage, int, int]]]:
    """A meter after 3,000 random steps, and every step as (start, stop, usage, live, running)."""
    rng = random.Random(seed)
    meter = Meter(10_000, Timeline(capacity, width=0.01))
    steps, now, usage = [], 0.0, Usage(0, 0, 0)
    for _ in range(3000):
        if rng.random() < 0.3:
            held, row = rng.randint(0, 5000), rng.randint(0, 5000)
            usage = Usage(rng.randint(0, 90_000), held + row, held, row=row)
            meter.set(usage)
        stop = now + rng.choice([0.001, 0.01, 0.3, 8.0])
        live, running = rng.randint(0, usage.held), rng.randint(0, 9)
        meter.advance(stop, live, running)
        steps.append((now, stop, usage, live, running))
        now = stop
    meter.finish()
    return meter, steps


@pytest.mark.parametrize("capacity", [8, 64, 1024])
def test_the_timeline_is_small_and_true(capacity: int) -> None:
    meter, steps = run_meter(capacity, seed=capacity)
    timeline = meter.timeline
    assert 1 < len(timeline) < capacity
    edges = timeline.edges()
    assert edges[0] == 0
    assert edges[-1] == steps[-1][1]
    assert (np.diff(edges) > 0).all()
    starts = np.array([step[0] for step in steps])
    weights = np.array([step[1] - step[0] for step in steps])
    bucket = np.searchsorted(edges, starts, side="right") - 1
    plain = {
        "reserved": np.array([step[2].reserved for step in steps]),
        "committed": np.array([step[2].committed for step in steps]),
        "live": np.array([step[3] for step in steps]),
        "running": np.array([step[4] for step in steps]),
    }
    for name, values in plain.items():
        series = timeline.series(name)
        for index in range(len(timeline)):
            inside = bucket == index
            assert series.low[index] == values[inside].min()
            assert series.high[index] == values[inside].max()
            mean = np.average(values[inside], weights=weights[inside])
            assert series.mean[index] == pytest.approx(mean, rel=1e-6, abs=1e-3)
    assert meter.mean("live") == pytest.approx(np.average(plain["live"], weights=weights))
    assert sum(meter.whole_parts().values()) == round(meter.mean("committed"))
    assert meter.mean("committed") == pytest.approx(np.average(plain["committed"], weights=weights))


def test_merging_keeps_means_and_extremes() -> None:
    timeline = Timeline(capacity=2, width=1.0)
    for start, stop, value in ((0.0, 1.0, 10.0), (1.0, 4.0, 30.0)):
        timeline.add(Bucket(start, stop, tuple(Span(value, value - 1, value + 1) for _ in SERIES)))
    assert timeline.buckets == [Bucket(0.0, 4.0, tuple(Span(25.0, 9.0, 31.0) for _ in SERIES))]
    assert timeline.width == 4.0


def test_buckets_are_alike_even_if_steps_are_longer_than_their_first_width() -> None:
    meter = Meter(100, Timeline(capacity=64, width=1e-3))
    meter.set(Usage(1, 1, 1))
    for step in range(1, 10_001):
        meter.advance(step * 0.05, 1, 1)
    widths = np.diff(meter.timeline.edges())
    assert len(widths) >= 30
    assert widths.max() <= 2.5 * np.median(widths)


def test_a_coarser_timeline_says_the_same() -> None:
    timeline = run_meter(1024, seed=1)[0].timeline
    coarse = timeline.coarser(10)
    assert 5 <= len(coarse) <= 10 < len(timeline)
    for name in ("reserved", "committed", "live", "running"):
        fine, rough = timeline.series(name), coarse.series(name)
        assert rough.high.max() == fine.high.max()
        assert rough.low.min() == fine.low.min()
        means = [np.average(of.mean, weights=np.diff(line.edges())) for of, line in ((fine, timeline), (rough, coarse))]
        assert means[0] == pytest.approx(means[1])


def test_a_probe_is_asked_once_a_bucket() -> None:
    asked = []
    meter = Meter(100, Timeline(width=1.0), probe=lambda: asked.append(1) or 7)
    meter.set(Usage(1, 1, 1))
    for step in range(1, 41):
        meter.advance(step / 10, 1, 1)
    meter.finish()
    assert len(asked) == len(meter.timeline) == pytest.approx(4, abs=1)
    assert set(meter.timeline.series("measured").mean) == {7.0}


def test_nothing_at_all() -> None:
    meter = Meter(100)
    meter.finish()
    assert (meter.mean("live"), meter.mean("committed"), len(meter.timeline)) == (0, 0, 0)
