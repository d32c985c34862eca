"""The tour: everything that a server does with a pool, each beside the same on plain arrays, on the micro model.

A chapter prints what it saw and returns whether it was right.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from llama.batch import Batch, Request, generate
from llama.beams import beam_search
from llama.sampler import Sampler
from llama.stage import Stage

import paged
import vmm

from .sums import Sum, all_sums, right_in

NEVER: frozenset[int] = frozenset()
EXAMPLES = "four plus five is nine. sixty minus two is fifty-eight. thirty plus thirty is sixty."
SWEPT = [(size, order) for size in (1, 7, 16, 64) for order in ("block", "layer")]


def tour(stage: Stage) -> bool:
    """Every chapter; whether all were right."""
    right = []
    for number, chapter in enumerate(CHAPTERS, 1):
        print(f"\n{number}. {chapter.__doc__}")
        right.append(chapter(stage))
        print(f"   {'right' if right[-1] else 'WRONG'}")
    print(f"\n{sum(right)} of {len(right)} chapters are right.")
    return all(right)


def _wrapped(text: str) -> str:
    """Text in lines that a terminal holds."""
    return textwrap.fill(text, 90, initial_indent="   ", subsequent_indent="   ")


def answers(stage: Stage) -> bool:
    """Sums that the model was never shown, eight at a time."""
    asked = _held_out()[::40]
    with stage.pool() as pool:
        requests = _run(stage, pool, [_question(stage, one) for one in asked])
        pool.check()
    texts = [stage.decode(request.tokens) for request in requests]
    right = sum(text == str(one) for text, one in zip(texts, asked, strict=True))
    print(_wrapped(" ".join(texts[:3])))
    print(f"   {right} of {len(asked)} answers are right")
    return right >= 0.95 * len(asked) and _alone(stage, requests)


def joining(stage: Stage) -> bool:
    """Requests join and leave while others run; a prompt goes in by 5 tokens a step."""
    asked = [_question(stage, one, before=EXAMPLES[: 24 * (n % 4)]) for n, one in enumerate(_held_out()[1:200:17])]
    with stage.pool() as pool:
        batch, late, together = Batch(stage.model, stage.cache(pool), size=4, chunk=5), asked[2:], []
        for request in asked[:2]:
            batch.submit(request)
        while batch.waiting or batch.running or late:
            if late:
                batch.submit(late.pop(0))
            batch.step()
            together.append(len(batch.running))
    print(f"   {len(asked)} requests in {batch.steps} steps; running after each: {''.join(map(str, together))}")
    return max(together) > 1 and _alone(stage, asked)


def prefixes(stage: Stage) -> bool:
    """Six prompts that begin alike: what they share is computed once and lies in memory once."""
    size, shared = 16, stage.encode(EXAMPLES)
    prompts = [stage.encode(f"{EXAMPLES} {one.question}") for one in _held_out()[7::200][:6]]
    held, known, same = [], 0, True
    for prefix_cache in (False, True):
        requests = [Request(prompt, 8, ends=NEVER) for prompt in prompts]
        with stage.pool(size, prefix_cache=prefix_cache) as pool:
            generate(stage.model, stage.cache(pool), Request(shared, 1))
            most = Most(pool)
            _run(stage, pool, requests, most.look)
        held.append(most.held)
        known = sum(request.known for request in requests)
        same &= _alone(stage, requests)
    whole = len(shared) // size
    saved = (len(prompts) - 1) * whole
    print(f"   {sum(map(len, prompts))} tokens of prompts, {known} of them known already")
    print(f"   {held[0]} blocks without a prefix cache, {held[1]} with it: {held[0] - held[1]} saved, {saved} expected")
    return same and saved > 0 and held[0] - held[1] == saved and known == len(prompts) * whole * size


def drawing(stage: Stage) -> bool:
    """Texts drawn at temperature 0.8 from the likeliest 95%; a seed gives the same one again."""
    requests = [Request(stage.encode(""), 60, Sampler(0.8, 0.95, seed), NEVER) for seed in range(4)]
    with stage.pool() as pool:
        _run(stage, pool, requests)
    texts = [stage.decode(request.tokens) for request in requests]
    right, sums = map(sum, zip(*map(right_in, texts), strict=True))
    print(f"{_wrapped(texts[0].rpartition('.')[0])}.\n   {right} of {sums} made-up sums are right")
    again = [Request(stage.encode(""), 60, Sampler(0.8, 0.95, seed), NEVER) for seed in range(4)]
    same = [generate(stage.model, stage.contiguous, request) for request in again] == [one.tokens for one in requests]
    return len(set(texts)) == len(texts) and right >= 0.8 * sums and same


def beams(stage: Stage) -> bool:
    """Beam search: beams are forks that share blocks, and copy the last one when they part."""
    prompt, width, most = stage.encode(f"{EXAMPLES} forty"), 4, 12
    with stage.pool(4) as pool:
        seen = Most(pool)
        found = beam_search(stage.model, stage.cache(pool), prompt, width, most, NEVER, seen.look)
        clean = not pool.sequences and not blocks_held(pool)
        pool.check()
    for one in found:
        print(f"   {one.score:7.3f}  ...{stage.decode(one.tokens)[len(EXAMPLES) :]}")
    print(f"   {width} block tables name {seen.named} blocks, of which there are {seen.held}")
    plain = beam_search(stage.model, stage.contiguous, prompt, width, most, NEVER)
    return seen.named > seen.held and clean and [one.tokens for one in plain] == [one.tokens for one in found]


def sleeping(stage: Stage) -> bool:
    """The pool gives all memory away in the middle of three texts, once with a backup and once without."""
    asked = [Request(stage.encode(EXAMPLES), 30, Sampler(0.8, 0.95, seed), NEVER) for seed in range(3)]
    plain = [Request(stage.encode(EXAMPLES), 30, Sampler(0.8, 0.95, seed), NEVER) for seed in range(3)]
    with stage.pool() as pool:
        residency = vmm.Residency(stage.device)
        residency.add(pool.range, "kv")
        batch = Batch(stage.model, stage.cache(pool))

        def nap() -> None:
            if batch.steps not in (10, 20):
                return
            backup = batch.steps == 10
            print(f"   after {batch.steps} steps: {residency.sleep('kv', backup=backup)}")
            residency.wake("kv")
            if not backup:
                batch.recompute()

        for request in asked:
            batch.submit(request)
        batch.run(nap)
    same = [generate(stage.model, stage.contiguous, one) for one in plain] == [one.tokens for one in asked]
    print(f"   {batch.steps} steps, one of them over all tokens again, for what slept without a backup")
    return same and batch.steps == 31


def sizes(stage: Stage) -> bool:
    """Blocks of 1, 7, 16 and 64 tokens, in both orders of the pool: the same text every time."""
    prompt = stage.encode(EXAMPLES)
    plain = generate(stage.model, stage.contiguous, Request(prompt, 40, ends=NEVER))
    same = 0
    for size, order in SWEPT:
        with stage.pool(size, order, texts=1) as pool:
            same += generate(stage.model, stage.cache(pool), Request(prompt, 40, ends=NEVER)) == plain
    print(f"{_wrapped(stage.decode(plain))}\n   {same} of {len(SWEPT)} pools gave this text")
    return same == len(SWEPT)


def _held_out() -> list[Sum]:
    return [one for one in all_sums() if one.held_out]


def _question(stage: Stage, one: Sum, before: str = "") -> Request:
    """A question, up to the full stop of its answer."""
    prompt = stage.encode(f"{before.rpartition('.')[0]}. {one.question}" if "." in before else one.question)
    return Request(prompt, 8, ends=frozenset(stage.encode(".")[-1:]))


def _run(
    stage: Stage, pool: paged.KVPool, requests: list[Request], after_step: Callable[[], None] = lambda: None
) -> list[Request]:
    """Run requests on a pool, eight at a time."""
    batch = Batch(stage.model, stage.cache(pool), size=8, chunk=stage.config.seq_len)
    for request in requests:
        batch.submit(request)
    batch.run(after_step)
    return requests


def _alone(stage: Stage, requests: list[Request]) -> bool:
    """Whether each greedy request has the text that it gets by itself on plain arrays."""
    plain = [Request(one.prompt, one.most, ends=one.ends) for one in requests]
    return [generate(stage.model, stage.contiguous, one) for one in plain] == [one.tokens for one in requests]


class Most:
    """The step after which the sequences of a pool held the most blocks: how many, and how many their tables named."""

    def __init__(self, pool: paged.KVPool) -> None:
        self.pool, self.held, self.named = pool, 0, 0

    def look(self) -> None:
        """See how many there are now."""
        now = blocks_held(self.pool), sum(len(sequence.held) for sequence in self.pool.sequences)
        self.held, self.named = max(now, (self.held, self.named))


def blocks_held(pool: paged.KVPool) -> int:
    """Blocks that sequences have; those that only the prefix cache keeps do not count."""
    return pool.block_pool.used - pool.blocks_idle


CHAPTERS: list[Callable[[Stage], bool]] = [answers, joining, prefixes, drawing, beams, sleeping, sizes]
