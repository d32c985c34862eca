"""The event-driven simulation against a plain one that walks every sequence in every step."""

import dataclasses
import math
import random

import numpy as np
import pytest

from paged.policies.policy import Policy, Usage
from paged.serving.limits import Limits
from paged.serving.meter import Meter
from paged.serving.roofline import Roofline
from paged.serving.rules import Serving
from paged.serving.scheduler import Scheduler, SchedulerError
from paged.serving.simulation import Simulation
from paged.serving.workload import Workload

LINE = Roofline(parameters=1000, weight_bytes=2000, token_bytes=8, flops=1e8, bandwidth=1e7, overhead_s=1e-4)


class Blocks(Policy):
    """A policy without memory: a number of blocks of ``size`` tokens, one byte a token."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.budget, self.copied = count * size * LINE.token_bytes, 0
        self.tables: dict[int, int] = {}
        self.calls = 0

    def _need(self, tokens: int) -> int:
        return math.ceil(tokens / self.size)

    def _free(self) -> int:
        return self.count - sum(self.tables.values())

    def fits(self, tokens: int) -> bool:
        return self._need(tokens) <= self.count

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        return self._need(tokens) + math.ceil(spare / (self.size * LINE.token_bytes)) <= self._free()

    def admit(self, request: int, tokens: int, prompt: int) -> int:
        assert request not in self.tables and tokens <= prompt
        self.tables[request] = 0
        return self.grow(request, tokens)

    def can_grow(self, request: int, tokens: int) -> bool:
        return self._need(tokens) - self.tables[request] <= self._free()

    def grow(self, request: int, tokens: int) -> int:
        assert self.can_grow(request, tokens)
        self.calls += 1
        self.tables[request] = self._need(tokens)
        return self.tables[request] * self.size

    def finish(self, request: int) -> None:
        del self.tables[request]

    def settle(self) -> bool:
        return False

    def usage(self) -> Usage:
        used = sum(self.tables.values()) * self.size * LINE.token_bytes
        return Usage(self.budget, used, used)

    def close(self) -> None:
        assert not self.tables


@dataclasses.dataclass
class Sequence:
    number: int
    prompt: int
    output: int
    priority: int = 0
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    target: int = 0  # what it computes as a prompt: all that was known when it was admitted
    on_host: int = 0  # tokens that were swapped out
    decodes: bool = False  # came back from the host in this step, to compute its next token


@dataclasses.dataclass
class Naive:
    """Every step walks every running sequence and every one of its counts; nothing is kept from step to step."""

    blocks: int
    size: int
    limits: Limits
    serving: Serving = dataclasses.field(default_factory=Serving)
    steps: list = dataclasses.field(default_factory=list)
    ended: list = dataclasses.field(default_factory=list)
    preemptions: int = 0
    swapped: int = 0
    swap_bytes: int = 0
    rejected: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0

    def run(self, workload: Workload) -> None:
        now, queue, self.free = 0.0, list(range(len(workload))), self.blocks
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        ranks = [0] * len(workload) if workload.priority is None else workload.priority
        while queue or self.waiting or self.running:
            while queue and workload.arrival_s[queue[0]] <= now:
                number = queue.pop(0)
                lengths = int(workload.prompt[number]), int(workload.output[number])
                self._submit(Sequence(number, *lengths, int(ranks[number])))
            if self.waiting or self.running:
                now = self._step(now)
            elif queue:
                now = float(workload.arrival_s[queue[0]])

    def _submit(self, sequence: Sequence) -> None:
        longest = sequence.prompt + sequence.output
        if longest <= self.limits.max_model_len and self._need(longest - 1) <= self.blocks:
            self.waiting.append(sequence)
        else:
            self.rejected += 1

    def _need(self, tokens: int) -> int:
        return math.ceil(tokens / self.size)

    def _step(self, now: float) -> float:
        before, moved = self.preemptions, self.swap_bytes
        for sequence in list(self.running):
            while sequence in self.running and not self._take(sequence, self._part(sequence)):
                self._preempt()
        batch = [(sequence, self._part(sequence)) for sequence in self.running]
        budget = self.limits.max_num_batched_tokens - sum(size for _, size in batch)
        spare = math.ceil(int(self.limits.watermark * self.blocks * self.size * LINE.token_bytes) / LINE.token_bytes)
        spare = self._need(spare)
        while self.preemptions == before and self.waiting and budget and len(self.running) < self.limits.max_num_seqs:
            sequence = self._first()
            if self._need(sequence.prompt + sequence.generated) + (spare if self.running else 0) > self.free:
                break
            self.waiting.remove(sequence)
            self.running.append(sequence)
            sequence.target = sequence.prompt + sequence.generated
            sequence.decodes = bool(sequence.on_host and sequence.generated)
            sequence.computed, sequence.on_host = sequence.on_host, 0
            self.swap_bytes += sequence.computed * LINE.token_bytes
            size = min(budget, sequence.target - sequence.computed)
            assert self._take(sequence, size)
            batch.append((sequence, size))
            budget -= size
        return self._compute(now, batch, (self.swap_bytes - moved) / self.serving.pcie_bandwidth)

    def _part(self, sequence: Sequence) -> int:
        """Its next token, or as much of its prompt as those that decode leave."""
        if sequence.computed >= sequence.target:
            return 1
        decoding = sum(other.computed >= other.target for other in self.running)
        return min(self.limits.max_num_batched_tokens - decoding, sequence.target - sequence.computed)

    def _first(self) -> Sequence:
        by_priority = self.serving.scheduling == "priority"
        return min(self.waiting, key=lambda job: (job.priority, job.number)) if by_priority else self.waiting[0]

    def _take(self, sequence: Sequence, size: int) -> bool:
        need = self._need(sequence.computed + size) - sequence.blocks
        if need > self.free:
            return False
        self.free -= need
        sequence.blocks += need
        return True

    def _preempt(self) -> None:
        victim = self.running[-1]
        if self.serving.scheduling == "priority":
            victim = max(self.running, key=lambda job: (job.priority, job.number))
        self.running.remove(victim)
        self.preemptions += 1
        self.free += victim.blocks
        used = sum(other.on_host for other in self.waiting)
        space = self.serving.swap_space if self.serving.preemption == "swap" else 0
        if (used + victim.computed) * LINE.token_bytes <= space:
            victim.on_host = victim.computed
            self.swapped += 1
            self.swap_bytes += victim.on_host * LINE.token_bytes
        victim.blocks = victim.computed = 0
        self.waiting.insert(0, victim)

    def _compute(self, now: float, batch: list, wait: float) -> float:
        tokens = sum(size for _, size in batch)
        attended = sum(sequence.computed + size for sequence, size in batch if size)
        compute = 2 * LINE.parameters * tokens / LINE.flops
        memory = (LINE.weight_bytes + attended * LINE.token_bytes) / LINE.bandwidth
        seconds = max(compute, memory) + LINE.overhead_s + wait
        if any(sequence.computed < sequence.target and not sequence.decodes for sequence, size in batch):
            self.prefill_s += seconds
        else:
            self.decode_s += seconds
        now += seconds
        live = sum(sequence.computed + size for sequence, size in batch)
        self.steps.append((now, live * LINE.token_bytes, len(self.running)))
        for sequence, size in batch:
            sequence.computed += size
            sequence.decodes = False
            if sequence.computed == sequence.prompt + sequence.generated:
                sequence.generated += 1
            if sequence.generated == sequence.output:
                self.running.remove(sequence)
                self.free += sequence.blocks
                self.ended.append((sequence.number, now))
        return now


class Watch(Meter):
    """A meter that keeps every step, for comparison."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget)
        self.steps: list[tuple[float, int, int]] = []

    def advance(self, until: float, live: int, running: int) -> None:
        if running:
            self.steps.append((until, live, running))
        super().advance(until, live, running)


