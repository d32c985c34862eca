"""SaltRoots: the node that stands before the first block of a chain, one for each salt that has blocks in the cache."""

from __future__ import annotations

from collections.abc import Iterable


class SaltRoots:
    """Roots are numbers below -1, so that none is a block's node. A salt is forgotten with the last block after it."""

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}  # salt -> root
        self._salts: dict[int, int] = {}  # root -> salt
        self._blocks: dict[int, int] = {}  # root -> first blocks of chains after it
        self._next = -2

    def __len__(self) -> int:
        return len(self._roots)

    def get(self, salt: int) -> int | None:
        """The root of a salt, if it has any block."""
        return self._roots.get(salt)

    def enter(self, salt: int) -> int:
        """The root of a salt that gets one more first block."""
        root = self._roots.get(salt)
        if root is None:
            root, self._next = self._next, self._next - 1
            self._roots[salt], self._salts[root], self._blocks[root] = root, salt, 0
        self._blocks[root] += 1
        return root

    def leave(self, roots: Iterable[int]) -> None:
        """First blocks after these roots are gone."""
        for root in roots:
            self._blocks[root] -= 1
            if not self._blocks[root]:
                del self._blocks[root], self._roots[self._salts.pop(root)]

    def clear(self) -> None:
        """No salt has any block."""
        self._roots.clear()
        self._salts.clear()
        self._blocks.clear()
