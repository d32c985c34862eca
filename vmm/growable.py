"""GrowableRange: a chunked range with a front. Its first ``size`` bytes are committed; grow and shrink move that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from .chunked_range import ChunkedRange
from .device import Device
from .driver import Access
from .errors import RangeError, StateError
from .fence import After
from .finishing import Finishing
from .shortage.addresses import beyond_shortage
from .sizes import Size, format_size, parse_size
from .supply import Supply
from .uninterrupted import uninterrupted, whole


class GrowableRange(ChunkedRange):
    """``reserve`` bytes of addresses on ``device`` of which the first ``size`` are committed; as ``ChunkedRange``.

    ``size`` is in bytes and starts at 0. Chunks beyond the front may be committed and decommitted by index too; those
    that the front reaches belong to it from then on, and go when it goes back.

        >>> import vmm
        >>> device = vmm.Device(driver=vmm.HostDriver(memory="1 GiB"))
        >>> with vmm.GrowableRange(device, reserve="64 GiB") as kv:
        ...     kv.grow("300 MiB")
        ...     base = kv.base
        ...     kv.resize("400 MiB")
        ...     assert kv.base == base  # it never moves
        ...     print(vmm.format_size(kv.reserved), vmm.format_size(kv.committed), len(kv.runs()))
        64 GiB 400 MiB 1
        >>> device.close()
    """

    @whole
    def __init__(
        self,
        device: Device,
        reserve: Size,
        *,
        chunk: Size | None = None,
        supply: Supply | None = None,
        access: str | Access = "rw",
        name: str | None = None,
    ) -> None:
        super().__init__(device, reserve, chunk=chunk, supply=supply, access=access, name=name)
        self.size = 0

    @uninterrupted
    def grow(self, by: Size) -> None:
        """Make the front ``by`` bytes larger, committing the chunks it enters. Raises as ``resize``."""
        self.resize(self.size + parse_size(by, name="grow by"))

    @uninterrupted
    def shrink(self, by: Size, *, after: After = None) -> None:
        """Make the front ``by`` bytes smaller, decommitting the chunks it leaves.

        Raises RangeError for more than ``size``, else as ``resize``.
        """
        wanted = parse_size(by, name="shrink by")
        if wanted > self.size:
            raise RangeError(f"cannot shrink {self.name} by {wanted} bytes: its size is {self.size}")
        self._set_size(self.size - wanted, after)

    @uninterrupted
    def resize(self, total: Size, *, after: After = None) -> None:
        """Set the front: the first ``size`` bytes are committed, in whole chunks, at addresses that never change.

        Chunks that go are decommitted ``after`` the work that may use them. Raises RangeError beyond the reservation,
        OutOfMemoryError when chunks run out, StateError when a chunk that would go is viewed or pinned; nothing has
        changed then.
        """
        self._set_size(0 if total == 0 else parse_size(total, name="total"), after)

    def _set_size(self, total: int, after: After) -> None:
        if total > self.reserved:
            error = RangeError(
                f"{format_size(total)} ({total}) is beyond the {format_size(self.reserved)} reserved for {self.name}; "
                "reserve more: addresses cost no physical memory"
            )
            error.report = beyond_shortage(self.name, total, self.size, self.reserved)
            raise error
        now, then = -(-self.size // self.chunk_size), -(-total // self.chunk_size)
        if then > now:
            self.commit(chunk for chunk in range(now, then) if not self.is_held(chunk))
        leaving = [chunk for chunk in range(then, now) if self.is_held(chunk)]
        with Finishing() as rest, contextlib.ExitStack() as undo:
            undo.callback(setattr, self, "size", self.size)
            self.size = total
            rest.run(self.decommit, leaving, after=after)
            undo.pop_all()

    def close(self) -> None:
        """As ``ChunkedRange.close``; the front is at 0 then."""
        with Finishing() as rest:
            rest.run(super().close)
            self.size = 0

    def _check_leaving(self, chunks: Iterable[int]) -> list[int]:
        leaving = super()._check_leaving(chunks)
        if leaving and leaving[0] * self.chunk_size < self.size:
            raise StateError(
                f"chunk {leaving[0]} of {self.name} lies in the {self.size} bytes that grow() made; shrink()"
            )
        return leaving
