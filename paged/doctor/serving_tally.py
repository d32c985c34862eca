"""ServingTally: the lines that a server writes every few seconds, summed by how many sequences ran.

Each line tells of the interval since the one before: tokens a second of prompts and of outputs, and at its end the
sequences that run and wait and how much of the KV cache is in use. Sums by the number that ran are all that is kept, so
a year of lines takes no more memory than an hour.
"""

from __future__ import annotations

import dataclasses

MOST_RUNNING = 1 << 16
"""More sequences at once than this are taken for a mistake."""

LONGEST_GAP_S = 15.0
"""After a longer gap the server was idle and silent: the line then stands for one usual interval."""

USUAL_S = {"V0": 5.0, "V1": 10.0}
"""Seconds between two lines: vLLM's engine/llm_engine.py (_LOCAL_LOGGING_INTERVAL_SEC) and VLLM_LOG_STATS_INTERVAL."""

MOSTLY_DECODE = 0.5
"""With at most so many prompt tokens to an output token a line counts as decode: prompts are computed some twenty times
as fast as outputs are generated, so that they take a few hundredths of its time."""

FULL = 0.90
"""From this usage on the KV cache counts as full: admission then stops for all but short prompts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One such line: tokens a second, sequences, fractions of 1, None where not there."""

    line: int
    prompt_rate: float
    output_rate: float
    running: int
    waiting: int
    swapped: int = 0
    usage: float | None = None
    hit_rate: float | None = None


@dataclasses.dataclass(slots=True)
class Tally:
    """Sums over the lines with one number of running sequences, in seconds, tokens, and fractions times seconds.

    ``decode_s`` and ``decode_usage_s`` are of lines that mostly decode, ``prefill_s`` of those without an output,
    ``quiet_s`` of those in which nothing arrived or waited after more had run, ``full_s`` of those whose KV cache was
    full.
    """

    seconds: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    decode_s: float = 0.0
    decode_tokens: float = 0.0
    decode_usage_s: float = 0.0
    prefill_s: float = 0.0
    quiet_s: float = 0.0
    usage_s: float = 0.0
    waiting_s: float = 0.0
    full_s: float = 0.0
    full_waiting_s: float = 0.0

    def add(self, sample: Sample, seconds: float, falling: bool) -> None:
        """One more line, which tells of ``seconds``; ``falling`` says that more ran before."""
        usage = sample.usage or 0.0
        self.seconds += seconds
        self.prompt_tokens += sample.prompt_rate * seconds
        self.output_tokens += sample.output_rate * seconds
        if sample.output_rate and sample.prompt_rate <= MOSTLY_DECODE * sample.output_rate:
            self.decode_s += seconds
            self.decode_tokens += sample.output_rate * seconds
            self.decode_usage_s += usage * seconds
        if sample.prompt_rate and not sample.output_rate:
            self.prefill_s += seconds
        self.usage_s += usage * seconds
        waits, full = sample.waiting > 0, usage >= FULL
        self.quiet_s += seconds * (falling and not sample.prompt_rate and not waits)
        self.waiting_s += seconds * waits
        self.full_s += seconds * full
        self.full_waiting_s += seconds * (full and waits)


class ServingTally:
    """All lines of one start: ``by_running`` has a Tally a number of running sequences."""

    def __init__(self) -> None:
        self.by_running: dict[int, Tally] = {}
        self.lines = 0
        self.last: Sample | None = None
        self.peak_usage: Sample | None = None
        self.peak_running: Sample | None = None
        self.peak_waiting: Sample | None = None
        self.idle_s = 0.0
        self._times: dict[int, float] = {}

    def add(self, sample: Sample, engine: int, time_s: float | None, generation: str) -> None:
        """One more line of one engine (each rank of data parallelism writes its own)."""
        seconds = self._interval(engine, time_s, generation)
        self.lines += 1
        self.last = sample
        if sample.running or sample.prompt_rate or sample.output_rate:
            falling = self.peak_running is not None and sample.running < self.peak_running.running
            self.by_running.setdefault(sample.running, Tally()).add(sample, seconds, falling)
        else:
            self.idle_s += seconds
        if sample.usage is not None and (self.peak_usage is None or sample.usage > (self.peak_usage.usage or 0.0)):
            self.peak_usage = sample
        if self.peak_running is None or sample.running > self.peak_running.running:
            self.peak_running = sample
        if self.peak_waiting is None or sample.waiting > self.peak_waiting.waiting:
            self.peak_waiting = sample

    def total(self) -> Tally:
        """All of it together."""
        whole = Tally()
        for tally in self.by_running.values():
            for field in dataclasses.fields(Tally):
                setattr(whole, field.name, getattr(whole, field.name) + getattr(tally, field.name))
        return whole

    def _interval(self, engine: int, time_s: float | None, generation: str) -> float:
        """Seconds that a line tells of."""
        usual = USUAL_S[generation]
        if time_s is None:
            return usual
        before, self._times[engine] = self._times.get(engine), time_s
        gap = usual if before is None else time_s - before
        return gap if 0 < gap <= LONGEST_GAP_S else usual
