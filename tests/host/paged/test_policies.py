"""Every policy on the real allocators: one contract for all, and what each does, worked out by hand."""

import random

import numpy as np
import pytest

import paged
import vmm
from paged.policies import POLICIES, Usage, check_policy
from paged.policies.grow_copy import GrowCopy
from paged.policies.make import make_policy
from paged.policies.policy import Policy
from paged.replay import replay
from paged.replay.options import Options
from paged.replay.setup import Setup, prepare
from paged.serving.driver_calls import DriverCalls
from paged.serving.workload import Workload

MIB = 1 << 20
GRANULARITY = 2 * MIB


def setup_of(budget: int, **options) -> Setup:
    """A setup with exactly that many bytes for KV; llama-3-8b: 128 KiB a token, so that 16 tokens are one chunk."""
    chosen = {"max_model_len": 512, "driver": "host", **options}
    weights = prepare(Options(gpu_memory="80 GiB", **chosen)).model.weight_bytes
    memory = budget + weights + -(budget + weights) % GRANULARITY
    slack = memory - budget - weights
    return prepare(Options(gpu_memory=memory, gpu_memory_utilization=1.0, activation_memory=slack, **chosen))


class Bench:
    """A policy on a host driver without bytes, and what the driver says of it."""

    def __init__(self, name: str, budget: int, workload: Workload | None = None, **options) -> None:
        self.setup = setup_of(budget, **options)
        assert self.setup.budget == budget
        self.host = vmm.HostDriver(memory=self.setup.memory, backing="none")
        self.calls = DriverCalls(self.host)
        self.device = vmm.Device(0, driver=self.calls.api)
        self.policy: Policy = make_policy(name, self.device, self.setup, workload)

    def in_use(self) -> int:
        """Bytes that the driver counts as given out."""
        info = self.device.memory_info()
        return info.total - info.free

    def check(self, live: int) -> Usage:
        """The usage, which must agree with the driver's own count and hold ``live`` tokens."""
        usage = self.policy.usage()
        assert sum(usage[2:]) == usage.committed == self.in_use()
        assert live * self.setup.model.token_bytes <= usage.held
        assert usage.committed <= min(self.setup.budget, usage.reserved)
        assert min(usage) >= 0
        return usage


@pytest.fixture
def bench():
    made = []

    def make(name: str, budget: int, workload: Workload | None = None, **options) -> Bench:
        made.append(Bench(name, budget, workload, **options))
        return made[-1]

    yield make
    for one in made:
        one.policy.close()
        one.device.close()
        live = one.host.live()
        assert (live.reservations, live.mappings, live.allocations) == (0, 0, 0)


# -- the contract -------------------------------------------------------------------------------------------------

SHAPES = [
    {},
    {"order": "layer"},
    {"order": "layer", "chunk": "4 MiB", "block_size": 8},
    {"chunk": "6 MiB", "block_size": 16},
    {"block_size": 24},
    {"reserve": 0.5},
    {"order": "layer", "compact": 1.0},
    {"chunk": "8 MiB", "compact": 1.2, "compact_blocks": 2},
]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_use_keeps_the_contract(bench, name: str, shape: dict) -> None:
    """Sequences come, grow and go at random; after each step the books agree with the driver's."""
    one = bench(name, 640 * MIB, **shape)
    policy, rng = one.policy, random.Random(f"{name}{shape}")
    tokens: dict[int, int] = {}
    room: dict[int, int] = {}
    refused = 0
    for number in range(400):
        action = rng.choice(("admit", "admit", "admit", "grow", "grow", "finish", "settle"))
        if action == "admit":
            prompt = rng.randint(1, 300)
            first = rng.randint(1, prompt)
            if policy.fits(prompt) and policy.can_admit(prompt):
                room[number] = policy.admit(number, first, prompt)
                tokens[number] = first
            else:
                refused += 1
        elif action == "grow" and tokens:
            request = rng.choice(list(tokens))
            wanted = min(512, room[request] + 1)
            if wanted <= room[request] or policy.can_grow(request, wanted):
                if wanted > room[request]:
                    room[request] = policy.grow(request, wanted)
                tokens[request] = wanted
            else:
                refused += 1
        elif action == "finish" and tokens:
            request = rng.choice(list(tokens))
            policy.finish(request)
            del tokens[request], room[request]
        elif action == "settle":
            policy.settle()
            policy.tidy()
        assert all(room[request] >= tokens[request] for request in tokens)
        one.check(sum(tokens.values()))
    assert refused > 5
    for request in tokens:
        policy.finish(request)
    policy.settle()
    assert one.check(0).held == 0


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_fits_can_be_served_alone(bench, name: str, shape: dict) -> None:
    """The longest sequence that ``fits`` grows token by token to its end, and one that does not fit is none."""
    one = bench(name, 256 * MIB, max_model_len=1024, **shape)
    policy = one.policy
    longest = max((tokens for tokens in range(1, 1025) if policy.fits(tokens)), default=0)
    assert not policy.fits(2049)  # 256 MiB
    if not longest:
        return
    assert policy.can_admit(1)
    room = policy.admit(0, 1, 1)
    for tokens in range(1, longest + 1):
        if tokens > room:
            assert policy.can_grow(0, tokens)
            room = policy.grow(0, tokens)
            policy.settle()
        one.check(tokens)


