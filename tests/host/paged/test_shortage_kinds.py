"""Why memory runs out in what is no single pool: spans, groups, swap spaces, and the scheduler's "not now"."""

import pytest

import paged
import vmm
from paged.policies.contiguous_vmm import ContiguousVmm
from paged.policies.grow_copy import GrowCopy
from paged.policies.paged_vmm import PagedVmm
from paged.policies.static import Static
from paged.serving.limits import Limits
from paged.serving.scheduler import Scheduler

MIB = 1 << 20
CHUNK = 2 * MIB
SPEC = paged.KVSpec(1, 1, 4096, "float32")  # 32 KiB a token
LAYOUT = paged.KVLayout(SPEC, 16, "block")  # 512 KiB a block, four a row
TOKEN = SPEC.token_bytes


def report_of(call, *args, error=vmm.OutOfMemoryError, **names):
    """What the refused call says, in five lines."""
    with pytest.raises(error) as refused:
        call(*args, **names)
    report = refused.value.report
    assert len(str(report).splitlines()) == 5
    return report


# -- spans ------------------------------------------------------------------------------------------------------


def spans_of(device, **options):
    return paged.ContiguousKV(device, SPEC, **{"max_length": 256, "max_sequences": 3, "order": "token", **options})


def test_all_spans_are_open(device):
    with spans_of(device, max_sequences=2) as kv:
        long, short = kv.open(), kv.open()
        long.append(100)
        short.append(3)
        report = report_of(kv.open)
        assert report == kv.shortage()
        assert (report.unit, report.asked, report.cause) == ("spans", 1, "virtual range")
        assert [(one.action, one.value) for one in report.remedies] == [("more spans", 3), ("free", (1,))]
        short.close()
        assert kv.shortage() is None
        kv.open()


def test_a_span_is_longer_than_its_addresses(device):
    with spans_of(device) as kv:
        span = kv.open()
        span.append(200)
        report = report_of(span.append, 57, error=vmm.RangeError)
        assert (report.cause, report.asked, report.granted) == ("virtual range", 57, 56)
        assert report == span.shortage(57)
        found = kv.shortage(257)  # of a span that is not open yet: closing another would not help
        assert (found.cause, found.granted) == ("virtual range", 256)
        assert [(one.action, one.value) for one in found.remedies] == [("more addresses", 257)]
    with spans_of(device, max_length=report.remedies[0].value) as kv:
        kv.open().append(257)


def test_spans_fill_the_budget(device):
    with spans_of(device, budget=3 * CHUNK) as kv:
        one, other = kv.open(), kv.open()
        one.append(64)
        other.append(65)  # 64 a chunk
        report = report_of(one.append, 2)
        assert (report.cause, report.unit, report.asked, report.granted) == ("budget", "tokens", 2, 0)
        assert [(held.name, held.bytes) for held in report.holders] == [("span 0", CHUNK), ("span 1", 2 * CHUNK)]
        assert sum(portion.bytes for portion in report.portions) == kv.committed
        larger, free = report.remedies
        assert (larger.action, larger.value, free.action, free.value) == ("raise budget", 4 * CHUNK, "free", (1,))
        other.close()
        one.append(2)
        assert one.shortage(62 + 64) is None
        assert one.shortage(62 + 65).granted == 62 + 64
    with spans_of(device, budget=larger.value) as kv:
        one, other = kv.open(), kv.open()
        one.append(64)
        other.append(65)
        one.append(2)


def test_a_span_that_is_too_short_to_help_is_not_named(device):
    with spans_of(device, budget=4 * CHUNK) as kv:
        one, short, long = kv.open(), kv.open(), kv.open()
        one.append(64)
        short.append(3)
        long.append(128)
        report = report_of(one.append, 65)  # two chunks
        assert [remedy.value for remedy in report.remedies if remedy.action == "free"] == [(2,)]
        long.close()
        one.append(65)


def test_a_span_shares_a_budget(device):
    with (
        vmm.ChunkSupply(device, CHUNK, budget=2 * CHUNK) as supply,
        supply.share("kv", ceiling=CHUNK) as share,
        spans_of(device, supply=share) as kv,
    ):
        span = kv.open()
        span.append(10)
        report = report_of(span.append, 60)
        assert (report.cause, report.granted) == ("ceiling", 54)
        share.set_bounds(ceiling=2 * CHUNK)
        held = supply.take(1)
        report = report_of(span.append, 60)
        assert (report.cause, report.granted) == ("shared budget", 54)
        supply.give(held)
        span.append(60)


