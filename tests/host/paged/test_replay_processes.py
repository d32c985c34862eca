"""Policies side by side: order, failures by name, and nothing that hangs."""

import os
import signal
import time

import pytest

from paged.replay.processes import ReplayError, run_in_processes


def succeed(run: object, name: str, tell) -> str:
    tell(name, 1)
    return f"{run} {name}"


def fail(run: object, name: str, tell) -> str:  # noqa: ARG001
    if name == "b":
        raise ValueError("nothing works here")
    time.sleep(60)
    return name


def die(run: object, name: str, tell) -> str:  # noqa: ARG001
    if name == "b":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return name


def leave(run: object, name: str, tell) -> str:  # noqa: ARG001
    if name == "b":
        os._exit(3)
    time.sleep(60)
    return name


def test_results_come_in_the_order_of_the_names() -> None:
    names = ("a", "b", "c", "d", "e")
    assert run_in_processes(succeed, "run", names, 2, None) == {name: f"run {name}" for name in names}


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (fail, "policy b: ValueError: nothing works here"),
        (die, "policy b: its process was killed by signal 9, perhaps for lack of memory"),
        (leave, "policy b: its process exited with 3"),
    ],
)
def test_a_failure_is_told_by_name_and_nothing_hangs(task, words: str) -> None:
    start = time.monotonic()
    with pytest.raises(ReplayError, match=words):
        run_in_processes(task, None, ("a", "b"), 2, None)
    assert time.monotonic() - start < 30
