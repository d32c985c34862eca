"""What a kernel may touch while it runs: what its own device was granted, not what any device was.

A process has one set of page permissions, and the host driver keeps them at the union of what all locations may do;
a CPU-side view sees that union. A kernel runs in the same process, so for as long as it runs the permissions are
narrowed to those of its device, where they differ. Launches take turns for that reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .address_space import Mapping, PlainMemory
from .execution import Context
from .plain_calls import PlainCalls
from .properties import NONE, READWRITE

_Span = tuple[int, int, int]  # start, end, permission


class LaunchView(PlainCalls):
    """Narrows the process's permissions for one launch."""

    @contextlib.contextmanager
    def _as_seen_by(self, context: Context) -> Iterator[None]:
        """Allow only what the device of ``context`` may do. Costs nothing while all tables say the same."""
        if not self._uneven or not self._has_pages:
            yield
            return
        with self._lock:
            mappings = self._narrower(context)
            plain = [r for r in self._space.regions() if isinstance(r, PlainMemory) and self._is_foreign(r, context)]
            location = context.bank.location
            self._apply([(m.base, m.end, m.access.get(location, NONE)) for m in mappings])
            self._apply([(r.base, r.base + r.taken, NONE) for r in plain])
        try:
            yield
        finally:
            with self._lock:
                here = [m for m in mappings if self._space.mapping_at(m.base) is m]  # another thread may have unmapped
                self._apply([(m.base, m.end, m.access.permission) for m in here])
                left = [r for r in plain if self._space.exact(r.base) is r]
                self._apply([(r.base, r.base + r.taken, READWRITE) for r in left])

    def _narrower(self, context: Context) -> list[Mapping]:
        """Mappings with which the context's device may do less than some other location, by address."""
        location = context.bank.location
        found = {
            mapping.base: mapping
            for mapping in self._space.granules.values()
            if mapping.access.get(location, NONE) != mapping.access.permission
        }
        return [found[base] for base in sorted(found)]

    def _is_foreign(self, region: PlainMemory, context: Context) -> bool:
        """Whether memory is another device's own: its address does not give a kernel here the right to touch it."""
        return region.bank is not self._host and region.bank is not context.bank

    def _apply(self, spans: list[_Span]) -> None:
        """Set permissions, a run of equal ones at a time."""
        start = end = wanted = 0
        for base, stop, permission in [*spans, (0, 0, 0)]:
            if base == end and permission == wanted and end:
                end = stop
                continue
            if end > start:
                self._backing.protect(start, end - start, wanted)
            start, end, wanted = base, stop, permission
