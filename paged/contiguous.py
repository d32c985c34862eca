"""ContiguousKV: one virtual span a sequence and no block table. The driver's page table does all the paging."""

from __future__ import annotations

import heapq
import threading
from typing import Any

from vmm import (
    After,
    ClosedError,
    Device,
    GrowableRange,
    OutOfMemoryError,
    Shortage,
    Size,
    Supply,
    format_size,
)
from vmm.finishing import Finishing
from vmm.one_thread import one_thread
from vmm.uninterrupted import handed_over, uninterrupted, whole

from .layout import K
from .shortage.spans import check_room, open_shortage, span_shortage, spans_explained
from .span import Span
from .span_checks import check_append, check_span, check_spans
from .span_layout import SpanLayout, chunk_of, steps_in
from .spec import KVSpec
from .whole_number import more_tokens, whole_number


class ContiguousKV:
    """Spans for ``max_sequences`` sequences of up to ``max_length`` tokens of ``spec`` in one reservation.

    ``budget`` bounds the committed bytes. ``layout`` is the arithmetic of ``order`` ("layer" or "token"; see
    ``SpanLayout``): ``unit`` the bytes of a token in one plane, ``planes`` how many places a token has, ``step_bytes``
    the smallest growth. Raises ValueError for an unknown order, a count below 1, or a budget below that.

        >>> import paged, vmm
        >>> device = vmm.Device(driver=vmm.HostDriver(memory="1 GiB"))
        >>> spec = paged.KVSpec(layers=2, kv_heads=2, head_dim=64, dtype="float16")
        >>> with paged.ContiguousKV(device, spec, max_length=4096, max_sequences=8) as kv:
        ...     span = kv.open()
        ...     span.append(100)
        ...     second = kv.address(span, token=1) - kv.address(span, token=0)  # side by side, no table
        ...     print(kv.live == 100 * spec.token_bytes, second == kv.unit, kv.committed == kv.step_bytes)
        True True True
        >>> device.close()
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
        self.layout = layout = SpanLayout(spec, max_length, max_sequences, order, chunk_of(device, chunk, supply))
        self.device, self.spec, self.order = device, spec, order
        self.max_length, self.max_sequences = layout.max_length, layout.max_sequences
        self.chunk, self.planes, self.unit = layout.chunk, layout.planes, layout.unit
        self.span_stride, self.plane_stride, self.step_bytes = (
            layout.span_stride,
            layout.plane_stride,
            layout.step_bytes,
        )
        self.max_steps = None if budget is None else steps_in(budget, self.step_bytes)
        self.range = GrowableRange(
            device,
            layout.planes * layout.plane_stride,
            chunk=self.chunk if supply is None else None,
            supply=supply,
            name=name or "contiguous kv",
        )
        self.shared_supply = supply
        self.busy = threading.Lock()
        self.free_spans = list(range(self.max_sequences))
        self._open: dict[int, Span] = {}
        self.used_steps = 0
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
    def spans(self) -> list[Span]:
        """The spans that are open, in the order of their addresses."""
        return [span for _index, span in sorted(self._open.items())]

    def owns(self, span: Span) -> bool:
        """Whether ``span`` is open here."""
        return self._open.get(span.index) is span

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
        return self.layout.steps(whole_number("length", length))

    def can_commit(self, steps: int) -> bool:
        """Whether ``steps`` more chunks a plane can be had now."""
        if self.max_steps is not None and self.used_steps + steps > self.max_steps:
            return False
        left = None if self.shared_supply is None else self.shared_supply.obtainable()
        return left is None or steps * self.step_bytes <= left

    def can_open(self, tokens: int = 1) -> bool:
        """Whether a span is free and ``tokens`` tokens have room in it now. Raises RangeError for a negative number."""
        tokens = more_tokens(tokens)
        return bool(self.free_spans) and tokens <= self.max_length and self.can_commit(self.steps(tokens))

    def shortage(self, tokens: int = 1, span: Span | None = None) -> Shortage | None:
        """Why ``tokens`` more tokens of ``span``, or of a new one, are not to be had; None where they are.

        See ``vmm.Shortage``; the same is the ``report`` of the error. Raises as ``check_mine`` for a closed span.
        """
        if span is not None:
            self.check_mine(span)
        self.check_open()
        return span_shortage(self, whole_number("tokens", tokens), span)

    def address(self, span: Span, token: int, layer: int = 0, component: int = K, head: int = 0, d: int = 0) -> int:
        """The address of one number of K or V of a token of a span.

        Raises RangeError for a token, layer, component, head or d that is not there, as ``check_mine`` for the span.
        """
        self.check_mine(span)
        return self.range.base + self.layout.offset(span.index, token, layer, component, head, d)

    def plane_address(self, layer: int, component: int = K) -> int:
        """The address of K or V of the first token of a layer, were the first span open."""
        return self.range.base + self.layout.plane_offset(layer, component)

    # -- changes ------------------------------------------------------------------------------------------------

    @handed_over(lambda self, span: self.retire(span))
    @one_thread
    def open(self) -> Span:
        """Take the lowest free span. Raises OutOfMemoryError when all are open."""
        self.check_open()
        if not self.free_spans:
            text = f"all {self.max_sequences} spans are open; close one or raise max_sequences"
            raise OutOfMemoryError(text, open_shortage(self))
        index = heapq.heappop(self.free_spans)
        span = self._open[index] = Span(self, index)
        return span

    @one_thread
    def grow(self, span: Span, tokens: int) -> None:
        """What ``Span.append`` does.

        Raises ClosedError for a closed span or pool, StateError for another's span, OutOfMemoryError where the budget
        or the device has no room; nothing has changed then.
        """
        tokens = more_tokens(tokens)
        check_append(self, span, tokens)
        before, after = self.steps(span.length), self.steps(span.length + tokens)
        if after > before:
            check_room(self, span, tokens, after - before)
            with spans_explained(self, span, tokens):
                self._commit(self.layout.chunks(span.index, before, after))
            self.used_steps += after - before
        span.length += tokens
        self.tokens += tokens

    @one_thread
    def retire(self, span: Span, after: After = None) -> None:
        """What ``Span.close`` does. Raises StateError, and changes nothing, while an array views the span."""
        self.check_mine(span)
        steps = self.steps(span.length)
        with Finishing() as rest:
            rest.run(self.range.decommit, self.layout.chunks(span.index, 0, steps), after=after)
            self.used_steps -= steps
            self.tokens -= span.length
            del self._open[span.index]
            heapq.heappush(self.free_spans, span.index)
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
        check_spans(self)

    # -- steps --------------------------------------------------------------------------------------------------

    def _commit(self, chunks: list[int]) -> None:
        """Commit chunks. Where the budget has no room for what retires beside them, that is waited for."""
        if self.retiring and self.max_steps is not None:
            fresh = sum(not self.range.is_retiring(chunk) for chunk in chunks)
            if self.committed + fresh * self.chunk > self.max_steps * self.step_bytes:
                self.range.collect(wait=True)
        self.range.commit(chunks)

    def _end_spans(self) -> None:
        """A closed reservation has no tokens; one that an array keeps open still has."""
        if self.range.closed:
            for span in self._open.values():
                span.index, span.length = -1, 0
            self.free_spans, self.used_steps, self.tokens = list(range(self.max_sequences)), 0, 0
            self._open.clear()

    def check_open(self) -> None:
        """Raise ClosedError after ``close``."""
        if self.range.closed:
            raise ClosedError(f"{self.range.name} is closed; make a new one")

    def check_mine(self, span: Span) -> None:
        """Raise ClosedError for a closed span or pool, StateError for another's span, ValueError for none."""
        check_span(self, span)