def test_spans_on_a_full_device(device):
    with spans_of(device) as kv, vmm.GrowableRange(device, "256 MiB", name="other") as other:
        other.grow(device.memory_info().free)
        span = kv.open()
        report = report_of(span.append, 1)
        assert (report.cause, report.granted) == ("device", 0)
        assert ("range 'other'", 256 * MIB) in [(one.name, one.bytes) for one in report.holders]
        other.shrink(CHUNK)
        span.append(1)


def test_a_driver_that_refuses_without_a_reason(failing):
    device, api = failing
    with spans_of(device) as kv:
        span = kv.open()
        api.arm("cuMemMap")
        assert report_of(span.append, 1).cause == "driver"
        api.arm("cuMemMap")
        with paged.KVPool(device, LAYOUT, budget=4 * CHUNK) as pool:
            assert report_of(pool.allocate, 1).cause == "driver"
            api.arm("cuMemCreate")
            assert report_of(pool.claim, [3]).cause == "driver"


def test_a_device_that_does_not_answer_hides_no_lack_of_memory(failing, monkeypatch):
    device, api = failing

    def refuse(_device):
        raise vmm.DriverError("cuMemGetInfo", 999, "CUDA_ERROR_UNKNOWN")

    with paged.KVPool(device, LAYOUT, budget=4 * CHUNK) as pool, spans_of(device, budget=CHUNK) as kv:
        span = kv.open()
        monkeypatch.setattr(vmm.Device, "memory_info", refuse)
        api.arm("cuMemCreate")
        assert report_of(pool.allocate, 1).cause == "driver"
        assert report_of(pool.allocate, 17).cause == "budget"
        assert report_of(span.append, 65).cause == "budget"


# -- blocks as integers -----------------------------------------------------------------------------------------


