"""Runs the items of a step in worker processes: one that dies or hangs loses its item, and the next goes on."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .record import Record
from .steps import STEPS

SCRIPT = Path(__file__).resolve().parents[1] / "gpu_check.py"
MOST_FAILURES = 8
"""In a row: then the step is given up."""
CLOSE_S = 20
TAIL_LINES = 20
START_S = 30
"""A worker may take this long before its first item, on top of the item's time."""


def run_step(
    step: str, items: list[str], record: Record, *, dry: bool, deadline: float, said: Callable[[str], None]
) -> None:
    """Run ``items`` until ``deadline`` (of time.monotonic); every result and failure goes into ``record``."""
    waiting, failures = list(items), 0
    while waiting and failures < MOST_FAILURES:
        left = deadline - time.monotonic()
        if left <= 0:
            record.skip(step, waiting, "no time was left")
            return
        with Worker({"step": step, "items": waiting, "dry": dry, "seconds": left}) as worker:
            limit = STEPS[step].item_timeout_s + START_S
            while waiting and (result := worker.next(limit)) is not None:
                item, limit = waiting.pop(0), STEPS[step].item_timeout_s
                record.put(step, item, result)
                failures = failures + 1 if "error" in result else 0
                said(f"{step}: {item}")
    if waiting:
        record.skip(step, waiting, f"{failures} items in a row ended with an error")


class Worker:
    """One worker process and the lines that it writes."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - the worker is the context that closes it
        command = [sys.executable, str(SCRIPT), "--worker", json.dumps(order)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._over = False  # an item failed, and the process does no other

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None and not self._over:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_S)
        self._kill()
        self._reader.join()
        self._errors.close()

    def next(self, timeout: float) -> dict[str, Any] | None:
        """The next item's result, an error where the process died or took too long; None when it does no more."""
        if self._over:
            return None
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            return self._failed(f"took longer than {timeout:.0f} s")
        if line is None:
            status = self._process.wait()
            return self._failed(f"the process ended with {status}") if status else None
        result: dict[str, Any] = json.loads(line)["result"]
        self._over = "error" in result
        return result

    def _failed(self, error: str) -> dict[str, Any]:
        """The result of the item that the process was busy with."""
        self._over = True
        self._kill()
        self._errors.seek(0)
        tail = self._errors.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
        return {"error": error, "trace": tail}

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _kill(self) -> None:
        """End the process with what it started, and wait for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
