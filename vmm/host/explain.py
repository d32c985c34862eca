"""What an address is, in one sentence with numbers: for the error of a kernel that touched it."""

from __future__ import annotations

from dataclasses import dataclass

from ..sizes import format_size
from .absent_calls import AbsentCalls
from .address_space import PlainMemory

_ACCESS = {0: "no access", 1: "read only", 3: "read and write"}


@dataclass(frozen=True)
class Explanation:
    """What the host driver knows about ``address``; str() of it is a sentence.

    ``kind`` is "mapped", "reserved" (and not mapped), "plain", "pinned" or "unknown". ``base`` and ``size`` are those
    of the reservation or memory, ``handle`` and ``access`` those of the mapping, where there is one.
    """

    address: int
    kind: str
    base: int = 0
    size: int = 0
    handle: int = 0
    mapping_base: int = 0
    mapping_size: int = 0
    access: int = 0

    def __str__(self) -> str:
        if self.kind == "unknown":
            return f"{self.address:#x} belongs to no reservation and no allocation"
        where = f"{self.address:#x} is {self.address - self.base:#x} bytes into the "
        if self.kind in ("plain", "pinned"):
            return f"{where}{self.kind} memory of {format_size(self.size)} at {self.base:#x}"
        where += f"reservation of {format_size(self.size)} at {self.base:#x}"
        if self.kind == "reserved":
            return f"{where}; nothing is mapped there"
        mapping = f"handle {self.handle:#x}, {format_size(self.mapping_size)} mapped at {self.mapping_base:#x}"
        return f"{where}; {mapping} with {_ACCESS[self.access]}"


class ExplainCalls(AbsentCalls):
    """Questions that a GPU cannot answer."""

    def explain(self, address: int) -> Explanation:
        """What ``address`` is."""
        region = self._space.find(address)
        if region is None:
            return Explanation(address, "unknown")
        if isinstance(region, PlainMemory):
            kind = "pinned" if region.bank is self._host else "plain"
            return Explanation(address, kind, region.base, region.size)
        mapping = self._space.mapping_at(address)
        if mapping is None:
            return Explanation(address, "reserved", region.base, region.size)
        return Explanation(
            address,
            "mapped",
            region.base,
            region.size,
            mapping.allocation.handle,
            mapping.base,
            mapping.size,
            mapping.access.permission,
        )
