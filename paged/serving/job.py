"""Job: one request on its way through the scheduler."""

from __future__ import annotations


class Job:
    """One request on its way through the scheduler; counts are tokens."""

    __slots__ = (
        "computed",
        "generated",
        "grows_at",
        "number",
        "origin",
        "output",
        "priority",
        "prompt",
        "rank",
        "room",
        "stops_at",
        "stuck_at",
    )

    def __init__(self, number: int, prompt: int, output: int, priority: int = 0) -> None:
        self.number = number
        self.prompt = prompt
        self.output = output
        self.priority = priority  # the lower, the sooner
        self.generated = 0  # when it last began to compute its prompt
        self.computed = 0  # of the prompt, while it is being computed, or while it is swapped out
        self.room = 0
        self.rank = 0  # order of admission
        self.origin = 0  # while it decodes, its tokens in step s are s - origin
        self.stops_at = self.grows_at = -1  # steps
        self.stuck_at = -1  # what was generated when it could not grow although it ran alone

    @property
    def target(self) -> int:
        """Tokens to compute before it can decode."""
        return self.prompt + self.generated
