"""What an address is and how it came to that, in one sentence with numbers: for the error of work that touched it."""

from __future__ import annotations

from dataclasses import dataclass

from ..sizes import format_size
from .absent_calls import AbsentCalls
from .address_space import Mapping, PlainMemory, Region
from .history import Change
from .properties import DEVICE

_ACCESS = {0: "no access", 1: "read only", 3: "read and write"}
_MAPPED_STATES = {0: "no access", 1: "read-only", 3: "accessible"}
_UNMAPPED_STATES = {
    "never mapped": "nothing was ever mapped there",
    "not mapped": "nothing is mapped there",
    "unmapped": "nothing is mapped there any more",
}


@dataclass(frozen=True)
class Touch:
    """A read or write that was refused, of queued work or of a copy."""

    write: bool
    explanation: Explanation

    @property
    def address(self) -> int:
        """The first address that must not be touched."""
        return self.explanation.address

    def __str__(self) -> str:
        return f"{'write' if self.write else 'read'} of {self.address:#x}: {self.explanation}"


@dataclass(frozen=True)
class Explanation:
    """What the host driver knows about ``address``; str() of it is a sentence.

    ``kind`` is "mapped", "reserved" (and not mapped), "plain", "pinned" or "unknown". ``state`` says what may be done
    there: "accessible", "read-only", "no access", "never mapped", "unmapped", "not mapped" (and the
    history does not reach back far enough), "freed", "foreign" (of nobody here).
    ``base`` and ``size`` are those of the reservation or memory, ``handle`` and ``access`` those of the mapping, where
    there is one. ``change`` is the call that put it into its state, where that is known.
    """

    address: int
    kind: str
    state: str
    base: int = 0
    size: int = 0
    handle: int = 0
    mapping_base: int = 0
    mapping_size: int = 0
    access: int = 0
    change: Change | None = None

    def __str__(self) -> str:
        return self._what() + (f", by {self.change}" if self.change else "")

    def _what(self) -> str:
        if self.kind == "unknown":
            what = f"{self.address:#x} belongs to no reservation and no allocation"
            return f"{what}; it did and was freed" if self.state == "freed" else what
        where = f"{self.address:#x} is {self.address - self.base:#x} bytes into the "
        if self.kind in ("plain", "pinned"):
            return f"{where}{self.kind} memory of {format_size(self.size)} at {self.base:#x}"
        where += f"reservation of {format_size(self.size)} at {self.base:#x}"
        if self.kind == "reserved":
            return f"{where}; {_UNMAPPED_STATES[self.state]}"
        mapping = f"handle {self.handle:#x}, {format_size(self.mapping_size)} mapped at {self.mapping_base:#x}"
        return f"{where}; {mapping} with {_ACCESS[self.access]}"


class ExplainCalls(AbsentCalls):
    """Questions that a GPU cannot answer."""

    def _touch(self, address: int, write: bool, device: int) -> Touch:
        return Touch(write, self.explain(address, device))

    def explain(self, address: int, device: int | None = None) -> Explanation:
        """What ``address`` is to ``device``; by default to the current context's, else to whoever may do most there."""
        region = self._space.find(address)
        if region is None:
            change = self._history.latest(address, "cuMemAddressFree", "cuMemFree", "cuMemFreeHost")
            return Explanation(address, "unknown", "freed" if change else "foreign", change=change)
        if isinstance(region, PlainMemory):
            kind = "pinned" if region.bank is self._host else "plain"
            return Explanation(address, kind, "accessible", region.base, region.size)
        mapping = self._space.mapping_at(address)
        if mapping is None:
            return self._unmapped(address, region)
        return self._mapped(address, region, mapping, device)

    def _unmapped(self, address: int, region: Region) -> Explanation:
        change = self._history.latest(address, "cuMemUnmap")
        state = "unmapped" if change else "never mapped"
        if change is None and self._history.is_full:
            state = "not mapped"
        return Explanation(address, "reserved", state, region.base, region.size, change=change)

    def _mapped(self, address: int, region: Region, mapping: Mapping, device: int | None) -> Explanation:
        current = self._current()
        if device is None and current is not None:
            device = current.ordinal
        access = mapping.access.permission if device is None else mapping.access.get((DEVICE, device), 0)
        return Explanation(
            address,
            "mapped",
            _MAPPED_STATES[access],
            region.base,
            region.size,
            mapping.allocation.handle,
            mapping.base,
            mapping.size,
            access,
            None if access == 3 else self._history.latest(address, "cuMemSetAccess"),
        )
