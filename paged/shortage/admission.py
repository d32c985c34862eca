"""Why the first that waits is not admitted: sequences that may run, tokens of a step, the watermark, or memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmm import Shortage, format_size
from vmm.shortage import Held, Limit, Remedy
from vmm.shortage.report import sorted_limits

if TYPE_CHECKING:
    from ..serving.scheduler import Scheduler


def admission_shortage(scheduler: Scheduler) -> Shortage | None:
    """What ``Scheduler.shortage`` does."""
    if not scheduler.waiting:
        return None
    job, policy = scheduler.waiting.first(), scheduler.policy
    needed = scheduler.needed(job)
    memory = policy.shortage(needed, scheduler.spare)
    limits = sorted_limits([_sequences(scheduler), _tokens(scheduler), _memory(scheduler, memory, needed)])
    if limits[0].allows:
        return None
    by_memory = memory is not None and limits[0].name not in ("sequences", "step tokens")
    return Shortage(
        name=f"request {job.number}, {job.target} tokens",
        unit="sequences",
        asked=1,
        granted=0,
        cause=limits[0].name,
        limits=limits,
        portions=memory.portions if memory is not None else (),
        holders=memory.holders if memory is not None and by_memory else _running(scheduler),
        remedies=tuple(_remedies(scheduler, memory, limits)),
    )


def _sequences(scheduler: Scheduler) -> Limit:
    most, running = scheduler.limits.max_num_seqs, len(scheduler.running)
    return Limit("sequences", max(0, most - running), f"{running} of max_num_seqs {most} run")


def _tokens(scheduler: Scheduler) -> Limit:
    most = scheduler.limits.max_num_batched_tokens
    left = most - scheduler.tokens
    return Limit("step tokens", int(left > 0), f"{scheduler.tokens} of max_num_batched_tokens {most} are in this step")


def _memory(scheduler: Scheduler, memory: Shortage | None, tokens: int) -> Limit:
    """What binds the policy's memory; the watermark, if it would do without."""
    if memory is None:
        return Limit("budget", 1, f"there is memory for {tokens} tokens")
    if scheduler.spare and scheduler.policy.can_admit(tokens):
        return Limit("watermark", 0, f"{format_size(scheduler.spare)} are kept free while others run")
    return Limit(memory.cause, 0, memory.limit.text)


def _remedies(scheduler: Scheduler, memory: Shortage | None, limits: tuple[Limit, ...]) -> list[Remedy]:
    """Each would let it in: nothing else binds then."""
    binding = [one.name for one in limits if not one.allows]
    most = scheduler.limits.max_num_seqs
    if binding == ["sequences"]:
        text = f"raise max_num_seqs to {most + 1}"
        return [Remedy("more sequences", most + 1, 1, text, "more tokens a step")]
    if binding == ["step tokens"]:
        return [Remedy("wait", scheduler.step + 1, 1, "wait for the next step", "one step")]
    if binding == ["watermark"]:
        return [Remedy("lower watermark", 0, 1, "lower the watermark to 0", "room to grow for those that run")]
    return list(memory.remedies) if len(binding) == 1 and memory is not None else []  # of two, none helps alone


def _running(scheduler: Scheduler) -> tuple[Held, ...]:
    return tuple(Held(f"request {number}", None) for number in scheduler.running)
