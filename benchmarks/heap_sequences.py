"""Recorded sequences of allocations, made by seeded code: a call is (name, size), or (name, 0) to free it.

What each imitates stands at its function. Names are numbers, each used once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

Call = tuple[int, int]
T = TypeVar("T")
MIB = 1 << 20


class Recorder:
    """Writes down who allocates what."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._next = 0

    def take(self, size: int) -> int:
        """Allocate; the name."""
        self._next += 1
        self.calls.append((self._next, max(1, size)))
        return self._next

    def free(self, name: int) -> None:
        """Free what has this name."""
        self.calls.append((name, 0))


def growing_decode(layers: int = 32, batch: int = 8, prompt: int = 512, tokens: int = 100) -> list[Call]:
    """Decoding of a Llama-3-8B with K and V that grow by concatenation, as DynamicCache of Hugging Face transformers
    does: each step makes tensors of one token more and then drops the old ones, in every layer. In between come the
    step's temporaries in bfloat16: projections, scores in float32, the MLP, and at the end logits.
    """
    heads, kv_heads, head_dim, hidden, inner, vocabulary = 32, 8, 128, 4096, 14336, 128_256
    calls = Recorder()
    kv = [[calls.take(batch * kv_heads * head_dim * 2 * prompt) for _ in range(2)] for _ in range(layers)]
    for step in range(tokens):
        length = prompt + step + 1
        state = calls.take(batch * hidden * 2)
        for layer in range(layers):
            normed = calls.take(batch * hidden * 2)
            query, key, value = (calls.take(batch * count * head_dim * 2) for count in (heads, kv_heads, kv_heads))
            for which, new in enumerate((key, value)):
                grown = calls.take(batch * kv_heads * head_dim * 2 * length)
                calls.free(kv[layer][which])
                calls.free(new)
                kv[layer][which] = grown
            scores = calls.take(batch * heads * length * 4)
            weights = calls.take(batch * heads * length * 2)
            calls.free(scores)
            attended = calls.take(batch * hidden * 2)
            for name in (weights, query, normed):
                calls.free(name)
            up, gate = (calls.take(batch * inner * 2) for _ in range(2))
            following = calls.take(batch * hidden * 2)
            for name in (up, gate, attended, state):
                calls.free(name)
            state = following
        logits = calls.take(batch * vocabulary * 4)
        calls.free(state)
        calls.free(logits)
    return calls.calls


def training(layers: int = 24, steps: int = 150, seed: int = 2) -> list[Call]:
    """Training of a small transformer: weights, then steps over batches of different lengths. Forward keeps a layer's
    activations, backward frees them from the last to the first and leaves gradients; the first step also makes Adam's
    two states of every weight, which stay.
    """
    rng, calls = random.Random(seed), Recorder()
    hidden, batch = 1024, 16
    shapes = [3 * hidden * hidden, hidden * hidden, 8 * hidden * hidden, 2 * hidden]
    for count in shapes * layers:
        calls.take(count * 2)
    for step in range(steps):
        tokens = batch * rng.choice((96, 128, 200, 256, 333, 512))
        kept = []
        for _layer in range(layers):
            temporary = calls.take(tokens * hidden * 4)
            kept.append([calls.take(tokens * width * 2) for width in (hidden, 3 * hidden, hidden, 4 * hidden, hidden)])
            kept[-1].append(calls.take(tokens * 4))
            calls.free(temporary)
        gradients = []
        passed = calls.take(tokens * hidden * 2)
        for layer in reversed(range(layers)):
            following = calls.take(tokens * hidden * 2)
            for name in reversed(kept[layer]):
                temporary = calls.take(tokens * hidden * 2)
                calls.free(name)
                calls.free(temporary)
            gradients += [calls.take(count * 2) for count in shapes]
            calls.free(passed)
            passed = following
        calls.free(passed)
        if not step:
            for count in shapes * layers * 2:
                calls.take(count * 4)
        for name in gradients:
            calls.free(name)
    return calls.calls


def adversary(rounds: int = 40, blocks: int = 120, seed: int = 3) -> list[Call]:
    """Sizes that leave holes: each round allocates blocks a little larger than those before, in random order among
    small ones that stay for some rounds, and then frees all but every fourth; so what is free is in holes which the
    next round's blocks do not fit.
    """
    rng, calls = random.Random(seed), Recorder()
    staying: list[list[int]] = []
    size = 700_000
    for _round in range(rounds):
        names = []
        for _ in range(blocks):
            names.append(calls.take(size + rng.randrange(4096)))
            names.append(calls.take(rng.randrange(256, 20_000)))
        rng.shuffle(names)
        kept = names[::4]
        for index, name in enumerate(names):
            if index % 4:
                calls.free(name)
        staying.append(kept)
        if len(staying) > 4:
            for name in staying.pop(0):
                calls.free(name)
        size = size * 107 // 100
    return calls.calls


def replay(
    calls: list[Call], allocate: Callable[[int], T], free: Callable[[T], object], clock: Callable[[], float]
) -> float:
    """Make the calls; the seconds that they took by ``clock``."""
    held: dict[int, T] = {}
    start = clock()
    for name, size in calls:
        if size:
            held[name] = allocate(size)
        else:
            free(held.pop(name))
    return clock() - start


SEQUENCES: dict[str, Callable[[], list[Call]]] = {
    "growing decode": growing_decode,
    "training": training,
    "adversary": adversary,
}
