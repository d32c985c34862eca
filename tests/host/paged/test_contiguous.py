"""ContiguousKV: one span a sequence; the smallest step is a chunk in every plane."""

import itertools
import random

import pytest

import paged
import vmm

STREAMS = ("eager", "deferred")

MIB = 1 << 20
LLAMA = paged.model("llama-3-8b").groups[0]


@pytest.mark.parametrize(
    ("order", "planes", "step", "room"),
    [
        ("layer", 64, 128 * MIB, 1024),  # K and V of 32 layers; a chunk holds 1024 tokens of 2 KiB
        ("token", 1, 2 * MIB, 16),  # a chunk holds 16 tokens of 128 KiB
    ],
)
def test_the_smallest_step_of_both_orders(rules, order, planes, step, room):
    with paged.ContiguousKV(rules, LLAMA, max_length=8192, max_sequences=8, order=order) as kv:
        assert (kv.planes, kv.step_bytes, kv.reserved) == (planes, step, 8 << 30)
        span = kv.open()
        assert (kv.committed, span.room) == (0, 0)
        span.append(1)
        assert (kv.committed, span.room, kv.live) == (step, room, LLAMA.token_bytes)
        span.append(room - 1)
        assert kv.committed == step
        span.append(1)
        assert (kv.committed, span.length) == (2 * step, room + 1)
        kv.check()
        span.close()
        assert (kv.committed, kv.live) == (0, 0)
        kv.check()


def test_spans_are_used_again(rules):
    with paged.ContiguousKV(rules, LLAMA, 64, 2, order="token") as kv:
        one, other = kv.open(), kv.open()
        assert not kv.can_open()
        with pytest.raises(vmm.OutOfMemoryError, match="all 2 spans are open"):
            kv.open()
        base = kv.address(one, 0)
        one.append(20)
        one.close()
        one.close()
        again = kv.open()
        assert kv.address(again, 0) == base
        again.append(3)
        other.append(3)
        kv.check()


@pytest.mark.parametrize("order", ["layer", "token"])
def test_addresses_are_distinct_and_committed(rules, order):
    spec = paged.KVSpec(2, 2, 8, "float16")
    with paged.ContiguousKV(rules, spec, 40, 3, order=order) as kv:
        spans = [kv.open() for _ in range(3)]
        for span in spans:
            span.append(40)
        seen = set()
        for span, token, layer, component, head, d in itertools.product(
            spans, range(40), range(2), range(2), range(2), range(8)
        ):
            address = kv.address(span, token, layer, component, head, d)
            assert kv.range.is_committed((address - kv.range.base) // kv.chunk)
            seen.add(address)
        assert len(seen) == 3 * 40 * 2 * 2 * 2 * 8
        step = {"layer": spec.component_token_bytes, "token": spec.token_bytes}[order]
        assert kv.address(spans[0], 1) - kv.address(spans[0], 0) == step


def test_the_budget_and_the_length_bind(rules):
    with paged.ContiguousKV(rules, LLAMA, 64, 4, order="token", budget="6 MiB") as kv:
        span, other = kv.open(), kv.open()
        span.append(17)
        assert kv.can_open(16)
        assert not kv.can_open(17)
        assert other.can_append(16)
        assert not other.can_append(17)
        with pytest.raises(vmm.OutOfMemoryError, match="17 tokens need 4 MiB more, 4 MiB are committed"):
            other.append(17)
        assert (other.length, kv.committed) == (0, 4 * MIB)
        assert not span.can_append(48)
        with pytest.raises(vmm.RangeError, match="cannot append 48 tokens to 17: a span holds at most 64"):
            span.append(48)
        with pytest.raises(vmm.RangeError, match="cannot append -1 tokens; append 0 or more"):
            span.append(-1)
        kv.check()
        span.close()
        with pytest.raises(vmm.ClosedError, match="the span was closed"):
            span.append(1)


def test_a_shared_supply_binds_too(rules):
    with (
        vmm.ChunkSupply(rules, budget="4 MiB") as supply,
        paged.ContiguousKV(rules, LLAMA, 64, 4, order="token", supply=supply) as kv,
    ):
        span, other = kv.open(), kv.open()
        span.append(32)
        assert not other.can_append(1)
        with pytest.raises(vmm.OutOfMemoryError):
            other.append(1)
        kv.check()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "block"}, "order 'block' is unknown; use 'layer' or 'token'"),
        ({"max_length": 0}, "max_length 0 and max_sequences 2 must be at least 1"),
        ({"chunk": "3 MiB"}, "no multiple of the granularity"),
        ({"budget": 0}, "budget must be more than 0"),
        ({"budget": "64 MiB"}, "budget 64 MiB holds no step of 128 MiB; give at least that"),
    ],
)
def test_a_wrong_option_is_named(rules, options, message):
    with pytest.raises(ValueError, match=message):
        paged.ContiguousKV(rules, LLAMA, **{"max_length": 64, "max_sequences": 2} | options)
    assert rules.driver.api.live().reservations == 0


@pytest.mark.parametrize("order", ["layer", "token"])
@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_call_that_fails_leaves_everything_as_it_was(failing, order, call):
    device, api = failing
    spec = paged.KVSpec(2, 2, 1024, "float32")
    with paged.ContiguousKV(device, spec, 1024, 2, order=order) as kv:
        span = kv.open()
        span.append(1)
        before = (kv.committed, span.length, kv.tokens, api.live())
        for at in range(1, kv.planes + 1):
            api.arm(call, at, code=2 if call == "cuMemCreate" else 1)
            with pytest.raises(vmm.VmmError, match=call):
                span.append(kv.chunk // kv.unit)
            assert (kv.committed, span.length, kv.tokens, api.live()) == before
            kv.check()
        span.append(kv.chunk // kv.unit)
        api.arm("cuMemUnmap", kv.planes, code=1)
        before = (kv.committed, span.length, kv.tokens, api.live())
        with pytest.raises(vmm.DriverError):
            span.close()
        assert (kv.committed, span.length, kv.tokens, api.live()) == before
        kv.check()


@pytest.mark.parametrize("order", ["layer", "token"])
def test_random_spans_against_their_lengths(rules, order):
    draw = random.Random(order)
    with paged.ContiguousKV(rules, LLAMA, 4096, 6, order=order, budget="2 GiB") as kv:
        spans = {}
        for _ in range(200):
            action = draw.choice(["open", "append", "append", "close"])
            if action == "open" and kv.can_open():
                spans[kv.open()] = 0
            elif action == "append" and spans:
                span, tokens = draw.choice(list(spans)), draw.randint(1, 900)
                if span.can_append(tokens):
                    span.append(tokens)
                    spans[span] += tokens
            elif action == "close" and spans:
                span = draw.choice(list(spans))
                span.close()
                del spans[span]
            kv.check()
            assert {span: span.length for span in spans} == spans
            assert kv.live == sum(spans.values()) * LLAMA.token_bytes <= kv.committed <= 2 << 30
