"""What must hold in a ContiguousKV at any moment, and whom it takes a span from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmm import ClosedError, RangeError, StateError

from .blocks.block_invariants import must
from .shortage.spans import beyond_length
from .span import Span

if TYPE_CHECKING:
    from .contiguous import ContiguousKV


def check_spans(kv: ContiguousKV) -> None:
    """Prove the invariants; an AssertionError here is a bug of ours."""
    chunks = [chunk for span in kv.spans for chunk in kv.layout.chunks(span.index, 0, kv.steps(span.length))]
    must(sorted(chunks) == kv.range.committed_chunks(), "committed chunks are not those of the spans")
    must(kv.tokens == sum(span.length for span in kv.spans), "the tokens are counted wrong")
    must(kv.used_steps * kv.planes == len(chunks), "the steps are counted wrong")
    places = sorted([*kv.free_spans, *(span.index for span in kv.spans)])
    must(places == list(range(kv.max_sequences)), "a span is lost")


def check_span(kv: ContiguousKV, span: Span) -> None:
    """Raise ClosedError for a closed span, StateError for another's, ValueError for none."""
    if not isinstance(span, Span):
        raise ValueError(f"a span is needed, as open() gives it, not {type(span).__name__}")
    if span.index < 0:
        raise ClosedError("the span was closed; open a new one")
    kv.check_open()
    if not kv.owns(span):
        raise StateError(f"{span!r} is not a span of {kv.range.name!r}; use the one that opened it")


def check_append(kv: ContiguousKV, span: Span, tokens: int) -> None:
    """As ``check_span``; and RangeError, with its report, beyond what a span can hold."""
    check_span(kv, span)
    if span.length + tokens > kv.max_length:
        text = f"cannot append {tokens} tokens to {span.length}: a span holds at most {kv.max_length}"
        error = RangeError(f"{text}; raise max_length: addresses cost no physical memory")
        error.report = beyond_length(kv, span, tokens)
        raise error