def workload(arrivals: list[float], prompts: list[int], outputs: list[int], ranks: list[int] | None = None) -> Workload:
    lengths = np.array(prompts, np.int64), np.array(outputs, np.int64)
    return Workload("test", np.array(arrivals, float), *lengths, priority=None if ranks is None else np.array(ranks))


def simulate(load: Workload, policy: Blocks, limits: Limits, serving: Serving | None = None) -> Simulation:
    simulation = Simulation(load, policy, limits, LINE, Watch(policy.budget), serving)
    simulation.run()
    policy.close()
    return simulation


def drawn(rng: random.Random, size: int) -> tuple[Workload, Limits, int]:
    """A workload, bounds of a batch, and a number of blocks, which are few for it."""
    count = rng.randint(1, 25)
    limits = Limits(rng.choice([40, 100]), rng.choice([1, 3, 8]), rng.choice([8, 13, 64]))
    load = workload(
        sorted(rng.uniform(0, rng.choice([0.001, 0.05, 1.0])) for _ in range(count)),
        [rng.randint(1, 50) for _ in range(count)],
        [rng.randint(1, 30) for _ in range(count)],
        [rng.randint(-1, 2) for _ in range(count)],
    )
    return load, limits, rng.randint(1, 1 + 200 // size)


def check_same(found: Simulation, naive: Naive, load: Workload) -> None:
    assert found.meter.steps == naive.steps  # times bit for bit, live bytes, running sequences
    assert found.scheduler.preemptions == naive.preemptions
    assert found.scheduler.completed == len(naive.ended) == len(load) - naive.rejected
    assert found.scheduler.rejected == naive.rejected
    assert sum(found.bound_steps) == found.steps == len(naive.steps)
    assert (found.prefill_s, found.decode_s) == (naive.prefill_s, naive.decode_s)


@pytest.mark.parametrize("seed", range(300))
def test_every_step_is_that_of_the_plain_simulation(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([1, 2, 5, 16])
    load, limits, blocks = drawn(rng, size)
    naive = Naive(blocks, size, limits)
    naive.run(load)
    check_same(simulate(load, Blocks(blocks, size), limits), naive, load)


@pytest.mark.parametrize("scheduling", ["fcfs", "priority"])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("watermark", [0.0, 0.1])
def test_every_way_to_serve_is_that_of_the_plain_simulation(scheduling: str, preemption: str, watermark: float) -> None:
    """And each rule matters somewhere in it: it preempts, swaps some and computes others again."""
    preempted = swapped = 0
    for seed in range(80):
        rng = random.Random(f"{seed}{scheduling}{preemption}{watermark}")
        size = rng.choice([1, 2, 5, 16])
        load, limits, _ = drawn(rng, size)
        load = load.scaled(1000)  # a crowd
        limits = dataclasses.replace(limits, max_num_seqs=8, watermark=watermark)
        blocks = rng.randint(60, 120) // size  # little more than the longest needs
        space = rng.choice([0, 40, 100, 1000]) * LINE.token_bytes
        serving = Serving(scheduling, preemption, space, rng.choice([1e5, 1e7]))
        naive = Naive(blocks, size, limits, serving)
        naive.run(load)
        found = simulate(load, Blocks(blocks, size), limits, serving)
        check_same(found, naive, load)
        assert found.scheduler.swapped == naive.swapped
        assert (found.host_space.copied if found.host_space else 0) == naive.swap_bytes
        assert not found.host_space or (found.host_space.used, found.host_space.peak <= space) == (0, True)
        assert found.waited_s == pytest.approx(naive.swap_bytes / serving.pcie_bandwidth)
        preempted += naive.preemptions
        swapped += naive.swapped
    assert preempted > 60
    assert (30 < swapped < preempted - 30) if preemption == "swap" else swapped == 0


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_held_tokens_are_those_of_the_step_and_less_what_leaves(preemption: str) -> None:
    """``live_tokens`` is compared with the plain simulation above; what is held is the same until somebody leaves."""
    ends, preempted = 0, 0
    for seed in range(60):
        rng = random.Random(f"{seed}{preemption}")
        size = rng.choice([1, 2, 5, 16])
        load, limits, _ = drawn(rng, size)
        serving = Serving("fcfs", preemption, 100 * LINE.token_bytes)
        policy = Blocks(rng.randint(60, 120) // size, size)
        scheduler = Scheduler(policy, limits, serving.waiting(), serving.host_space(LINE.token_bytes))
        left: list[int] = []
        finish = policy.finish

        def told(request: int, scheduler=scheduler, left=left, finish=finish) -> None:
            before = scheduler.held_tokens
            finish(request)
            left.append(scheduler.leaving)
            assert scheduler.leaving > 0 and scheduler.held_tokens == before >= 0

        policy.finish = told
        for number, (prompt, output) in enumerate(zip(load.prompt.tolist(), load.output.tolist(), strict=True)):
            scheduler.submit(number, prompt, output)
        while scheduler.running or scheduler.waiting:
            scheduler.schedule()
            assert scheduler.held_tokens == scheduler.live_tokens
            left.clear()
            scheduler.complete()
            assert (scheduler.held_tokens, scheduler.leaving) == (scheduler.live_tokens - sum(left), 0)
            ends += len(left)
        assert scheduler.held_tokens == 0
        preempted += scheduler.preemptions
    assert ends > 300 and preempted > 30


def test_random_workloads_reach_preemption_and_rejection() -> None:
    """The comparison above would prove little if the cases that matter never came up in it."""
    seen = {"preempted": 0, "rejected": 0, "cut": 0}
    for seed in range(60):
        rng = random.Random(seed)
        prompts = [rng.randint(1, 50) for _ in range(20)]
        outputs = [rng.randint(1, 30) for _ in range(20)]
        naive = Naive(12, 5, Limits(70, 8, 13))
        naive.run(workload([0.0] * 20, prompts, outputs))
        seen["preempted"] += naive.preemptions
        seen["rejected"] += naive.rejected
        seen["cut"] += sum(prompt > 13 for prompt in prompts)
    assert all(count > 100 for count in seen.values()), seen


def test_one_sequence_step_by_step() -> None:
    """A prompt of 10 in steps of 4 (4, 4, 2), then 2 more tokens: 5 steps, 12 tokens in memory at the end."""
    found = simulate(workload([0.0], [10], [3]), Blocks(4, 4), Limits(100, 1, 4))
    assert [live // LINE.token_bytes for _, live, _ in found.meter.steps] == [4, 8, 10, 11, 12]
    assert (found.scheduler.completed, found.scheduler.generated) == (1, 3)


def test_output_of_one_ends_with_the_prompt() -> None:
    found = simulate(workload([0.0], [5], [1]), Blocks(4, 4), Limits(100, 1, 8))
    assert found.steps == 1
    assert found.decode_s == 0


def test_the_policy_is_called_only_at_block_boundaries() -> None:
    """1 + 100 tokens in blocks of 16: admitted once, grown at 17, 33, ... 97; not called in the other 94 steps."""
    policy = Blocks(8, 16)
    found = simulate(workload([0.0], [1], [101]), policy, Limits(200, 1, 8))
    assert found.steps == 101
    assert policy.calls == 1 + 6


def test_the_latest_is_preempted_and_computes_again() -> None:
    """Two sequences of 4 + 5 tokens in 3 blocks of 4. In step 2 the first needs block 3 of 3 and gets it; the second
    needs one more, is the latest itself, and gives up its own. It starts again when the first has ended, with 5 tokens.
    """
    found = simulate(workload([0.0, 0.0], [4, 4], [5, 5]), Blocks(3, 4), Limits(20, 2, 8))
    assert found.scheduler.preemptions == 1
    lives = [(live // LINE.token_bytes, running) for _, live, running in found.meter.steps]
    assert lives == [(8, 2), (5, 1), (6, 1), (7, 1), (8, 1), (5, 1), (6, 1), (7, 1), (8, 1)]


def test_an_idle_gap_costs_no_steps() -> None:
    found = simulate(workload([0.0, 500.0], [4, 4], [2, 2]), Blocks(3, 4), Limits(20, 2, 8))
    assert found.steps == 4
    assert found.now > 500


def test_rejections_are_counted_apart() -> None:
    found = simulate(workload([0, 0, 0], [90, 30, 5], [20, 5, 2]), Blocks(4, 4), Limits(100, 2, 64))
    assert (found.scheduler.too_long, found.scheduler.never_fits, found.scheduler.completed) == (1, 1, 1)


class Liar(Blocks):
    """Says that everything fits."""

    def fits(self, tokens: int) -> bool:
        return tokens > 0


@pytest.mark.parametrize(("prompt", "output"), [(30, 2), (4, 30)])
def test_a_policy_that_promised_too_much_ends_the_run(prompt: int, output: int) -> None:
    with pytest.raises(SchedulerError, match=r"needs room for .* tokens, nothing runs"):
        simulate(workload([0.0], [prompt], [output]), Liar(4, 4), Limits(100, 2, 64))


class Stubborn(Blocks):
    """Lets a sequence begin and never grow beyond 8 tokens."""

    def can_grow(self, request: int, tokens: int) -> bool:
        return request >= 0 and tokens <= 8


def test_a_sequence_that_makes_no_progress_ends_the_run() -> None:
    with pytest.raises(SchedulerError, match=r"request 0 \(30 \+ 2 tokens\) runs alone and cannot grow"):
        simulate(workload([0.0], [30], [2]), Stubborn(20, 4), Limits(100, 2, 8))


class Scattered(Blocks):
    """Cannot give a fourth block in the place where the sequence began, but can after a new beginning."""

    refused = False

    def can_grow(self, request: int, tokens: int) -> bool:
        if tokens == 13 and not self.refused:
            self.refused = True
            return False
        return super().can_grow(request, tokens)


def test_a_sequence_that_runs_alone_may_start_again_once() -> None:
    """4 + 20 tokens: in step 10 it would have 13 tokens, starts again with the 13 known, and ends after 20 steps."""
    found = simulate(workload([0.0], [4], [20]), Scattered(6, 4), Limits(100, 2, 64))
    assert (found.scheduler.preemptions, found.scheduler.completed, found.steps) == (1, 1, 20)


@pytest.mark.parametrize(
    ("field", "value"), [("max_model_len", 0), ("max_num_seqs", -1), ("max_num_batched_tokens", 0)]
)
def test_limits_must_be_positive(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least 1, not {value}"):
        dataclasses.replace(Limits(100), **{field: value})


def test_a_batch_must_hold_a_token_of_every_sequence() -> None:
    with pytest.raises(ValueError, match=r"max_num_batched_tokens \(8\) must be at least max_num_seqs \(9\)"):
        Limits(100, 9, 8)


def test_time_a_step_does_not_depend_on_how_many_run() -> None:
    """Only events cost: 200 sequences that decode 50 tokens in one block each need no call but to begin and to end."""
    policy = Blocks(200, 64)
    scheduler = Scheduler(policy, Limits(100, 200, 2000))
    for number in range(200):
        scheduler.submit(number, 10, 50)
    for _ in range(50):
        scheduler.schedule()
        scheduler.complete()
    assert scheduler.completed == 200
    assert policy.calls == 200


def test_a_swapped_sequence_goes_on_where_it_was() -> None:
    """As above with room on the host: the second comes back with its 4 tokens and computes the fifth at once. Each way
    4 tokens of 8 bytes are 32 bytes, at 64,000 bytes a second half a millisecond, in the steps that wait for it."""
    serving = Serving(preemption="swap", swap_space=32, pcie_bandwidth=64e3)
    found = simulate(workload([0.0, 0.0], [4, 4], [5, 5]), Blocks(3, 4), Limits(20, 2, 8), serving)
    lives = [(live // LINE.token_bytes, running) for _, live, running in found.meter.steps]
    assert lives == [(8, 2), (5, 1), (6, 1), (7, 1), (8, 1), (5, 1), (6, 1), (7, 1), (8, 1)]
    assert (found.scheduler.preemptions, found.scheduler.swapped) == (1, 1)
    assert (found.host_space.copied_out, found.host_space.copied_in, found.host_space.used) == (32, 32, 0)
    assert found.waited_s == pytest.approx(2 * 0.5e-3)
    assert found.scheduler.written == 8 + 4 + 4  # nothing twice


def test_what_has_no_room_on_the_host_is_computed_again() -> None:
    serving = Serving(preemption="swap", swap_space=31)
    found = simulate(workload([0.0, 0.0], [4, 4], [5, 5]), Blocks(3, 4), Limits(20, 2, 8), serving)
    assert (found.scheduler.preemptions, found.scheduler.swapped, found.host_space.copied) == (1, 0, 0)
    assert found.scheduler.written == 8 + 4 + 4 + 4  # the second's four once more


def test_priority_decides_who_goes_first_and_who_is_preempted() -> None:
    """Three arrive at once and two may run: 2 and 0 begin, by their numbers 0 and 1. Of 3 blocks of 4 the second asks
    for one more first, and it is request 0, of the greater number, that gives up its own."""
    load = workload([0.0] * 3, [4, 4, 4], [5, 5, 5], [1, 2, 0])
    ended = []
    policy = Blocks(3, 4)
    scheduler = Scheduler(policy, Limits(20, 2, 8), Serving("priority").waiting())
    for number in range(3):
        scheduler.submit(number, 4, 5, int(load.priority[number]))
    while scheduler.running or scheduler.waiting:
        scheduler.schedule()
        before = set(scheduler.running)
        scheduler.complete()
        ended += sorted(before - set(scheduler.running))
        if scheduler.step == 1:
            assert set(before) == {2, 0}
        if scheduler.step == 2:
            assert set(before) == {2}
    assert ended == [2, 0, 1]


def test_a_watermark_leaves_room_to_grow() -> None:
    """Of 5 blocks two stay free: the second prompt of 2 blocks waits until the first has ended. Alone none waits."""
    load = workload([0.0, 0.0], [8, 8], [2, 2])
    assert [running for _, _, running in simulate(load, Blocks(5, 4), Limits(20, 2, 64)).meter.steps] == [2, 1, 1]
    found = simulate(load, Blocks(5, 4), Limits(20, 2, 64, watermark=0.25))
    assert [running for _, _, running in found.meter.steps] == [1, 1, 1, 1]
    alone = simulate(workload([0.0], [16], [5]), Blocks(5, 4), Limits(40, 2, 64, watermark=0.99))
    assert alone.scheduler.completed == 1


class Asked(Blocks):
    """Notes its state whenever it has said no."""

    refused = 0

    def can_admit(self, tokens: int, spare: int = 0) -> bool:
        return self._unchanged(super().can_admit, tokens, spare)

    def can_grow(self, request: int, tokens: int) -> bool:
        return self._unchanged(super().can_grow, request, tokens)

    def _unchanged(self, ask, *args: int) -> bool:
        before = dict(self.tables)
        said = ask(*args)
        assert self.tables == before
        self.refused += not said
        return said


def test_not_now_leaves_the_scheduler_as_it_was() -> None:
    """A step in which nobody can be admitted changes no queue, no order and no count of it."""
    policy = Asked(4, 4)
    scheduler = Scheduler(policy, Limits(40, 4, 64), Serving("priority").waiting())
    for number, prompt in enumerate([14, 8, 9]):
        scheduler.submit(number, prompt, 3, -number)
    scheduler.schedule()
    scheduler.complete()
    waiting, refused = [job.number for job in scheduler.waiting], policy.refused
    assert waiting
    before = dict(policy.tables)
    scheduler.schedule()
    assert policy.refused > refused
    assert [job.number for job in scheduler.waiting] == waiting
    assert policy.tables == before
    assert scheduler.preemptions == 0
