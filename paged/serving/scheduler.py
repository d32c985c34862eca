"""Continuous batching with chunked prefill: who runs in the next step. The rules are those of vLLM's V1 scheduler.

In each step, in this order:

1. Every sequence that decodes gets one token, and the prompt that is partly computed its next part. One that needs more
   memory asks for it, in the order of admission; while it cannot have it, a sequence is preempted: the one admitted
   last, or that of the least priority (``Waiting``), which may be the one that asks.
2. What is left of ``max_num_batched_tokens`` goes to prompts: first the one that is already partly computed, then
   those that wait, in their order. A prompt that does not fit is cut: the rest follows in later steps.
3. A waiting sequence is admitted if fewer than ``max_num_seqs`` run, no one was preempted in this step (unless nothing
   else runs), and all of its prompt has room (vLLM's ``scheduler_reserve_full_isl``) beside what the watermark keeps
   free (unless nothing else runs); its memory is taken part by part. Tokens of its prompt that are in memory already,
   for other prompts began alike, are not computed again, and what others hold of them needs no room.

A preempted sequence gives its memory back and waits. With host space its tokens are copied there, as far as there is
room, and back when it is admitted again; else it computes prompt and generated tokens again. The step that completes a
prompt yields one token; the last token of a sequence is never computed, so a sequence ends with prompt + output - 1
tokens in memory, which come free at the end of the step.

The scheduler asks the policy by "can" before it acts by "do"; where the answer is "not now" nothing has changed. A step
costs the same however many sequences run: those that only decode are a count and a sum, and the step at which a
sequence ends or outgrows its room is known beforehand, so that it is filed under that step's number.
"""

from __future__ import annotations

from vmm import Shortage

from ..policies.policy import Policy
from ..shortage.admission import admission_shortage
from .host_space import HostSpace
from .job import Job
from .limits import Limits
from .waiting import FirstComeFirstServed, Waiting


class SchedulerError(Exception):
    """The simulation cannot go on; the message says which sequence has no place and why."""


