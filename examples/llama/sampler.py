"""Which token comes next: the most likely one, or one drawn with a temperature from the likely ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Chances = NDArray[np.float64]


class Sampler:
    """``temperature`` 0 is greedy. ``top_p``: only the most likely tokens that together have this chance are drawn.

    Nucleus sampling is of Holtzman and others 2020 (arXiv 1904.09751). A ``seed`` gives the same draws every time.
    """

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0) -> None:
        self.temperature, self.top_p = temperature, top_p
        self._draw = np.random.default_rng(seed)

    def choose(self, logits: Logits) -> int:
        """A token id, from float32 [vocab]."""
        if self.temperature == 0:
            return int(np.argmax(logits))
        chances = softmax(logits, self.temperature)
        likely = np.argsort(-chances, kind="stable")
        total = np.cumsum(chances[likely])
        kept = 1 + int(np.searchsorted(total[:-1], self.top_p))
        drawn = self._draw.random() * total[kept - 1]
        return int(likely[min(int(np.searchsorted(total[:kept], drawn, "right")), kept - 1)])


def softmax(logits: Logits, temperature: float = 1.0) -> Chances:
    """The chance of each token, in float64."""
    with np.errstate(over="ignore"):  # next to a tiny temperature all others have no chance: exp(-inf)
        raised = np.exp((logits - logits.max()).astype(np.float64) / temperature)
    chances: Chances = raised / raised.sum()
    return chances
