"""What is concluded from replays: a remedy mends what it ends, not what it makes a little less."""

import dataclasses
from typing import Any

import pytest

from paged.doctor.conclusion import conclusion
from paged.doctor.diagnosis import Settings, diagnose
from paged.doctor.rehearsal import Rehearsed
from paged.doctor.report import Report


@pytest.fixture
def report(logs: Any) -> Report:
    """A server whose KV cache is too small, with three remedies that are not replayed."""
    waits = [logs.served_v1(logs.clock(n), 900.0, 900.0, 30, 20, 99.0) for n in range(6)]
    found = diagnose(logs.read([*logs.start["0.29"], *waits]), Settings())
    assert len(found.treatments) == 3
    return found


@pytest.fixture
def failed(logs: Any) -> Report:
    """A server that ran out of memory in a step, with two remedies."""
    message = logs.out_of_memory("0.64 GiB", "0.00 GiB", "79.11 GiB", "78.00 GiB")
    found = diagnose(logs.read([*logs.start["0.11"], message]), Settings())
    assert [treatment.remedy.enough for treatment in found.treatments] == [True, False]
    return found


def replayed(tokens_per_s: float, preemptions: int) -> Rehearsed:
    return Rehearsed(1 << 30, tokens_per_s, preemptions=preemptions, completed=9)


def concluded(report: Report, before: Rehearsed, *after: Rehearsed) -> str:
    pairs = zip(report.treatments, after, strict=True)
    treatments = [dataclasses.replace(treatment, after=found) for treatment, found in pairs]
    return conclusion(dataclasses.replace(report, treatments=treatments), before)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (  # a few less are not mended, and the best is said
            (100.0, 63),
            [(110.0, 59), (90.0, 70), (350.0, 21)],
            "No remedy mends it; remedy 3 does most: it serves 3.50 times the tokens per second, and preemptions go "
            "from 63 to 21.",
        ),
        (
            (100.0, 63),
            [(110.0, 59), (120.0, 6), (350.0, 0)],
            "Remedy 2 is the cheapest that mends it: it serves 1.20 times the tokens per second, and preemptions go "
            "from 63 to 6. Remedy 3 serves most: 3.50 times.",
        ),
        (
            (100.0, 63),
            [(110.0, 0), (111.0, 0), (112.0, 0)],
            "Remedy 1 is the cheapest that mends it: it serves 1.10 times the tokens per second, and preemptions go "
            "from 63 to 0.",
        ),
        (  # where none was preempted there is nothing to mend, only more to serve
            (100.0, 0),
            [(101.0, 0), (140.0, 2), (141.0, 0)],
            "Remedy 2 is the cheapest that serves more: it serves 1.40 times the tokens per second, and preemptions go "
            "from 0 to 2.",
        ),
        (
            (100.0, 9),
            [(99.0, 0), (100.0, 9), (101.0, 9)],
            "On these lengths no remedy serves more; a larger load, or the log's own lengths, may tell more.",
        ),
    ],
)
def test_of_a_server_that_runs(
    report: Report, before: tuple[float, int], after: list[tuple[float, int]], said: str
) -> None:
    assert concluded(report, replayed(*before), *(replayed(*one) for one in after)) == said


def test_of_a_server_that_failed_the_first_that_is_enough_mends_it(failed: Report) -> None:
    said = concluded(failed, replayed(100.0, 4), replayed(95.0, 4), replayed(200.0, 0))
    assert said.startswith("Remedy 1 is the cheapest that mends it: it serves 0.95 times")
    only = dataclasses.replace(failed, treatments=failed.treatments[1:])
    assert concluded(only, replayed(100.0, 40), replayed(120.0, 0)).startswith("No remedy alone makes up for what was")


def test_of_nothing_replayed_and_of_a_server_that_did_not_start(report: Report) -> None:
    assert conclusion(report, replayed(1.0, 0)) == ""
    none = Rehearsed(0, why_not="does not start")
    assert concluded(report, none, none, replayed(50.0, 0), replayed(60.0, 0)) == (
        "Remedy 2 is the cheapest with which it starts: it then serves 50 tokens/s."
    )
