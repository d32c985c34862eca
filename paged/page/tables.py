"""Tables: block tables of all moments, each stored once, for they mostly grow at their ends."""

from __future__ import annotations


class Tables:
    """``found`` has every table at its longest; one that changed otherwise than by growing is stored anew."""

    def __init__(self) -> None:
        self.found: list[list[int]] = []
        self._keys: dict[int, int] = {}  # number of a sequence -> where its table is

    def put(self, number: int, held: list[int]) -> int:
        """Store the table of a sequence, and return where it is; its length says how much of that was there then."""
        key = self._keys.get(number)
        if key is not None:
            known = self.found[key]
            if held[: len(known)] == known:
                known += held[len(known) :]
                return key
            if known[: len(held)] == held:
                return key
        self._keys[number] = len(self.found)
        self.found.append(list(held))
        return self._keys[number]

    def differences(self) -> list[list[int]]:
        """Each table as its first block and the step from block to block: neighbours are ones, which pack well."""
        return [[block - before for block, before in zip(one, [0, *one], strict=False)] for one in self.found]
