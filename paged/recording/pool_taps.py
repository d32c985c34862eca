"""PoolTaps: the methods of one KVPool and its parts, wrapped so that each success is told as an event.

Block tables of all sequences are one array in the pool, so that append, fork, copy-on-write, a batch's step and
compaction are all entries that change there; rows come and go through the pool's memory, and what the prefix cache
knows through the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from .cache_taps import listed, tap_cache
from .kinds import Kind
from .taps import Method, Note, Taps

if TYPE_CHECKING:
    from ..pool import KVPool


class PoolTaps:
    """Tells ``note`` of everything that ``pool`` does, from now until ``close``; what it has already is told first.

    ``clock`` is perf_counter_ns. ``label`` is what the next sequence that starts is called, by whoever knows.
    """

    def __init__(self, pool: KVPool, note: Note, clock: Callable[[], int]) -> None:
        self.pool, self.note, self.clock = pool, note, clock
        self.label = -1
        self.taken: list[int] = []  # the blocks of the latest allocation
        self.numbers: dict[int, int] = {}  # row of the pool's table -> number of its sequence
        self._next = count()
        self._began = 0  # of the allocation whose blocks go into a table next
        self._taps = Taps()
        self._tell_what_is_there()
        for owner, names in self._methods().items():
            target = {"pool": pool, "table": pool.table, "memory": pool.memory, "range": pool.range}[owner]
            for name, wrapper in names.items():
                self._taps.tap(target, name, wrapper)
        if pool.prefix:
            tap_cache(self._taps, pool.prefix, note, clock)

    def close(self) -> None:
        """Take the wrappers off. Closing twice does nothing."""
        self._taps.close()

    def tap(self, owner: Any, name: str, wrapper: Callable[[Method], Method]) -> None:
        """Wrap a method of something else too, until ``close``."""
        self._taps.tap(owner, name, wrapper)

    def replace(self, owner: Any, name: str, by: Any) -> None:
        """Put something in the place of a part, until ``close``."""
        self._taps.replace(owner, name, by)

    def leave_allocations(self) -> None:
        """Wrap ``KVPool.allocate`` no more: whoever asks for blocks tells of them."""
        self._taps.leave(self.pool, "allocate")

    def new_number(self) -> int:
        """A number for a sequence that nobody had."""
        return next(self._next)

    def _methods(self) -> dict[str, dict[str, Callable[[Method], Method]]]:
        return {
            "pool": {"allocate": self._allocate, "collect": self._collect},
            "table": {
                "open": self._open,
                "close": self._end,
                "put": self._put,
                "put_each": self._put_each,
                "drop": self._drop,
                "rename": self._rename,
            },
            "memory": {"commit": self._rows(Kind.COMMIT), "decommit": self._rows(Kind.DECOMMIT)},
            "range": {"fall_asleep": self._slept(Kind.SLEEP), "resume": self._slept(Kind.WAKE)},
        }

    def _tell_what_is_there(self) -> None:
        """The rows, tables and cached blocks that the pool has already."""
        pool, table = self.pool, self.pool.table
        if pool.block_pool.committed.count:
            self.note(Kind.COMMIT, -1, pool.retiring, 0, list(pool.block_pool.committed))
        for row in table.open_rows():
            number = self.numbers[row] = self.new_number()
            self.note(Kind.START, number, self.label)
            self.note(Kind.PUT, number, int(table.lengths[row]), 0, table.table(row))
            if table.dropped[row]:
                self.note(Kind.DROP, number, int(table.dropped[row]))
        if pool.prefix:
            known = [block for block in range(pool.block_pool.rows.blocks) if block in pool.prefix.cache]
            if known:
                self.note(Kind.CACHE, ids=known)
        if pool.range.asleep:
            self.note(Kind.SLEEP)

    # -- block tables -------------------------------------------------------------------------------------------

    def _allocate(self, inner: Method) -> Method:
        clock = self.clock

        def allocate(blocks: int) -> list[int]:
            began = clock()
            found: list[int] = inner(blocks)
            self._began, self.taken = began, found
            return found

        return allocate

    def take_start(self) -> int:
        """When the allocation began whose blocks go into a table now; asked once."""
        began, self._began = self._began, 0
        return began

    def _open(self, inner: Method) -> Method:
        start = Kind.START  # looked up here: Python 3.11 makes a function call of it

        def open_row(epoch: int) -> int:
            row: int = inner(epoch)
            number = self.numbers[row] = next(self._next)
            self.note(start, number, self.label)
            return row

        return open_row

    def _end(self, inner: Method) -> Method:
        end = Kind.END

        def close(row: int) -> None:
            tokens = int(self.pool.table.lengths[row])
            inner(row)
            self.note(end, self.numbers.pop(row, -1), tokens)

        return close

    def _put(self, inner: Method) -> Method:
        told = Kind.PUT

        def put(row: int, column: int, blocks: Any) -> None:
            inner(row, column, blocks)
            if not len(blocks):
                return
            tokens = int(self.pool.table.lengths[row])
            ids = listed(blocks)
            self.note(told, self.numbers.get(row, -1), tokens, column, ids, self.take_start())

        return put

    def _put_each(self, inner: Method) -> Method:
        told = Kind.PUT_EACH

        def put_each(rows: Any, columns: Any, blocks: Any) -> None:
            inner(rows, columns, blocks)
            if len(rows):
                numbers = [self.numbers.get(row, -1) for row in rows.tolist()]
                named = listed(blocks)
                ids = list(chain.from_iterable(zip(numbers, columns.tolist(), named, strict=True)))
                self.note(told, -1, 0, 0, ids, self.take_start())

        return put_each

    def _drop(self, inner: Method) -> Method:
        def drop(row: int, blocks: int) -> None:
            with self._untold("put"):
                inner(row, blocks)
            self.note(Kind.DROP, self.numbers.get(row, -1), blocks)

        return drop

    def _rename(self, inner: Method) -> Method:
        def rename(sources: Any, targets: Any) -> None:
            with self._untold("put_each"):
                inner(sources, targets)
            self.note(Kind.MOVE, ids=[*listed(sources), *listed(targets)])

        return rename

    def _untold(self, name: str) -> _Untapped:
        return _Untapped(self.pool.table, name)

    # -- rows ---------------------------------------------------------------------------------------------------

    def _rows(self, kind: Kind) -> Callable[[Method], Method]:
        clock, note, range_ = self.clock, self.note, self.pool.range

        def wrapper(inner: Method) -> Method:
            def change(rows: Any, *rest: Any) -> None:
                began = clock()
                inner(rows, *rest)
                if rows:
                    note(kind, -1, range_.retiring, 0, rows, began)

            return change

        return wrapper

    def _collect(self, inner: Method) -> Method:
        def collect(*, wait: bool = False) -> int:
            began = self.clock()
            given: int = inner(wait=wait)
            if given:
                self.note(Kind.COLLECT, -1, self.pool.range.retiring, 0, (), began)
            return given

        return collect

    def _slept(self, kind: Kind) -> Callable[[Method], Method]:
        def wrapper(inner: Method) -> Method:
            def change(*args: Any) -> None:
                began = self.clock()
                inner(*args)
                self.note(kind, start=began)

            return change

        return wrapper


class _Untapped:
    """Inside the ``with`` an object's method is that of its class."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name = owner, name
        self._wrapped = getattr(owner, name)

    def __enter__(self) -> None:
        delattr(self._owner, self._name)

    def __exit__(self, *_exc: object) -> None:
        setattr(self._owner, self._name, self._wrapped)
