"""Suspended: a range whose physical memory is away while its addresses stay, with a copy of the bytes or without."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .address_range import Mapping, adjacent
from .driver import Access
from .errors import OutOfMemoryError, StateError
from .host_copy import HostCopy
from .sizes import format_size

if TYPE_CHECKING:
    from .chunk_map import ChunkMap


@dataclass(frozen=True, slots=True)
class _Place:
    """What a chunk had: its access, and which chunk of the copy its bytes are."""

    access: Access
    index: int


class Suspended:
    """The chunks of ``chunks`` and their bytes, to go with ``leave`` and to come back with ``resume``.

    Making one copies the bytes to the host if ``backup``, and changes nothing else; the caller has waited for all work.
    Raises StateError under an open zero window, OutOfMemoryError when the host has no room. ``tag`` is who put it to
    sleep, for errors.
    """

    def __init__(self, chunks: ChunkMap, tag: str, *, backup: bool) -> None:
        if chunks.windows:
            raise StateError(f"{chunks.name} has an open {chunks.windows[0]!r}; close that first")
        self.tag = tag
        self.backup = backup
        self._map = chunks
        self._copy: HostCopy | None = None
        self._lifted: list[Mapping] = []
        mappings = [chunks.mappings[chunk] for chunk in sorted(chunks.mappings)]
        self._places = {
            mapping.offset // chunks.chunk_size: _Place(mapping.access, index) for index, mapping in enumerate(mappings)
        }
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            if backup and mappings:
                self._save(mappings)
            undo.pop_all()

    def leave(self) -> None:
        """Unmap every chunk; its memory is still held. All or nothing."""
        self._lifted = self._map.lift()

    def stay(self) -> None:
        """Undo ``leave``."""
        self._map.put_down(self._lifted)
        self._lifted = []

    def let_go(self) -> None:
        """Return the memory after ``leave``."""
        lifted, self._lifted = self._lifted, []
        self._map.supply.give([mapping.memory for mapping in lifted])

    @property
    def chunks(self) -> list[int]:
        """The chunks that come back with ``resume``, ascending."""
        return sorted(self._places)

    def __contains__(self, chunk: int) -> bool:
        return chunk in self._places

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that the copy takes."""
        return self._copy.size if self._copy else 0

    def drop(self, chunks: Iterable[int]) -> None:
        """Let chunks not come back."""
        for chunk in chunks:
            del self._places[chunk]

    def resume(self) -> None:
        """Bring every chunk back at its address, with its access and, from a backup, its bytes. All or nothing.

        The copy stays until ``close``, so that ``Suspended.leave_again`` can undo this. Raises OutOfMemoryError, with
        what is needed and what is free, when there is not enough.
        """
        chunks, wanted = self._map, self.chunks
        try:
            chunks.commit(wanted) if wanted else None
        except OutOfMemoryError as error:
            free = chunks.device.memory_info().free
            need = f"{len(wanted)} chunks, {format_size(len(wanted) * chunks.chunk_size)}"
            error.add(f"to wake, {chunks.name} needs {need}, and {format_size(free)} are free; it still sleeps")
            raise
        with contextlib.ExitStack() as undo:
            undo.callback(self.leave_again)
            mappings = [chunks.mappings[chunk] for chunk in wanted]
            if self._copy:
                self._load(mappings)
            self._set_access(mappings)
            undo.pop_all()

    def leave_again(self) -> None:
        """Undo ``resume``: wait for the copies, and give the memory back. The backup is as it was."""
        self._map.device.synchronize()
        self.leave()
        self.let_go()

    def close(self) -> None:
        """Drop the backup. Closing twice does nothing."""
        copy, self._copy = self._copy, None
        if copy:
            copy.close()

    def _save(self, mappings: Sequence[Mapping]) -> None:
        """Copy all of them. What cannot be read can meanwhile."""
        hidden = [mapping for mapping in mappings if mapping.access == Access.NONE]
        wait, hide = self._map.device.synchronize, functools.partial(self._each_run, hidden, Access.NONE)
        with contextlib.ExitStack() as again:  # once more, should one of the two below be refused
            again.callback(hide)
            again.callback(wait)
            self._each_run(hidden, Access.READ)
            self._copy = HostCopy(self._map.device, self._map.chunk_size, len(mappings))
            self._copy.save([mapping.address for mapping in mappings])
            wait()
            hide()
            again.pop_all()

    def _load(self, mappings: Sequence[Mapping]) -> None:
        assert self._copy is not None, "only a backup is loaded"
        self._each_run(mappings, Access.READWRITE)
        places = [self._places[mapping.offset // self._map.chunk_size] for mapping in mappings]
        self._copy.load([place.index for place in places], [mapping.address for mapping in mappings])
        self._map.device.synchronize()

    def _set_access(self, mappings: Sequence[Mapping]) -> None:
        """The access that each chunk had, one call a run of equal ones."""
        wanted = [self._places[mapping.offset // self._map.chunk_size].access for mapping in mappings]
        start = 0
        for stop in range(1, len(mappings) + 1):
            if stop == len(mappings) or wanted[stop] != wanted[start]:
                self._each_run([m for m in mappings[start:stop] if m.access != wanted[start]], wanted[start])
                start = stop

    def _each_run(self, mappings: Sequence[Mapping], access: Access) -> None:
        for run in adjacent(mappings):
            self._map.addresses.set_access(run, access)
