"""Why a ContiguousKV has no more spans, or a span no more tokens: the limit that binds, who has it, what would help."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vmm import OutOfMemoryError, VmmError, format_size
from vmm.shortage import Held, Limit, Portion, Remedy, Shortage
from vmm.shortage.device_memory import device_limit, holders_on
from vmm.shortage.report import sorted_limits

from .limits import supply_limits

if TYPE_CHECKING:
    from ..contiguous import ContiguousKV
    from ..span import Span


def open_shortage(kv: ContiguousKV) -> Shortage:
    """Why no further span is to be had: all are open."""
    text = f"all {kv.max_sequences} spans are open"
    most = kv.max_sequences + 1
    remedies = [Remedy("more spans", most, 1, f"make it with max_sequences={most}", "addresses only")]
    shortest = min(kv.spans, key=lambda one: one.length, default=None)
    if shortest is not None:
        cost = f"{shortest.length} tokens to compute again"
        remedies.append(Remedy("free", (shortest.index,), 1, f"close span {shortest.index}", cost))
    return Shortage(
        name=kv.range.name,
        unit="spans",
        asked=1,
        granted=0,
        cause="virtual range",
        limits=(Limit("virtual range", 0, text),),
        portions=_portions(kv),
        holders=_holders(kv),
        remedies=tuple(remedies),
    )


def beyond_length(kv: ContiguousKV, span: Span, tokens: int) -> Shortage:
    """Why a span cannot have so many tokens: its addresses end."""
    limit = _addresses(kv, span.length)
    return Shortage(
        name=f"{kv.range.name}, span {span.index}",
        unit="tokens",
        asked=tokens,
        granted=limit.allows,
        cause=limit.name,
        limits=(limit,),
        portions=_portions(kv),
        holders=_holders(kv),
        remedies=(_more_addresses(span.length, tokens),),
    )


def span_shortage(kv: ContiguousKV, tokens: int, span: Span | None = None) -> Shortage | None:
    """Why ``span``, or a new one, cannot have ``tokens`` more tokens; None where it can."""
    if span is None and len(kv.spans) == kv.max_sequences:
        return open_shortage(kv)
    length = 0 if span is None else span.length
    if length + tokens > kv.max_length and span is not None:
        return beyond_length(kv, span, tokens)
    limits = sorted_limits([_addresses(kv, length), *_memory(kv, length)])
    granted = limits[0].allows or 0
    if tokens <= granted:
        return None
    needed = kv.steps(length + tokens) - kv.steps(length)
    return Shortage(
        name=kv.range.name if span is None else f"{kv.range.name}, span {span.index}",
        unit="tokens",
        asked=tokens,
        granted=granted,
        cause=limits[0].name,
        limits=limits,
        portions=_portions(kv),
        holders=holders_on(kv.device) if limits[0].name == "device" else _holders(kv),
        remedies=tuple(_remedies(kv, span, tokens, needed, limits[0])),
    )


def check_room(kv: ContiguousKV, span: Span, tokens: int, steps: int) -> None:
    """Raise OutOfMemoryError, with its report, where the bounds leave not so many steps."""
    report = None if kv.can_commit(steps) else span_shortage(kv, tokens, span)
    if report is not None:
        text = (
            f"{tokens} tokens need {format_size(steps * kv.step_bytes)} more, {format_size(kv.committed)} are committed"
        )
        raise OutOfMemoryError(f"{text}, and the {report.cause} has no room; {report.advice()}", report)


@contextlib.contextmanager
def spans_explained(kv: ContiguousKV, span: Span, tokens: int) -> Iterator[None]:
    """Give an OutOfMemoryError from inside the ``with`` its report; where the books know none, the driver's stays."""
    try:
        yield
    except OutOfMemoryError as error:
        error.report = span_shortage(kv, tokens, span) or error.report
        raise


def _addresses(kv: ContiguousKV, length: int) -> Limit:
    text = f"{length} of {kv.max_length} tokens that have addresses are in use"
    return Limit("virtual range", kv.max_length - length, text)


def _memory(kv: ContiguousKV, length: int) -> list[Limit]:
    """Own budget, the shared supply's, and the device, each in tokens beyond ``length``."""
    return [Limit(one.name, _tokens(kv, length, one.allows or 0), one.text) for one in _steps(kv)]


def _steps(kv: ContiguousKV) -> list[Limit]:
    """The same limits in steps."""
    found = []
    if kv.max_steps is not None:
        text = f"{format_size(kv.used_steps * kv.step_bytes)} of {format_size(kv.max_steps * kv.step_bytes)} committed"
        found.append(Limit("budget", kv.max_steps - kv.used_steps, text))
    for one in supply_limits(kv.shared_supply):
        found.append(Limit(one.name, (one.allows or 0) // kv.step_bytes, one.text))
    try:
        steps = kv.device.obtainable // kv.step_bytes
    except VmmError:
        return found
    return [*found, device_limit(kv.device, steps)]


def _tokens(kv: ContiguousKV, length: int, steps: int) -> int:
    """Tokens beyond ``length`` that ``steps`` more steps have room for."""
    room = (kv.steps(length) + max(0, steps)) * kv.chunk // kv.unit
    return max(0, min(room, kv.max_length) - length)


def _remedies(kv: ContiguousKV, span: Span | None, tokens: int, needed: int, limit: Limit) -> list[Remedy]:
    """More addresses or a larger budget, where the rest allows it; or one of the other spans, the shortest enough."""
    length = 0 if span is None else span.length
    lacking = needed - min((one.allows or 0 for one in _steps(kv)), default=0)
    if limit.name == "virtual range":  # which no other span has
        return [_more_addresses(length, tokens)] if lacking <= 0 else []
    found = []
    others = [one.allows or 0 for one in _memory(kv, length) if one.name != "budget"]
    if limit.name == "budget" and all(allowed >= tokens for allowed in others):
        budget = (kv.used_steps + needed) * kv.step_bytes
        more = budget - (kv.max_steps or 0) * kv.step_bytes
        text = f"make it with budget={budget} ({format_size(budget)})"
        found.append(Remedy("raise budget", budget, tokens, text, f"{format_size(more)} more of the device"))
    enough = [one for one in kv.spans if one is not span and kv.steps(one.length) >= lacking]
    if enough:
        chosen = min(enough, key=lambda one: one.length)
        cost = f"{chosen.length} tokens to compute again"
        found.append(Remedy("free", (chosen.index,), tokens, f"close span {chosen.index}", cost))
    return found


def _more_addresses(length: int, tokens: int) -> Remedy:
    longer = length + tokens
    return Remedy("more addresses", longer, tokens, f"make it with max_length={longer}", "addresses only")


def _portions(kv: ContiguousKV) -> tuple[Portion, ...]:
    return (
        Portion("live", kv.live),
        Portion("tails", kv.committed - kv.retiring - kv.live),
        Portion("retiring", kv.retiring),
    )


def _holders(kv: ContiguousKV) -> tuple[Held, ...]:
    return tuple(Held(f"span {one.index}", kv.steps(one.length) * kv.step_bytes) for one in kv.spans if one.length)
