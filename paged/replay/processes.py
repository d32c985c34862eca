"""Policies side by side, each in a process of its own. A failure is told with the policy's name, and nothing hangs."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import PolicyResult

_log = logging.getLogger("pagewalk")
_TELL_EVERY_S = 0.1

Task = Callable[[Any, str, Callable[[str, int], None]], "PolicyResult"]
"""(run, policy's name, progress) -> its result; a function of a module, so that another process can find it."""


class ReplayError(Exception):
    """A policy's process failed; the message says which policy and why."""


def run_in_processes(
    task: Task, run: object, names: Sequence[str], processes: int, progress: Callable[[str, int], None] | None
) -> dict[str, PolicyResult]:
    """Run ``task`` once a name, at most ``processes`` at a time, and return the results in the order of ``names``.

    The last names are started first: they are the dearest. Raises ReplayError for the first that fails; the others are
    ended then.
    """
    waiting = list(names)
    results: dict[str, PolicyResult] = {}
    with _children() as running:
        while waiting or running:
            while waiting and len(running) < processes:
                _start(task, run, waiting.pop(), running)
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                name, process = running[connection]
                kind, value = _receive(connection, name, process)
                if kind == "progress" and progress:
                    progress(name, value)
                elif kind == "result":
                    results[name] = value
                    process.join()
                    connection.close()
                    del running[connection]
    return {name: results[name] for name in names}


Children = dict[Connection, tuple[str, BaseProcess]]


@contextlib.contextmanager
def _children() -> Iterator[Children]:
    """The processes that run; those that are left when something fails are ended."""
    running: Children = {}
    try:
        yield running
    finally:
        for connection, (_, process) in running.items():
            process.terminate()
            process.join()
            connection.close()


def _start(task: Task, run: object, name: str, running: Children) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, task, run, name), name=f"pagewalk {name}", daemon=True)
    with _interrupts_held():
        process.start()
        running[ours] = (name, process)
    theirs.close()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let SIGINT wait, so that no child is started and not known; and a child inherits that it does not hear it.

    A terminal sends the signal to every process: only the parent shall act on it, by ending the children. The mask is
    this thread's and the child's; another thread (a numerical library's) may take the signal for the process, and the
    handler would run here all the same, so that it waits too.
    """
    resource_tracker.ensure_running()  # or the first start would do it, and let the signal through
    heard: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number)) if main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _receive(connection: Connection, name: str, process: BaseProcess) -> tuple[str, Any]:
    """The next message of a child, or the error that it died of."""
    try:
        kind, value = connection.recv()
    except EOFError:
        process.join()
        code = process.exitcode
        why = (
            f"was killed by signal {-code}, perhaps for lack of memory" if code and code < 0 else f"exited with {code}"
        )
        raise ReplayError(f"policy {name}: its process {why}") from None
    if kind == "error":
        message, details = value
        _log.debug("policy %s failed:\n%s", name, details)
        raise ReplayError(f"policy {name}: {message}")
    return kind, value


def _work(connection: Connection, task: Task, run: object, name: str) -> None:
    """The child: run the task and send what comes of it."""
    last = 0.0

    def tell(policy: str, done: int) -> None:  # noqa: ARG001 - there is one policy here
        nonlocal last
        if time.monotonic() - last > _TELL_EVERY_S:
            last = time.monotonic()
            connection.send(("progress", done))

    try:
        connection.send(("result", task(run, name, tell)))
    except Exception as error:
        text = str(error) if type(error).__module__ != "builtins" else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):  # the parent is gone: nobody is left to tell
            connection.send(("error", (text or type(error).__name__, traceback.format_exc())))
