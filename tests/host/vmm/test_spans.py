"""FreeSpans against a model that marks every unit."""

import random

from vmm.spans import FreeSpans


def free_runs(marks):
    runs, start = [], None
    for index, taken in enumerate([*marks, True]):
        if not taken and start is None:
            start = index
        if taken and start is not None:
            runs.append((start, index - start))
            start = None
    return runs


def test_best_fit_takes_the_smallest_span_that_has_room():
    spans = FreeSpans(100)
    held = [spans.take(10) for _ in range(10)]
    assert held == list(range(0, 100, 10))
    for start in (0, 20, 30, 50):
        spans.give(start, 10)
    assert list(spans) == [(0, 10), (20, 20), (50, 10)]
    assert spans.take(10) == 0
    assert spans.take(15) == 20
    assert spans.take(6) == 50
    assert spans.take(6) is None
    assert spans.largest == 5


def test_random_takes_and_gives_agree_with_a_model_that_marks_every_unit():
    rng = random.Random(7)
    size = 400
    spans, marks, held = FreeSpans(size), [False] * size, []
    for _ in range(5000):
        if held and rng.random() < 0.5:
            start, length = held.pop(rng.randrange(len(held)))
            spans.give(start, length)
            marks[start : start + length] = [False] * length
        else:
            length = rng.randint(1, 40)
            fits = [run for run in free_runs(marks) if run[1] >= length]
            start = spans.take(length)
            assert start == (min(fits, key=lambda run: (run[1], run[0]))[0] if fits else None)
            if start is not None:
                marks[start : start + length] = [True] * length
                held.append((start, length))
        assert list(spans) == free_runs(marks)
        assert spans.free == marks.count(False)
        assert spans.largest == max((run[1] for run in free_runs(marks)), default=0)


def test_a_span_keeps_the_latest_stamp_of_its_parts():
    spans = FreeSpans()
    spans.give(0, 10, 3)
    spans.give(20, 10, 5)
    assert [spans.stamp_of(start) for start in (0, 20)] == [3, 5]
    assert spans.give(10, 10, 4) == (0, 30)
    assert spans.stamp_of(0) == 5
    assert spans.take(4) == 0
    assert spans.stamp_of(4) == 5  # what is left was given then


def test_a_part_in_the_middle_is_cut_out():
    spans = FreeSpans(100)
    spans.cut(0, 30, 20)
    assert list(spans) == [(0, 30), (50, 50)]
    spans.cut(50, 50, 10)
    spans.cut(0, 20, 10)
    assert (list(spans), spans.free) == ([(0, 20), (60, 40)], 60)
    assert (spans.length_before(20), spans.length_from(60), spans.length_from(0)) == (20, 40, 20)
    assert (spans.length_before(60), spans.length_from(50)) == (0, 0)
    assert [one[:2] for one in spans.at_least(30)] == [(60, 40)]


def test_a_margin_before_a_boundary_is_kept_where_it_costs_little():
    spans = FreeSpans(boundary=100)
    spans.give(80, 220)
    assert spans.take(90) == 100  # 20 stay free before it
    assert list(spans) == [(80, 20), (190, 110)]
    spans.give(100, 90)
    assert spans.take(40) == 80  # half of it would stay free
    assert spans.take(180) == 120  # it would not fit behind the boundary


def test_books_are_set_again():
    spans = FreeSpans(100)
    spans._by_length.clear()
    spans.reset([(5, 5), (20, 10)], 7)
    assert (list(spans), spans.free, spans.largest, spans.stamp_of(20)) == ([(5, 5), (20, 10)], 15, 10, 7)
