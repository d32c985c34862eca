"""LengthCounts: how often each length was seen, in bounded memory."""

from __future__ import annotations

import collections

from ..serving.trace_reader import MAX_TOKENS

_DIGITS = 3
"""Lengths are kept to so many digits: exact below 1,000, within half a percent above."""


class LengthCounts:
    """Counts of lengths in tokens; at most some 5,000 different ones are kept."""

    def __init__(self) -> None:
        self.counts: collections.Counter[int] = collections.Counter()
        self.total = 0

    def __len__(self) -> int:
        return self.total

    def add(self, tokens: int) -> None:
        """One more of this length. Raises ValueError for what no request has."""
        if not 0 <= tokens <= MAX_TOKENS:
            raise ValueError(f"{tokens} is no length of a request")
        step = 10 ** max(0, len(str(tokens)) - _DIGITS)
        self.counts[round(tokens / step) * step] += 1
        self.total += 1

    def quantile(self, share: float) -> int:
        """The least length that ``share`` of all do not exceed. Raises ValueError if there are none."""
        if not self.total:
            raise ValueError("no lengths were seen")
        left = share * self.total
        for tokens, count in sorted(self.counts.items()):
            left -= count
            if left <= 0:
                return tokens
        return max(self.counts)

    def summary(self) -> dict[str, int]:
        """Quantiles, greatest and count, as a workload's lengths are summed up."""
        p50, p90, p99 = (self.quantile(share) for share in (0.5, 0.9, 0.99))
        return {"count": self.total, "p50": p50, "p90": p90, "p99": p99, "max": max(self.counts)}
