"""Stock: the chunks of one supply, in use and cached, under one lock, and who has how many of them.

What a ``ChunkSupply`` and its shares have in common. Each takes and gives for an account of its own.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import threading
import weakref

from .accounts import UNBOUNDED, Account, Accounts
from .device import Device
from .errors import ClosedError, OutOfMemoryError, RangeError, SizeError, StateError
from .givers import Givers
from .physical import PhysicalMemory, close_each, create_each
from .prefetch import Prefetch
from .shortage.chunks import chunk_shortage
from .sizes import Size, format_size, parse_size
from .uninterrupted import uninterrupted

_all: weakref.WeakSet[Stock] = weakref.WeakSet()  # for a fork


class Stock:
    """Chunks of ``chunk_size`` bytes: at most ``budget`` bytes of them, ``cache_limit`` chunks kept for the next taker.

    See ``ChunkSupply``, which documents what each method does for a caller.
    """

    def __init__(
        self, device: Device, chunk_size: int, budget: int | None, cache_limit: int, *, exportable: bool
    ) -> None:
        self.device, self.chunk_size, self.budget, self.exportable = device, chunk_size, budget, exportable
        self.closed = False
        self.cached: list[PhysicalMemory] = []
        self.out: dict[PhysicalMemory, Account] = {}  # what ranges hold, and for whom
        self.accounts = Accounts(UNBOUNDED if budget is None else budget // chunk_size, chunk_size)
        self.givers = Givers(self.accounts)
        self.lock = threading.RLock()  # a range that the garbage collector finds may give while its thread takes
        self.prefetch: Prefetch | None = None
        self._cache_limit = cache_limit
        self._awaited = 0  # chunks that are kept beyond the limit, for a taker that asked others for them
        device.caches[id(self)] = self
        _all.add(self)

    def start(self, prefetch: Size) -> None:
        """Start the thread. It knows what it needs of this stock, and not the stock."""
        target = parse_size(prefetch, name="prefetch") // self.chunk_size
        if not target:
            raise SizeError(
                f"prefetch {prefetch!r} is less than one chunk of {format_size(self.chunk_size)}; "
                f"it is in bytes: {self.chunk_size} for each chunk to keep ready"
            )
        make = functools.partial(PhysicalMemory, self.device, self.chunk_size, exportable=self.exportable)
        most = None if self.budget is None else self.budget // self.chunk_size
        self.prefetch = Prefetch(make, self.cached, self.out, self.lock, target, most)

    @uninterrupted
    def take(self, account: Account, count: int) -> list[PhysicalMemory]:
        """Give ``count`` chunks to ``account``, or raise and change nothing."""
        count = operator.index(count)
        if count < 0:
            raise RangeError(f"cannot take {count} chunks; ask for 0 or more")
        try:
            while True:  # each turn more comes free, or it ends
                refused = None
                try:
                    taken = self._take(account, count)
                except OutOfMemoryError as caught:
                    taken, refused = None, caught
                if taken is not None:
                    return taken
                if not self._make_room(account, count):
                    error = self._shortage_error(account, count, refused)
                    if error is not None:  # else another thread has given some back meanwhile
                        raise error
        finally:
            if self._awaited:
                self._end_awaiting()

    def _take(self, account: Account, count: int) -> list[PhysicalMemory] | None:
        """What ``take`` gives; None where the bounds leave not so many. Raises where the driver refuses."""
        with self.lock:
            if self.prefetch is not None and count > len(self.cached):
                self.prefetch.land()
            self.check_open()
            if count > self.accounts.room(account):
                return None
            reused = [self.cached.pop() for _ in range(min(count, len(self.cached)))]
            with contextlib.ExitStack() as undo:
                undo.callback(self.cached.extend, reversed(reused))
                created = create_each(self.device, self.chunk_size, count - len(reused), exportable=self.exportable)
                undo.pop_all()
            taken = reused + created
            self.out.update(dict.fromkeys(taken, account))
            account.out += count
            if self.prefetch is not None:
                self.prefetch.resume() if created else self.prefetch.wake()
        return taken

    @uninterrupted
    def give(self, account: Account, chunks: list[PhysicalMemory]) -> None:
        """Take chunks back from ``account``."""
        with self.lock:
            mine = self.out.get
            strange = [chunk for chunk in chunks if mine(chunk) is not account]
            if strange or len(set(chunks)) != len(chunks):
                wrong = strange[0] if strange else "one chunk twice"
                raise StateError(f"{wrong} was given back; {account.name} has {account.out} others in use")
            for chunk in chunks:
                del self.out[chunk]
            account.out -= len(chunks)
            self.accounts.forget_ended(account)
            room = self._room()
            ours = [chunk for chunk in chunks if not chunk.exported]  # another process may have the others mapped
            self.cached.extend(chunk for chunk in ours[:room] if not chunk.closed)
            if self.prefetch is not None:
                self.prefetch.resume()
            close_each([*ours[room:], *(chunk for chunk in chunks if chunk.exported)])

    @uninterrupted
    def trim(self) -> int:
        """Release every cached chunk and return the bytes that came free."""
        with self.lock:
            if self.prefetch is not None:
                self.prefetch.rest()
                self.prefetch.land()
            return self._release_beyond(0)

    @property
    def releasable(self) -> int:
        """Bytes that ``trim`` would release."""
        return len(self.cached) * self.chunk_size

    def check_open(self) -> None:
        """Raise ClosedError after the supply was closed."""
        if self.closed:
            raise ClosedError("chunk supply is closed; make a new one")

    def forked(self) -> None:
        """In a child: no thread of the parent, which may have held the lock, is there to let it go."""
        if self.prefetch is None:  # else nobody held it: see ``Prefetch``
            self.lock = threading.RLock()

    # -- room -----------------------------------------------------------------------------------------------------

    def _limit(self) -> int:
        """How many chunks are kept; a prefetching supply keeps what it would make otherwise."""
        return max(self._cache_limit, self.prefetch.target if self.prefetch else 0)

    def _room(self) -> int:
        """How many more chunks are kept now."""
        coming = self.prefetch.coming if self.prefetch else 0
        return 0 if self.closed else max(0, max(self._limit(), self._awaited) - len(self.cached) - coming)

    def _make_room(self, account: Account, count: int) -> bool:
        """Have other caches released where the device is full, wait for the oldest that retires, or ask; if it helped.

        The lock is not held.
        """
        if count <= self.accounts.room(account) and self._trim_others():
            return True  # without a wait
        return self.device.retirement.collect_oldest() > 0 or self._ask(account, count)

    def _trim_others(self) -> bool:
        """Let the other supplies of this device release their caches; whether anything came free."""
        found = [reference() for reference in self.device.caches.valuerefs()]  # threads may add while this looks
        return sum(other.trim() for other in found if other not in (None, self)) > 0

    def _ask(self, account: Account, count: int) -> bool:
        """Have others give up what they can spare; whether anything came. It is kept for this taker."""
        if not self.givers:
            return False
        lack = self.givers.lack(account, count)
        if lack.total <= 0:  # nothing but the device is full
            free = self.device.memory_info().free // self.chunk_size
            lack = self.givers.at_least(lack, count - len(self.cached) - free)
        self._awaited = max(self._awaited, count)
        before = self.accounts.settled
        return self.givers.ask(account, lack) and self.accounts.settled < before  # a giver's word alone is no memory

    def _end_awaiting(self) -> None:
        """Keep no more than ever for takers that have got theirs."""
        with self.lock:
            self._awaited = 0
            self._release_beyond(self._limit())

    def _release_beyond(self, kept: int) -> int:
        """Release all cached chunks but ``kept``, and return the bytes."""
        leaving: list[PhysicalMemory] = []
        while len(self.cached) > kept:
            leaving.append(self.cached.pop())
        close_each(leaving)
        return len(leaving) * self.chunk_size

    def _shortage_error(
        self, account: Account, count: int, refused: OutOfMemoryError | None
    ) -> OutOfMemoryError | None:
        """What is raised in the end: what the driver refused, or why the bounds leave not so many; None if they do."""
        report = chunk_shortage(self, account, count, refused=refused is not None)
        report = report or chunk_shortage(self, account, count, settled=False)
        if report is None:
            return None
        if refused is not None:
            refused.report = report
            return refused
        return OutOfMemoryError(f"{self._over_budget(account, count)}; {report.advice()}", report)

    def _over_budget(self, account: Account, count: int) -> str:
        """How the bounds stand: with shares, who holds what."""
        asked, size = format_size(count * self.chunk_size), self.chunk_size
        left = format_size(self.accounts.room(account, settled=True) * size)
        if not self.accounts.named:
            used = f"{format_size(self.accounts.out * size)} of {format_size(self.budget or 0)} are in use"
            return f"{asked} asked, {left} left in the budget ({used})"
        held = ", ".join(one.describe(size) for one in self.accounts.all if one.out or one.floor)
        bound = "no budget" if self.budget is None else f"a budget of {format_size(self.budget)}"
        return f"{asked} asked, {left} left for {account.name!r} in {bound} ({held})"


def _in_child() -> None:
    for found in _all:
        found.forked()


os.register_at_fork(after_in_child=_in_child)
