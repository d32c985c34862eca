"""Counts and ids that are none, in every pool: refused whole, or taken as Python's ints."""

import numpy as np
import pytest

import paged
import vmm

SPEC = paged.KVSpec(layers=32, kv_heads=8, head_dim=128)


@pytest.fixture
def pool(rules):
    with paged.KVPool(rules, paged.KVLayout(SPEC), budget="8 GiB") as found:
        yield found
        found.check()


@pytest.fixture
def spans(rules):
    with paged.ContiguousKV(rules, SPEC, 32768, 4, order="token") as found:
        yield found
        found.check()


@pytest.mark.parametrize("kind", [np.int32, np.int16, np.uint16, np.int64])
def test_numpy_lengths_commit_what_pythons_do(pool, spans, kind):
    """20,000 tokens are 2.4 GiB: more than a 32-bit product holds."""
    sequence, span = pool.sequence(), spans.open()
    sequence.append(kind(20000))
    span.append(kind(20000))
    wanted = 20000 * SPEC.token_bytes
    assert (pool.live, spans.live) == (wanted, wanted)
    assert spans.committed == vmm.round_up(wanted, 2 << 20)
    assert pool.committed >= wanted
    assert type(sequence.length) is type(span.length) is int


@pytest.mark.parametrize("odd", [1.5, "1", None])
def test_a_free_with_something_that_is_no_id_changes_nothing(pool, odd):
    held = pool.allocate(3)
    with pytest.raises(vmm.RangeError, match="is no block id"):
        pool.free([held[0], odd])
    assert [pool.count(block) for block in held] == [1, 1, 1]
    pool.check()
    pool.free(held)


def test_less_than_nothing_is_no_answer(pool, spans):
    sequence, span = pool.sequence(), spans.open()
    for ask in (
        lambda: pool.can_allocate(-1),
        lambda: pool.allocate(-1),
        lambda: sequence.can_append(-5),
        lambda: span.can_append(-5),
        lambda: spans.can_open(-5),
    ):
        with pytest.raises(vmm.RangeError, match="-"):
            ask()


def test_whether_a_span_has_room_is_asked_in_whole_numbers_of_any_kind(spans):
    assert spans.can_open(np.int16(20000))
    assert spans.steps(np.int16(20000)) == spans.steps(20000)
    with pytest.raises(TypeError, match=r"tokens must be a whole number, not 1\.5"):
        spans.can_open(1.5)


def test_a_claim_names_each_block_once(pool):
    with pytest.raises(vmm.StateError, match="names a block twice"):
        pool.claim([5, 6, 5])
    assert pool.block_pool.used == 0


def test_a_span_of_another_reservation_is_refused(rules, spans):
    with paged.ContiguousKV(rules, SPEC, 32768, 4, order="token") as other:
        stranger = other.open()
        spans.open()
        for use in (lambda: spans.grow(stranger, 5), lambda: spans.retire(stranger)):
            with pytest.raises(vmm.StateError, match="not a span of"):
                use()
        other.check()


def test_a_closed_reservation_ends_its_spans(rules):
    spans = paged.ContiguousKV(rules, SPEC, 1024, 2)
    span = spans.open()
    span.append(3)
    spans.close()
    for use in (spans.open, lambda: span.append(1)):
        with pytest.raises(vmm.ClosedError, match="closed"):
            use()
    span.close()
    assert spans.live == 0
