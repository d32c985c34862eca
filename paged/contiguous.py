"""ContiguousKV: one virtual span a sequence and no block table. The driver's page table does all the paging.

order="layer": a span for K and for V of every layer, as vAttention lays them: every span starts on a chunk of its own,
so the smallest step is a chunk in each of them, 2 x layers chunks. A kernel for contiguous K and V works as it is.
order="token": one span over all layers, token after token [layers, K|V, Hkv, D]: the smallest step is one chunk, but K
of one layer lies ``token_bytes`` apart from token to token.
"""

from __future__ import annotations

import heapq
import operator
import threading
from typing import Any

from vmm import (
    After,
    ClosedError,
    Device,
    GrowableRange,
    OutOfMemoryError,
    RangeError,
    Size,
    StateError,
    Supply,
    format_size,
    parse_size,
    round_up,
)
from vmm.finishing import Finishing
from vmm.one_thread import one_thread
from vmm.uninterrupted import handed_over, uninterrupted, whole

from .invariants import must
from .layout import K, check_place
from .spec import KVSpec

ORDERS = ("layer", "token")


class Span:
    """The addresses of one sequence; it grows by tokens from its first address on. Made by ``ContiguousKV.open``."""

    __slots__ = ("index", "kv", "length")

    def __init__(self, kv: ContiguousKV, index: int) -> None:
        self.kv, self.index, self.length = kv, index, 0

    def __repr__(self) -> str:
        return f"Span({self.index}, {self.length} tokens)" if self.index >= 0 else "Span(closed)"

    @property
    def room(self) -> int:
        """Tokens that the committed part of the span has room for."""
        return min(self.kv.max_length, self.kv.steps(self.length) * self.kv.chunk // self.kv.unit)

    def can_append(self, tokens: int) -> bool:
        """Whether ``tokens`` more tokens can be had now."""
        longer = self.length + operator.index(tokens)
        return longer <= self.kv.max_length and self.kv.can_commit(self.kv.steps(longer) - self.kv.steps(self.length))

    def append(self, tokens: int) -> None:
        """Make room for ``tokens`` more tokens, committing chunks in every plane where they are needed.

        Raises RangeError beyond ``max_length``, OutOfMemoryError beyond the budget or the device's memory; nothing has
        changed then.
        """
        self.kv.grow(self, tokens)

    def close(self, *, after: After = None) -> None:
        """Give all memory of the span back; the addresses go to the next sequence. Closing twice does nothing.

        The memory goes when the work ``after`` is done (by default all of the device's; see
        ``GrowableRange.decommit``); nothing waits for it.
        """
        if self.index >= 0:
            self.kv.retire(self, after)


class ContiguousKV:
    """Spans for ``max_sequences`` sequences of up to ``max_length`` tokens of ``spec`` in one reservation.

    ``budget`` bounds the committed bytes. ``unit`` is the bytes of a token in one plane, ``planes`` how many places a
    token has, ``step_bytes`` the smallest growth. Raises ValueError for an unknown order, a count below 1, or a budget
    below the smallest growth.
    """

    @whole
    def __init__(
        self,
        device: Device,
        spec: KVSpec,
        max_length: int,
        max_sequences: int,
        *,
        order: str = "layer",
        chunk: Size | None = None,
        budget: Size | None = None,
        supply: Supply | None = None,
        name: str | None = None,
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"order {order!r} is unknown; use 'layer' or 'token'")
        if max_length < 1 or max_sequences < 1:
            raise ValueError(f"max_length {max_length} and max_sequences {max_sequences} must be at least 1")
        self.device, self.spec, self.order = device, spec, order
        self.max_length, self.max_sequences = operator.index(max_length), operator.index(max_sequences)
        self.planes = spec.layers * spec.components if order == "layer" else 1
        self.unit = spec.token_bytes // self.planes
        self.chunk = _chunk_of(device, chunk, supply)
        self._max_steps = None if budget is None else _steps_in(parse_size(budget, name="budget"), self.step_bytes)
        self.span_stride = round_up(self.max_length * self.unit, self.chunk)
        self.plane_stride = self.max_sequences * self.span_stride
        self.range = GrowableRange(
            device,
            self.planes * self.plane_stride,
            chunk=self.chunk if supply is None else None,
            supply=supply,
            name=name or "contiguous kv",
        )
        self._shared_supply = supply
        self.busy = threading.Lock()
        self._free = list(range(self.max_sequences))
        self._open: dict[int, Span] = {}
        self._steps = 0
        self.tokens = 0

    def __repr__(self) -> str:
        spans = f"{len(self._open)} of {self.max_sequences} spans of {self.max_length} tokens open"
        return (
            f"ContiguousKV({spans}, {format_size(self.committed)} committed of {format_size(self.reserved)} reserved)"
        )

    def __enter__(self) -> ContiguousKV:
        return self

    def __exit__(self, *exc: Any) -> None:
        with Finishing() as rest:
            rest.run(self.range.__exit__, *exc)
            self._end_spans()

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def step_bytes(self) -> int:
        """The smallest growth of one sequence: a chunk in every plane."""
        return self.planes * self.chunk

    @property
    def reserved(self) -> int:
        """Bytes of addresses."""
        return self.range.reserved

    @property
    def committed(self) -> int:
        """Bytes of physical memory, ``retiring`` included."""
        return self.range.committed

    @property
    def retiring(self) -> int:
        """Bytes of closed spans that stay mapped until the work that may use them is done."""
        return self.range.retiring

    @property
    def live(self) -> int:
        """Bytes of the tokens that exist."""
        return self.tokens * self.spec.token_bytes

    def steps(self, length: int) -> int:
        """Chunks in each plane that ``length`` tokens need."""
        return -(-length * self.unit // self.chunk)

    def can_commit(self, steps: int) -> bool:
        """Whether ``steps`` more chunks a plane can be had now."""
        if self._max_steps is not None and self._steps + steps > self._max_steps:
            return False
        return self._shared_supply is None or self._shared_supply.can_take(steps * self.planes)

    def can_open(self, tokens: int = 1) -> bool:
        """Whether a span is free and ``tokens`` tokens have room in it now."""
        return bool(self._free) and tokens <= self.max_length and self.can_commit(self.steps(tokens))

    def address(self, span: Span, token: int, layer: int = 0, component: int = K, head: int = 0, d: int = 0) -> int:
        """The address of one number of K or V of a token of a span.

        Raises RangeError for a token, layer, component, head or d that is not there, as ``check_mine`` for the span.
        """
        self.check_mine(span)
        token = check_place("token", token, self.max_length)
        head = check_place("head", head, self.spec.kv_heads)
        d = check_place("d", d, self.spec.head_dim)
        start = self.plane_address(layer, component) + span.index * self.span_stride + token * self.unit
        return start + (head * self.spec.head_dim + d) * self.spec.element_bytes

    def plane_address(self, layer: int, component: int = K) -> int:
        """The address of K or V of the first token of a layer, were the first span open."""
        layer = check_place("layer", layer, self.spec.layers)
        component = check_place("component", component, self.spec.components)
        place = layer * self.spec.components + component
        return self.range.base + place * (
            self.plane_stride if self.order == "layer" else self.spec.component_token_bytes
        )

    # -- changes ------------------------------------------------------------------------------------------------

    @handed_over(lambda self, span: self.retire(span))
    @one_thread
    def open(self) -> Span:
        """Take the lowest free span. Raises OutOfMemoryError when all are open."""
        self._check_open()
        if not self._free:
            raise OutOfMemoryError(f"all {self.max_sequences} spans are open; close one or raise max_sequences")
        index = heapq.heappop(self._free)
        span = self._open[index] = Span(self, index)
        return span

    @one_thread
    def grow(self, span: Span, tokens: int) -> None:
        """What ``Span.append`` does.

        Raises ClosedError for a closed span or pool, StateError for another's span, OutOfMemoryError where the budget
        or the device has no room; nothing has changed then.
        """
        tokens = operator.index(tokens)  # NumPy's small ints overflow when they are multiplied by bytes
        self._check_append(span, tokens)
        before, after = self.steps(span.length), self.steps(span.length + tokens)
        if after > before:
            if not self.can_commit(after - before):
                asked = format_size((after - before) * self.step_bytes)
                raise OutOfMemoryError(
                    f"{tokens} tokens need {asked} more, {format_size(self.committed)} are committed and the budget "
                    "has no room; close a span or raise the budget"
                )
            self._commit(self._chunks(span, before, after))
            self._steps += after - before
        span.length += tokens
        self.tokens += tokens

    @one_thread
    def retire(self, span: Span, after: After = None) -> None:
        """What ``Span.close`` does. Raises StateError, and changes nothing, while an array views the span."""
        self.check_mine(span)
        steps = self.steps(span.length)
        with Finishing() as rest:
            rest.run(self.range.decommit, self._chunks(span, 0, steps), after=after)
            self._steps -= steps
            self.tokens -= span.length
            del self._open[span.index]
            heapq.heappush(self._free, span.index)
            span.index, span.length = -1, 0

    def collect(self, *, wait: bool = False) -> int:
        """Unmap what retires and no work uses any more; with ``wait``, wait for all. The bytes given back."""
        return self.range.collect(wait=wait)

    @uninterrupted
    def close(self) -> None:
        """Unmap everything and free the addresses; every span ends. Closing twice does nothing."""
        with Finishing() as rest:
            rest.run(self.range.close)
            self._end_spans()

    def check(self) -> None:
        """Prove the invariants; an AssertionError here is a bug of ours."""
        spans = self._open.values()
        chunks = [chunk for span in spans for chunk in self._chunks(span, 0, self.steps(span.length))]
        must(sorted(chunks) == self.range.committed_chunks(), "committed chunks are not those of the spans")
        must(self.tokens == sum(span.length for span in spans), "the tokens are counted wrong")
        must(self._steps * self.planes == len(chunks), "the steps are counted wrong")
        must(sorted([*self._free, *self._open]) == list(range(self.max_sequences)), "a span is lost")

    # -- steps --------------------------------------------------------------------------------------------------

    def _commit(self, chunks: list[int]) -> None:
        """Commit chunks. Where the budget has no room for what retires beside them, that is waited for."""
        if self.retiring and self._max_steps is not None:
            fresh = sum(not self.range.is_retiring(chunk) for chunk in chunks)
            if self.committed + fresh * self.chunk > self._max_steps * self.step_bytes:
                self.range.collect(wait=True)
        self.range.commit(chunks)

    def _end_spans(self) -> None:
        """A closed reservation has no tokens; one that an array keeps open still has."""
        if self.range.closed:
            for span in self._open.values():
                span.index, span.length = -1, 0
            self._free, self._steps, self.tokens = list(range(self.max_sequences)), 0, 0
            self._open.clear()

    def _check_open(self) -> None:
        if self.range.closed:
            raise ClosedError(f"{self.range.name} is closed; make a new one")

    def check_mine(self, span: Span) -> None:
        """Raise ClosedError for a closed span or pool, StateError for another's span, ValueError for none."""
        if not isinstance(span, Span):
            raise ValueError(f"a span is needed, as open() gives it, not {type(span).__name__}")
        if span.index < 0:
            raise ClosedError("the span was closed; open a new one")
        self._check_open()
        if self._open.get(span.index) is not span:
            raise StateError(f"{span!r} is not a span of {self.range.name!r}; use the one that opened it")

    def _check_append(self, span: Span, tokens: int) -> None:
        self.check_mine(span)
        if tokens < 0 or span.length + tokens > self.max_length:
            raise RangeError(
                f"cannot append {tokens} tokens to {span.length}: a span holds at most {self.max_length}; "
                "raise max_length: addresses cost no physical memory"
            )

    def _chunks(self, span: Span, before: int, after: int) -> list[int]:
        """Chunks ``before`` to ``after`` of a span in every plane, as chunks of the range."""
        first = span.index * self.span_stride // self.chunk
        plane = self.plane_stride // self.chunk
        return [place * plane + first + step for place in range(self.planes) for step in range(before, after)]


def _chunk_of(device: Device, chunk: Size | None, supply: Supply | None) -> int:
    """Bytes of a chunk: the supply's, the one asked for, or the granularity."""
    if supply is not None:
        return supply.chunk_size
    return device.granularity if chunk is None else parse_size(chunk, name="chunk")


def _steps_in(budget: int, step: int) -> int:
    """How many of the smallest steps a budget holds. Raises ValueError if not one."""
    if budget < step:
        raise ValueError(f"budget {format_size(budget)} holds no step of {format_size(step)}; give at least that")
    return budget // step
