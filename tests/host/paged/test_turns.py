"""Several models on one clock: who steps, what rests meanwhile, and what happens when none can go on."""

import numpy as np
import pytest

from paged.policies.policy import Policy, Usage
from paged.serving.limits import Limits
from paged.serving.meter import Meter
from paged.serving.roofline import Roofline
from paged.serving.scheduler import SchedulerError
from paged.serving.simulation import Simulation
from paged.serving.turns import Turns
from paged.serving.workload import Workload

LINE = Roofline(parameters=1000, weight_bytes=2000, token_bytes=8, flops=1e8, bandwidth=1e7, overhead_s=1e-4)


class Common:
    """Room for so many tokens, which several models share."""

    def __init__(self, tokens: int) -> None:
        self.left = self.total = tokens


class Taker(Policy):
    """Takes token by token from what is common, one byte each of LINE's eight."""

    def __init__(self, common: Common) -> None:
        self.common, self.budget, self.copied = common, common.total * LINE.token_bytes, 0
        self.tokens: dict[int, int] = {}

    def alone(self) -> bool:
        return self.common.left + sum(self.tokens.values()) == self.common.total

    def fits(self, tokens: int) -> bool:
        return tokens <= self.common.total

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        return tokens + spare // LINE.token_bytes <= self.common.left

    def admit(self, request: int, tokens: int, prompt: int) -> int:
        assert tokens <= prompt
        self.tokens[request] = 0
        return self.grow(request, tokens)

    def can_grow(self, request: int, tokens: int) -> bool:
        return tokens - self.tokens[request] <= self.common.left

    def grow(self, request: int, tokens: int) -> int:
        self.common.left -= tokens - self.tokens[request]
        self.tokens[request] = tokens
        return tokens

    def finish(self, request: int) -> None:
        self.common.left += self.tokens.pop(request)

    def usage(self) -> Usage:
        used = sum(self.tokens.values()) * LINE.token_bytes
        return Usage(self.budget, used, used)

    def close(self) -> None:
        assert not self.tokens


class Watch(Meter):
    """Keeps live tokens and sequences of every step."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self.seen: list[tuple[int, int]] = []

    def advance(self, until: float, live: int, running: int) -> None:
        self.seen.append((live // LINE.token_bytes, running))
        super().advance(until, live, running)


def turns(tokens: int, *loads: tuple[list[float], list[int], list[int]]) -> Turns:
    common = Common(tokens)
    meter = Watch(tokens * LINE.token_bytes)
    members = [
        Simulation(
            Workload("x", np.array(arrivals), np.array(prompts), np.array(outputs)),
            Taker(common),
            Limits(1000, 4, 64),
            LINE,
            meter,
        )
        for arrivals, prompts, outputs in loads
    ]
    return Turns(members, meter)


def test_they_step_by_turns_and_what_rests_stays_in_memory() -> None:
    """Prompts of 10 and 20 with 3 outputs each: 10; 10 + 20; 11 + 20; 11 + 21; 12 + 21, and then the second alone."""
    found = turns(100, ([0.0], [10], [3]), ([0.0], [20], [3]))
    found.run()
    assert found.meter.seen == [(10, 1), (30, 2), (31, 2), (32, 2), (33, 2), (22, 1)]
    assert [member.steps for member in found.members] == [3, 3]
    assert found.finished_s[0] < found.finished_s[1] == found.now


def test_who_lacks_memory_waits_for_the_other() -> None:
    """Of 25 tokens the first takes 20 and grows to 22; the second's 10 must wait until it has ended."""
    found = turns(25, ([0.0], [20], [3]), ([0.0], [10], [2]))
    found.run()
    assert found.meter.seen == [(20, 1), (21, 1), (22, 1), (10, 1), (11, 1)]
    assert [member.scheduler.preemptions for member in found.members] == [0, 0]


def test_who_cannot_grow_for_the_other_gives_up_its_own() -> None:
    """Both begin with 10 of 21 tokens. The first takes the last free one; the second is preempted and begins anew."""
    found = turns(21, ([0.0], [10], [5]), ([0.0], [10], [5]))
    found.run()
    assert [member.scheduler.completed for member in found.members] == [1, 1]
    assert sum(member.scheduler.preemptions for member in found.members) >= 1
    assert max(live for live, _ in found.meter.seen) <= 21


def test_time_passes_when_nobody_has_work() -> None:
    found = turns(100, ([5.0], [10], [1]), ([9.0], [10], [1]))
    found.run()
    assert found.meter.seen == [(0, 0), (10, 1), (0, 0), (10, 1)]
    assert found.now > 9


class Never(Taker):
    """Promises what it never gives."""

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        return tokens < 0 <= spare

    def alone(self) -> bool:
        return False


def test_models_that_wait_for_each_other_for_ever_end_the_run() -> None:
    found = turns(100, ([0.0], [10], [1]), ([0.0], [10], [1]))
    for member in found.members:
        member.policy = member.scheduler.policy = Never(Common(100))
    with pytest.raises(SchedulerError, match="wait for each other's memory and none can go on"):
        found.run()


def test_progress_is_told_for_all_together() -> None:
    told: list[int] = []
    turns(10_000, ([0.0] * 70, [5] * 70, [1] * 70), ([0.0] * 70, [5] * 70, [1] * 70)).run(told.append)
    assert told == sorted(told)
    assert told[-1] >= 128