class Scheduler:
    """Runs requests on ``policy`` step by step: ``submit``, then ``schedule`` and ``complete`` in turn.

    After ``schedule`` the public counts describe the step: ``tokens`` computed, ``kv_tokens`` attended to,
    ``prefill_tokens`` of prompts; ``live_tokens`` are in memory, one that several sequences share counted for each.
    ``held_tokens`` are those at any moment: ``live_tokens`` still has those of sequences that ended with the step.
    Tokens of a step that is being composed are held as soon as memory is asked for them, and those of a sequence that
    leaves until the policy takes its memory back; meanwhile ``leaving`` has them, and otherwise 0.
    ``generated`` counts the output of what has completed, ``written`` the tokens computed in all steps, ``swapped`` the
    preemptions whose tokens were copied to ``host_space``. ``touched`` says that the policy's usage may have changed
    since the last step. Raises SchedulerError when nothing can run any more.
    """

    def __init__(
        self, policy: Policy, limits: Limits, waiting: Waiting | None = None, host_space: HostSpace | None = None
    ) -> None:
        self.policy = policy
        self.limits = limits
        self.host_space = host_space
        self.waiting: Waiting = FirstComeFirstServed() if waiting is None else waiting
        self.running: dict[int, Job] = {}  # in the order of admission
        self.step = 0
        self.tokens = self.kv_tokens = self.prefill_tokens = self.live_tokens = 0
        self.preemptions = self.swapped = self.completed = self.generated = self.too_long = self.never_fits = 0
        self.written = 0
        self.held_tokens = 0
        self.touched = True
        self._spare = int(limits.watermark * policy.budget)  # bytes kept free at admission
        self._decoding = 0  # how many sequences decode, and
        self._decode_tokens = 0  # the sum of their tokens
        self._partial: Job | None = None  # the one whose prompt is partly computed
        self._ready: list[Job] = []  # those whose prompts end in this step
        self._growing: dict[int, list[Job]] = {}  # by the step in which they outgrow their room
        self._stopping: dict[int, list[Job]] = {}  # by their last step
        self._admitted = 0
        self.leaving = 0

    @property
    def rejected(self) -> int:
        """Requests that were refused: longer than max_model_len, or than what the budget can ever hold."""
        return self.too_long + self.never_fits

    @property
    def spare(self) -> int:
        """Bytes that stay free when a sequence is admitted now."""
        return self._spare if self.running else 0

    def needed(self, job: Job) -> int:
        """Tokens for which a waiting sequence needs room; one that comes back from the host shares none."""
        swapped = self.host_space is not None and job.number in self.host_space
        return job.target - (0 if swapped else self.policy.prompt_in_use(job.number))

    def shortage(self) -> Shortage | None:
        """Why the first that waits is not admitted now; None where it would be, or nobody waits.

        Before a step and after ``schedule``; tokens are those of the latest step. See ``vmm.Shortage``.
        """
        return admission_shortage(self)

    def submit(self, number: int, prompt: int, output: int, priority: int = 0) -> None:
        """Let a request of ``prompt`` and ``output`` tokens wait for its turn, or reject it."""
        if prompt + output > self.limits.max_model_len:
            self.too_long += 1
        elif not self.policy.fits(prompt + output - 1):
            self.never_fits += 1
        else:
            self.waiting.add(Job(number, prompt, output, priority))

    def schedule(self) -> None:
        """Compose the next step and give its sequences their memory."""
        self.step += 1
        preempted = self.preemptions
        if self.touched:
            self.policy.tidy()
        self._decode_tokens += self._decoding  # one each; whoever is preempted takes it back
        self.held_tokens += self._decoding
        due = self._growing.pop(self.step, None)
        if due:
            self._grow(due)
        if self._partial:
            self._make_room()
        decoding = self._decoding
        self.tokens = decoding
        self.kv_tokens = self.live_tokens = self._decode_tokens
        self.prefill_tokens = 0
        budget = self.limits.max_num_batched_tokens - decoding
        if self._partial:
            budget -= self._compute(self._partial, self._part(self._partial))
        if self.waiting and (self.preemptions == preempted or not self.running):
            self._start(budget)
        if not self.tokens and self.policy.alone():
            raise SchedulerError(self._stuck())
        self.written += self.tokens

    def complete(self) -> None:
        """The step has run: prompts that are done begin to decode, sequences that are done give back their memory."""
        self.touched = self.touched and self.policy.settle()
        for job in self._ready:
            self._decode(job)
        self._ready.clear()
        for job in self._stopping.pop(self.step, ()):
            if job.stops_at == self.step:
                self._stop(job)

    # -- decoding -----------------------------------------------------------------------------------------------

    def _grow(self, due: list[Job]) -> None:
        """Give each decoding sequence at the end of its room more, in the order of admission."""
        due.sort(key=_rank)
        for job in due:
            while job.grows_at == self.step:
                tokens = self.step - job.origin
                if self.policy.can_grow(job.number, tokens):
                    job.room = self.policy.grow(job.number, tokens)
                    self.touched = True
                    self._file(job)
                else:
                    self._preempt()

    def _file(self, job: Job) -> None:
        """Note the step in which a decoding sequence outgrows its room, if it lives to see it."""
        step = job.origin + job.room + 1
        job.grows_at = -1
        if step <= job.stops_at:
            job.grows_at = step
            self._growing.setdefault(step, []).append(job)

    def _decode(self, job: Job) -> None:
        """A prompt was computed in this step and yielded a token: decode from the next step on, or end."""
        job.origin = self.step - job.target
        job.stops_at = self.step + job.output - job.generated - 1
        self._decoding += 1
        self._decode_tokens += job.target
        self._stopping.setdefault(job.stops_at, []).append(job)
        self._file(job)

    def _stop(self, job: Job) -> None:
        job.stops_at = -1  # it may be filed twice, if it began again in the step in which it was preempted
        self._take_back(job, self.step - job.origin)
        self._decoding -= 1
        self._decode_tokens -= self.step - job.origin
        self.completed += 1
        self.generated += job.output
        self.touched = True

    def _take_back(self, job: Job, tokens: int) -> None:
        """Let the policy have the memory of a sequence that had so many tokens."""
        del self.running[job.number]
        self.held_tokens -= tokens
        self.leaving = tokens
        self.policy.finish(job.number)
        self.leaving = 0

    # -- prompts ------------------------------------------------------------------------------------------------

    def _part(self, job: Job) -> int:
        """How many tokens of the prompt that is partly computed are computed in this step."""
        size = min(self.limits.max_num_batched_tokens - self._decoding, job.target - job.computed)
        assert size > 0, "a batch has a token for every sequence that may run"
        return size

    def _make_room(self) -> None:
        """Give the prompt that is partly computed memory for its next part, or preempt until it has it or is gone."""
        while self._partial:
            job, part = self._partial, self._part(self._partial)
            tokens = job.computed + part
            if tokens <= job.room:
                self.held_tokens += part
                return
            if self.policy.can_grow(job.number, tokens):
                self.held_tokens += part
                job.room = self.policy.grow(job.number, tokens)
                self.touched = True
                return
            self._preempt()

    def _start(self, budget: int) -> None:
        """Admit those that wait, in their order, while ``budget`` tokens and memory last."""
        while budget and self.waiting and len(self.running) < self.limits.max_num_seqs:
            if not self.policy.can_admit(self.needed(self.waiting.first()), self.spare):
                return
            budget -= self._admit(self.waiting.pop(), budget)

    def _admit(self, job: Job, budget: int) -> int:
        """Begin with a sequence, at most ``budget`` tokens of it, and return how many are computed in this step."""
        self._admitted += 1
        job.rank = self._admitted
        decodes = False
        if self.host_space and job.number in self.host_space:
            self.host_space.take(job.number)
            decodes = job.generated > 0  # what it lacks is the token that it was about to compute
        else:
            job.computed = self.policy.recall(job.number)
        size = min(budget, job.target - job.computed)
        self.held_tokens += job.computed + size
        self.running[job.number] = job
        job.room = self.policy.admit(job.number, job.computed + size, job.target)
        self.touched = True
        self.prefill_tokens -= size * decodes
        return self._compute(job, size)

    def _compute(self, job: Job, size: int) -> int:
        """Compute ``size`` more tokens of a prompt in this step; they are held already."""
        job.computed += size
        self.tokens += size
        self.prefill_tokens += size
        self.kv_tokens += job.computed
        self.live_tokens += job.computed
        done = job.computed == job.target
        self._partial = None if done else job
        if done:
            self._ready.append(job)
        return size

    # -- preemption ---------------------------------------------------------------------------------------------

    def _preempt(self) -> None:
        """Take a sequence's memory; its tokens are copied to the host, or computed again when its turn comes."""
        job = self.waiting.victim(self.running)
        partial = job is self._partial
        if not partial:
            job.generated = self.step - job.origin - job.prompt
        job.stops_at = job.grows_at = -1
        if len(self.running) == 1 and self.policy.alone():
            self._check_progress(job)
        self._take_back(job, job.computed if partial else self.step - job.origin)
        if partial:
            self._partial = None
        else:
            self._decoding -= 1
            self._decode_tokens -= self.step - job.origin
            job.computed = job.target - 1
        if self.host_space and self.host_space.can_hold(job.computed):
            self.host_space.put(job.number, job.computed)
            self.swapped += 1
        else:
            job.computed = 0
        self.waiting.put_back(job)
        self.preemptions += 1
        self.touched = True

    def _check_progress(self, job: Job) -> None:
        """A sequence that runs alone may have to start again in better order, but not twice at the same token."""
        if job.stuck_at == job.generated:
            raise SchedulerError(
                f"request {job.number} ({job.prompt} + {job.output} tokens) runs alone and cannot grow although its "
                "policy said that it fits; this is a fault of the policy"
            )
        job.stuck_at = job.generated

    def _stuck(self) -> str:
        job = self.waiting.first()
        return (
            f"request {job.number} needs room for {job.target} tokens, nothing runs, and still it cannot be admitted "
            "although its policy said that it fits; this is a fault of the policy"
        )


def _rank(job: Job) -> int:
    return job.rank
