"""Server: a few threads that wait at one socket. Each serves one importer at a time; the others wait in the queue."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .errors import SharingError, VmmError
from .sharing_socket import Channel, Kind, Peer, new_socket

log = logging.getLogger("vmm")

_THREADS = 4  # importers at once; a silent one keeps its thread until the timeout
_QUEUE = 64
_PAUSE = 0.1  # seconds until the next try where the system has no descriptor for a connection


class Server:
    """Serves importers at the socket ``path`` until ``close``: ``serve`` talks to one of them, in a thread.

    Only processes of this user are served, and only ``peer`` if that pid is given. An importer that is killed, silent
    for ``timeout`` seconds, or talks nonsense costs one line in the log. Raises SharingError where the system refuses
    the socket.
    """

    def __init__(self, path: Path, serve: Callable[[Channel], None], peer: int | None, timeout: float) -> None:
        self._serve, self._peer, self._timeout = serve, peer, timeout
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._served = 0
        self._closed = False
        self.patience: float | None = None  # seconds that ``close`` waits for each thread; None for as long as it takes
        self._talking: set[socket.socket] = set()
        self._listener = _listen(path)
        self._threads: list[threading.Thread] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for _ in range(_THREADS):
                thread = threading.Thread(target=self._run, name="vmm.sharing", daemon=True)
                thread.start()
                self._threads.append(thread)
            undo.pop_all()

    @property
    def served(self) -> int:
        """How many importers have got everything."""
        return self._served

    def wait(self, count: int, timeout: float | None) -> bool:
        """Wait until ``count`` importers have got everything; False if ``timeout`` seconds were not enough."""
        with self._changed:
            self._changed.wait_for(lambda: self._served >= count or self._closed, timeout)
            return self._served >= count

    def close(self) -> None:
        """Serve nobody any more, and end the conversations. Closing twice does nothing."""
        if os.getpid() == self._process:  # in a forked child the sockets are the parent's, and the threads not there
            self._end()
        self._listener.close()

    def _end(self) -> None:
        """Wake every thread, and wait until it has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for talking in (self._listener, *self._talking):
                _shut_down(talking)
        for thread in self._threads:
            if thread is not threading.current_thread():  # a finalizer can run in any thread
                thread.join(self.patience)

    def _run(self) -> None:
        """One thread: importer after importer."""
        while not self._closed:
            try:
                connected, _ = self._listener.accept()
            except OSError as error:
                if not self._closed:
                    log.warning("no importer can connect: %s; raise the limit of open files?", error.strerror)
                    time.sleep(_PAUSE)
                continue
            with contextlib.closing(connected):
                self._talk(connected)

    def _talk(self, connected: socket.socket) -> None:
        with self._changed:
            if self._closed:
                return
            self._talking.add(connected)
        try:
            peer = Peer.of(connected)
            self._answer(peer, Channel(connected, f"the importer (pid {peer.pid})", self._timeout))
        finally:
            with self._changed:
                self._talking.discard(connected)

    def _answer(self, peer: Peer, channel: Channel) -> None:
        """Serve one importer, or tell it and the log why not."""
        try:
            channel.receive(Kind.HELLO)  # a refusal is lost where words of the importer lie unread
            peer.check(self._peer)
            self._serve(channel)
        except (VmmError, OSError) as error:
            log.warning("not shared: %s", error)
            with contextlib.suppress(SharingError):
                channel.send(Kind.REFUSED, str(error).encode()[:1024])
            return
        with self._changed:
            self._served += 1
            self._changed.notify_all()


def _listen(path: Path) -> socket.socket:
    listener = new_socket()
    try:
        listener.bind(str(path))
        listener.listen(_QUEUE)
    except OSError as error:
        listener.close()
        raise SharingError(f"cannot listen at {path}: {error.strerror or error}; give a folder= elsewhere") from None
    return listener


def _shut_down(talking: socket.socket) -> None:
    """Wake whoever waits at a socket."""
    with contextlib.suppress(OSError):
        talking.shutdown(socket.SHUT_RDWR)
