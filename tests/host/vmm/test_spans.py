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