def test_books_without_a_pool():
    books = paged.BlockPool(paged.Rows(8, MIB // 2, CHUNK), 1)
    report = report_of(books.allocate, 5)
    assert (report.unit, report.granted, report.cause) == ("blocks", 4, "budget")
    assert (report.remedies[0].action, report.remedies[0].value) == ("raise limit", 2)
    books.limit(report.remedies[0].value)
    books.allocate(5)
    assert report_of(books.allocate, 9).cause == "virtual range"
    assert report_of(books.allocate, 4).limit.text == "5 of 8 are in use"


def test_rows_of_a_claim(device):
    with paged.KVPool(device, LAYOUT, blocks=16, budget=2 * CHUNK) as pool:
        report = report_of(pool.claim, [0, 4, 8])
        assert (report.unit, report.asked, report.granted, report.cause) == ("rows", 3, 2, "budget")
        assert (report.remedies[0].action, report.remedies[0].value) == ("raise limit", 3)
        pool.set_budget(3 * CHUNK)
        pool.claim([0, 4, 8])


# -- groups of a model ------------------------------------------------------------------------------------------


def test_groups_that_alone_could_have_their_blocks(device):
    with paged.ModelPool(device, [LAYOUT, LAYOUT], budget=3 * CHUNK) as model:
        first, second = model.sequence(), model.sequence()
        first.append(60)
        report = report_of(second.append, 64)  # a row for each group, and one row is left
        assert report == second.shortage(64)
        assert (report.name, report.unit) == ("groups of model", "bytes")
        assert (report.asked, report.granted) == (2 * CHUNK, CHUNK)
        assert report.cause == "budget"
        assert [one.name for one in report.holders[:2]] == ["model.0", "model.1"]
        first.free()
        assert second.shortage(64) is None
        second.append(64)


def test_one_group_that_alone_has_not_enough(device):
    with paged.ModelPool(device, [LAYOUT, LAYOUT], budget=3 * CHUNK) as model:
        report = report_of(model.sequence().append, 16 * 13)
        assert (report.unit, report.asked, report.granted) == ("blocks", 13, 12)


# -- swap spaces ------------------------------------------------------------------------------------------------


def test_a_swap_space_that_is_full(device):
    with paged.KVPool(device, LAYOUT, budget=16 * CHUNK) as pool, paged.SwapSpace(device, "2 MiB") as space:
        long, short, third = pool.sequence(), pool.sequence(), pool.sequence()
        for sequence, tokens in ((long, 33), (short, 16), (third, 17)):
            sequence.append(tokens)
        put = space.put(long), space.put(short)
        report = report_of(space.put, third)
        assert report == space.shortage(third)
        assert (report.unit, report.asked, report.granted, report.cause) == ("bytes", MIB, 0, "swap space")
        assert [one.bytes for one in report.holders] == [3 * MIB // 2, MIB // 2]
        free, larger = report.remedies
        assert (free.action, free.value) == ("free", (0,))  # half a MiB of the other is not enough
        assert (larger.action, larger.value) == ("larger swap space", 3 * MIB)
        space.discard(put[0])
        assert space.shortage(third) is None
        space.put(third)


# -- the scheduler ----------------------------------------------------------------------------------------------


def policy_of(kind, device, budget):
    if kind in (Static, GrowCopy):
        return kind(device, budget, token_bytes=TOKEN, max_model_len=128)
    if kind is PagedVmm:
        return PagedVmm(device, budget, LAYOUT)
    return ContiguousVmm(device, budget, SPEC, max_model_len=128, max_num_seqs=4, order="token", chunk=CHUNK)


@pytest.mark.parametrize("kind", [Static, GrowCopy, PagedVmm, ContiguousVmm])
def test_a_policy_that_has_no_room_says_who_has_it(device, kind):
    policy = policy_of(kind, device, 4 * CHUNK + CHUNK // 2)
    try:
        assert policy.shortage(100) is None
        policy.admit(0, 100, 100)
        assert policy.shortage(100) is None
        policy.admit(1, 100, 100)
        report = policy.shortage(100)
        assert not policy.can_admit(100)
        assert (report.cause, len(report.lines())) == ("budget", 5)
        assert sum(one.bytes or 0 for one in report.holders) > 190 * TOKEN
        free = next(one for one in report.remedies if one.action == "free")
        assert len(free.value) == 1
        policy.finish(0)
        assert policy.shortage(100) is None
        assert policy.shortage(100, spare=CHUNK // 2 * 3) is not None
    finally:
        policy.close()


@pytest.fixture
def scheduler(device):
    def made(budget=8 * CHUNK, **limits):
        policy = PagedVmm(device, budget, LAYOUT)
        kept.append(policy)
        return Scheduler(policy, Limits(**{"max_model_len": 256, "max_num_seqs": 4, **limits}))

    kept = []
    yield made
    for policy in kept:
        policy.close()


def run(scheduler, prompts):
    for number, prompt in enumerate(prompts):
        scheduler.submit(number, prompt, 10)
    scheduler.schedule()
    return scheduler.shortage()


def test_nobody_waits_in_vain(scheduler):
    assert run(scheduler(), [20, 20]) is None
    made = scheduler()
    made.submit(0, 20, 10)
    assert made.shortage() is None  # the next step admits it


def test_as_many_run_as_may(scheduler):
    made = scheduler(max_num_seqs=2)
    report = run(made, [20, 20, 20])
    assert (report.name, report.unit, report.cause) == ("request 2, 20 tokens", "sequences", "sequences")
    assert report.limit.text == "2 of max_num_seqs 2 run"
    assert [one.name for one in report.holders] == ["request 0", "request 1"]
    assert (report.remedies[0].action, report.remedies[0].value) == ("more sequences", 3)
    assert run(scheduler(max_num_seqs=3), [20, 20, 20]) is None


def test_a_step_has_no_tokens_left(scheduler):
    made = scheduler(max_num_batched_tokens=40)
    report = run(made, [20, 20, 20])
    assert (report.cause, report.remedies[0].action) == ("step tokens", "wait")
    made.complete()
    made.schedule()
    assert made.shortage() is None
    assert len(made.running) == 3


def test_memory_lacks(scheduler):
    report = run(scheduler(4 * CHUNK), [100, 100, 100])
    assert (report.cause, report.limits[0].allows) == ("budget", 0)
    assert report.limit.text == "8 MiB of 8 MiB committed"
    assert sum(one.bytes for one in report.portions) == 4 * CHUNK
    assert [one.action for one in report.remedies] == ["raise budget", "free"]
    assert run(scheduler(report.remedies[0].value), [100, 100, 100]) is None


def test_what_is_kept_free_for_those_that_run(scheduler):
    report = run(scheduler(4 * CHUNK, watermark=0.3), [60, 60, 60])
    assert (report.cause, report.remedies[0].action) == ("watermark", "lower watermark")
    assert run(scheduler(4 * CHUNK, watermark=0.0), [60, 60, 60]) is None


def test_two_limits_at_once_have_no_single_remedy(scheduler):
    report = run(scheduler(4 * CHUNK, max_num_seqs=2), [100, 100, 100])
    assert {one.name for one in report.limits if not one.allows} == {"sequences", "budget"}
    assert report.remedies == ()
