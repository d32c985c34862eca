"""AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), and a rate that warms up and then falls along a cosine."""

from __future__ import annotations

import math

import numpy as np
from llama.checkpoint import Weights

BETAS = 0.9, 0.98
EPSILON = 1e-8
DECAY = 0.1
WARM_UP = 200


class Adam:
    """Changes ``weights`` in place; matrices decay towards zero, norms do not."""

    def __init__(self, weights: Weights, rate: float, steps: int) -> None:
        self.weights, self.rate, self.steps, self.done = weights, rate, steps, 0
        self._mean = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self._square = {name: np.zeros_like(weight) for name, weight in weights.items()}

    def step(self, gradient: Weights) -> None:
        """One step against ``gradient``, whose length is bounded by 1."""
        self.done += 1
        rate = self.rate_now()
        length = math.sqrt(sum(float(np.vdot(part, part)) for part in gradient.values()))
        bounded = min(1.0, 1 / max(length, EPSILON))
        first, second = (1 - beta**self.done for beta in BETAS)
        for name, weight in self.weights.items():
            mean, square, part = self._mean[name], self._square[name], gradient[name] * np.float32(bounded)
            mean += np.float32(1 - BETAS[0]) * (part - mean)
            square += np.float32(1 - BETAS[1]) * (part * part - square)
            if not name.endswith("norm"):
                weight *= np.float32(1 - rate * DECAY)
            weight -= np.float32(rate / first) * mean / (np.sqrt(square / np.float32(second)) + np.float32(EPSILON))

    def rate_now(self) -> float:
        """The rate of this step."""
        fallen = 0.5 * (1 + math.cos(math.pi * self.done / self.steps))
        return self.rate * min(1.0, self.done / WARM_UP) * fallen
