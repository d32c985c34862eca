"""What must hold in a ContiguousKV at any moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .invariants import must

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
