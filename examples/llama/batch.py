"""Continuous batching: requests join while others run, and leave when they are done.

A step takes from each running request what it has not computed yet: the next part of its prompt (chunked prefill), or
the one token that it has just drawn. To the model both are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from .cache import Cache, Text, step
from .model import Llama
from .sampler import Sampler
from .tokenizer import BEGIN, END


@dataclass(eq=False)
class Request:
    """``prompt`` token ids, and how to go on; ``most`` bounds the new tokens. ``tokens`` is the text so far."""

    prompt: list[int]
    most: int
    sampler: Sampler = field(default_factory=Sampler)
    ends: frozenset[int] = frozenset({BEGIN, END})
    tokens: list[int] = field(init=False)
    known: int = 0  # tokens of the prompt that the cache knew

    def __post_init__(self) -> None:
        """Begin with the prompt."""
        self.tokens = list(self.prompt)

    @property
    def done(self) -> bool:
        """Whether nothing more is wanted."""
        new = len(self.tokens) - len(self.prompt)
        return new >= self.most or (new > 0 and self.tokens[-1] in self.ends)


class Batch(Generic[Text]):
    """Runs requests on ``cache``, ``size`` at a time at most, ``chunk`` tokens of a prompt in a step."""

    def __init__(self, model: Llama, cache: Cache[Text], *, size: int = 8, chunk: int = 32) -> None:
        self.model, self.cache, self.size, self.chunk = model, cache, size, chunk
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, Text] = {}
        self.steps = 0

    def submit(self, request: Request) -> Request:
        """Let a request wait for its turn. Raises ValueError for one that no model or pool could end."""
        whole, longest = len(request.prompt) + request.most, self.model.config.seq_len
        if whole > longest:
            raise ValueError(
                f"{len(request.prompt)} tokens and {request.most} more are {whole}, but the model ends at {longest}"
            )
        if not self.cache.can_hold([whole]):
            raise ValueError(f"the pool has no room for a text of {whole} tokens; give it a larger budget")
        self.waiting.append(request)
        return request

    def run(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Steps until every request is done; ``after_step`` is called after each."""
        while self.waiting or self.running:
            self.step()
            after_step()

    def step(self) -> None:
        """One run of the model over what every running request has not computed yet."""
        self._admit()
        new = {
            request: request.tokens[text.length : text.length + self.chunk] for request, text in self.running.items()
        }
        logits = step(self.model, self.cache, list(self.running.values()), list(new.values()))
        self.steps += 1
        for request, scores in zip(new, logits, strict=True):
            text = self.running[request]
            if text.length < len(request.tokens):
                continue  # the rest of its prompt comes first
            request.tokens.append(request.sampler.choose(scores))
            if request.done:
                self.running.pop(request).free()

    def recompute(self) -> None:
        """Begin every running text anew from its token ids: what it had in the cache is lost."""
        for request, text in list(self.running.items()):
            text.free()
            self.running[request] = self.cache.begin(request.tokens)

    def _admit(self) -> None:
        """Let requests in while there is room for all that those inside may come to need."""
        while self.waiting and len(self.running) < self.size:
            inside = [len(request.prompt) + request.most for request in [*self.running, self.waiting[0]]]
            if not self.cache.can_hold(inside):
                return
            request = self.waiting.popleft()
            text = self.running[request] = self.cache.begin(request.prompt)
            request.known = text.length


def generate(model: Llama, cache: Cache[Text], request: Request) -> list[int]:
    """The tokens of one request by itself."""
    batch = Batch(model, cache, size=1)
    batch.submit(request)
    batch.run()
    return request.tokens