@pytest.mark.parametrize("name", POLICIES)
def test_a_full_budget_refuses_and_changes_nothing(bench, name: str) -> None:
    one = bench(name, 512 * MIB)
    number = 0
    while one.policy.can_admit(100):
        one.policy.admit(number, 100, 100)
        number += 1
    before = one.policy.usage()
    assert not one.policy.can_admit(100)
    assert number >= 512 * MIB // (512 * 128 * 1024)
    assert one.policy.usage() == before
    one.policy.finish(0)
    one.policy.settle()
    assert one.policy.can_admit(100)


# -- static -------------------------------------------------------------------------------------------------------


def test_static_commits_the_longest_sequence(bench) -> None:
    """512 tokens of 128 KiB are 64 MiB; a budget of 300 MiB has room for 4."""
    one = bench("static", 300 * MIB)
    assert [one.policy.admit(number, 1, 1) for number in range(4)] == [512] * 4
    assert not one.policy.can_admit(1)
    assert one.check(4) == Usage(256 * MIB, 256 * MIB, 256 * MIB)
    assert one.calls.counts()["cuMemCreate"] == 4
    one.policy.finish(2)
    assert one.check(3).committed == 192 * MIB


# -- grow-copy ----------------------------------------------------------------------------------------------------


def test_grow_copy_doubles_and_holds_both_buffers_while_it_copies(bench) -> None:
    """20 tokens need 2.5 MiB: a buffer of 4 MiB with room for 32. The 33rd moves 32 tokens to one of 8 MiB."""
    one = bench("grow-copy", 64 * MIB)
    assert one.policy.admit(0, 20, 20) == 32
    assert one.check(20) == Usage(4 * MIB, 4 * MIB, 4 * MIB)
    assert one.policy.grow(0, 33) == 64
    assert one.check(33) == Usage(12 * MIB, 12 * MIB, 8 * MIB, retiring=4 * MIB)
    assert one.policy.copied == 32 * 128 * 1024
    assert one.calls.counts()["cuMemcpyDtoDAsync"] == 1
    assert one.policy.settle()
    assert one.check(33) == Usage(8 * MIB, 8 * MIB, 8 * MIB)
    assert not one.policy.settle()


def test_grow_copy_makes_no_buffer_larger_than_the_longest_sequence(bench) -> None:
    one = bench("grow-copy", 512 * MIB)
    assert one.policy.admit(0, 300, 300) == 304  # 37.5 MiB, in units of 2 MiB
    assert one.policy.grow(0, 305) == 512
    assert one.check(305).held == 64 * MIB


def test_grow_copy_cannot_grow_where_only_one_of_two_buffers_has_room(bench) -> None:
    """32 MiB and then 64 MiB are 96: a budget of 90 refuses, although the sequence alone would fit."""
    one = bench("grow-copy", 90 * MIB)
    one.policy.admit(0, 256, 256)
    assert not one.policy.can_grow(0, 257)
    assert not one.policy.fits(257)
    assert one.policy.fits(200)  # at worst from 26 to 52 MiB


def test_grow_copy_moves_the_bytes() -> None:
    text = bytes(range(256)) * (2 * MIB // 256)
    found = bytearray(len(text))
    with vmm.Device(0, driver=vmm.HostDriver(memory="64 MiB", backing="memory")) as device, device.current():
        policy = GrowCopy(device, 64 * MIB, token_bytes=128 * 1024, max_model_len=512)
        policy.admit(0, 16, 16)
        device.driver.copy_in(policy.buffers[0].addresses.base, text, len(text))
        policy.grow(0, 17)
        policy.settle()
        device.driver.copy_out(found, policy.buffers[0].addresses.base, len(text))
        policy.close()
    assert found == text


# -- paged-prealloc and paged-vmm ---------------------------------------------------------------------------------


def test_paged_prealloc_commits_everything_and_calls_the_driver_no_more(bench) -> None:
    """Blocks of 16 tokens are 2 MiB: 20 tokens hold 2 of 32, and 12 of their 32 slots are tail."""
    one = bench("paged-prealloc", 64 * MIB)
    before = one.calls.counts()
    assert one.policy.admit(0, 20, 20) == 32
    assert one.policy.grow(0, 33) == 48
    assert one.calls.counts() == before
    assert one.check(33) == Usage(64 * MIB, 64 * MIB, 6 * MIB, unused=58 * MIB)


def test_paged_vmm_commits_what_is_held_and_reserves_twice_the_budget(bench) -> None:
    one = bench("paged-vmm", 64 * MIB, reserve=0.0)
    assert one.check(0) == Usage(128 * MIB, 0, 0)
    one.policy.admit(0, 20, 20)
    assert one.check(20) == Usage(128 * MIB, 4 * MIB, 4 * MIB)
    one.policy.finish(0)
    assert one.check(0).committed == 0


def test_paged_vmm_keeps_a_share_of_the_rows_in_use_mapped(bench) -> None:
    """20 and 10 blocks are 30 rows; when the 20 end, a tenth of the 30 stays mapped and serves the next for nothing."""
    one = bench("paged-vmm", 64 * MIB, reserve=0.1)
    one.policy.admit(0, 320, 320)
    one.policy.admit(1, 160, 160)
    one.policy.finish(0)
    assert one.check(160) == Usage(128 * MIB, 26 * MIB, 20 * MIB, unused=6 * MIB)
    before = one.calls.counts()
    one.policy.admit(2, 48, 48)
    assert one.calls.counts() == before
    assert one.check(208) == Usage(128 * MIB, 26 * MIB, 26 * MIB)


def test_a_row_of_all_layers_is_larger_than_a_block(bench) -> None:
    """Order layer: 32 planes of 2 MiB are a row of 64 MiB with room for 32 blocks of 2 MiB; 3 are held."""
    one = bench("paged-vmm", 128 * MIB, order="layer", reserve=0.0)
    one.policy.admit(0, 40, 40)
    assert one.check(40) == Usage(256 * MIB, 64 * MIB, 6 * MIB, row=58 * MIB)


@pytest.mark.parametrize(("compact", "most", "moved"), [(1.5, 2, 2), (1.5, 1, 0), (2.5, 2, 0)])
def test_compaction_empties_the_sparsest_row_where_rows_hold_too_much(
    bench, compact: float, most: int, moved: int
) -> None:
    """Rows of 32 blocks. 30 blocks begin row 0, 2 of the next 8 end it, 6 and 20 more lie in row 1. The 30 go: 28 are
    left in 128 MiB, 2.3 times their 56. Row 0 is the emptier; its 2 blocks move to row 1, and 64 MiB are free. With
    room for one move the row stays whole, and so it does under a bound of 2.5."""
    one = bench("paged-vmm", 256 * MIB, order="layer", reserve=0.0, compact=compact, compact_blocks=most)
    for number, blocks in enumerate((30, 8, 20)):
        one.policy.admit(number, 16 * blocks, 16 * blocks)
    one.policy.finish(0)
    assert one.check(28 * 16) == Usage(512 * MIB, 128 * MIB, 56 * MIB, row=72 * MIB)
    one.policy.tidy()
    one.policy.settle()
    assert one.policy.copied == moved * 2 * MIB
    rows = 1 if moved else 2
    assert one.check(28 * 16) == Usage(512 * MIB, rows * 64 * MIB, 56 * MIB, row=(64 * rows - 56) * MIB)


def test_prefix_blocks_are_shared_counted_once_and_kept(bench) -> None:
    """Two prompts of 1,100 tokens with 1,024 in common, in blocks of 16: 64 are shared. The second has 5 of its own."""
    load = Workload("two", np.zeros(2), np.full(2, 1100), np.full(2, 4), hash_ids=((1, 2, 3), (1, 2, 4)))
    one = bench("paged-vmm", 512 * MIB, load, max_model_len=2048, reserve=0.0, prefix_cache=True)
    assert one.policy.recall(0) == 0
    one.policy.admit(0, 1100, 1100)
    assert one.policy.shared == 0
    assert one.policy.recall(1) == 1024
    one.policy.admit(1, 1100, 1100)
    assert one.policy.shared == 1024
    usage = one.policy.usage()
    assert usage == Usage(1024 * MIB, 148 * MIB, 148 * MIB)  # 69 + 5 blocks of 2 MiB
    one.policy.finish(0)
    assert one.policy.shared == 0
    one.policy.finish(1)
    usage = one.policy.usage()
    assert (usage.held, usage.prefix) == (0, 2 * (68 + 4) * MIB)  # whole blocks of the prompts
    assert usage.committed == one.in_use() == sum(usage[2:])
    counts = one.policy.prompts
    assert counts is not None
    assert (counts.asked, counts.hit) == (6, 2)


def test_what_others_hold_of_a_prompt_needs_no_room(bench) -> None:
    """As above, in 80 blocks: the second prompt has 69, of which the first holds 64; 11 are left."""
    load = Workload("two", np.zeros(2), np.full(2, 1100), np.full(2, 4), hash_ids=((1, 2, 3), (1, 2, 4)))
    one = bench("paged-vmm", 160 * MIB, load, max_model_len=1104, reserve=0.0, prefix_cache=True)
    assert one.policy.prompt_in_use(1) == 0
    one.policy.recall(0)
    one.policy.admit(0, 1100, 1100)
    assert one.policy.prompt_in_use(1) == 1024
    assert not one.policy.can_admit(1100) and one.policy.can_admit(1100 - 1024)
    assert not one.policy.can_admit(1100 - 1024, 13 * MIB)
    one.policy.finish(0)
    assert one.policy.prompt_in_use(1) == 0  # only the cache holds it: it may go
    assert one.policy.can_admit(1100)


def test_prompts_that_share_run_together_where_each_alone_would_fill_the_memory() -> None:
    load = Workload("two", np.zeros(2), np.full(2, 1100), np.full(2, 40), hash_ids=((1, 2, 3), (1, 2, 4)))
    options = {"model": "llama-3-8b", "driver": "host", "policies": "paged-vmm", "max_model_len": 1200}
    options |= {"gpu_memory_utilization": 1.0, "activation_memory": 0, "watermark": 0.0}
    memory = paged.model("llama-3-8b").weight_bytes + 160 * MIB
    together = replay(load, prefix_cache=True, gpu_memory=memory, **options).policies["paged-vmm"]
    apart = replay(load, gpu_memory=memory, **options).policies["paged-vmm"]
    assert (together.running.peak, apart.running.peak) == (2, 1)
    assert together.completed == apart.completed == 2


@pytest.mark.parametrize("name", POLICIES)
def test_a_watermark_is_beside_what_is_asked(bench, name: str) -> None:
    one = bench(name, 512 * MIB, max_num_seqs=64)
    one.policy.admit(0, 100, 100)
    assert one.policy.can_admit(100)
    assert one.policy.can_admit(100, 100 * MIB)
    assert not one.policy.can_admit(100, 500 * MIB)
    before = one.policy.usage()
    assert not one.policy.can_admit(100, 1 << 50)
    assert one.policy.usage() == before


# -- contiguous-vmm -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "step"), [("block", 2), ("layer", 128)])
def test_the_smallest_step_of_a_span_depends_on_the_order(bench, order: str, step: int) -> None:
    """Token after token over all layers: a chunk. A span for K and V of each of 32 layers: 64 chunks of 2 MiB."""
    one = bench("contiguous-vmm", 300 * MIB, order=order, max_num_seqs=8)
    room = step * MIB // (128 * 1024)
    assert one.policy.admit(0, 1, 1) == min(room, 512)
    assert one.check(1).held == step * MIB
    assert one.policy.fits(512)
    reserved = 8 * 512 * 128 * 1024 if order == "block" else 64 * 8 * 2 * MIB
    assert one.policy.usage().reserved == reserved


def test_a_span_that_outgrows_the_budget_does_not_fit(bench) -> None:
    """64 tokens in steps of 16 need 8 MiB; a budget of 7 has room for 3 steps."""
    one = bench("contiguous-vmm", 7 * MIB)
    assert one.policy.fits(48)
    assert not one.policy.fits(49)


# -- names --------------------------------------------------------------------------------------------------------


def test_an_unknown_policy_is_named_with_its_neighbour() -> None:
    with pytest.raises(ValueError, match=r"unknown policy 'paged-vm'; did you mean 'paged-vmm'\? known: static, "):
        check_policy("paged-vm")
