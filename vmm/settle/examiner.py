"""The examiner: asks every question of a worker process, and of another one where that dies, hangs or is of no use."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from .question import Answer
from .questions import QUESTIONS

_PATIENCE = 20.0
_WORKER = (sys.executable, "-m", "vmm.settle.worker")
NO_ANSWER = "no answer"


def examine(
    driver: str,
    backing: str = "memory",
    keys: Sequence[str] | None = None,
    *,
    patience: float = _PATIENCE,
    worker: Sequence[str] = _WORKER,
) -> Iterator[Answer]:
    """The answers of a driver ("cuda" or "host"), one by one as they come.

    A question whose process ends, or gives nothing for ``patience`` seconds, is answered with that. ``worker`` is the
    command of the process, which is given the driver, the backing and the keys that are left.
    """
    left = list(QUESTIONS if keys is None else keys)
    while left:
        for key, seen in _Worker([*worker, driver, backing], left, patience):
            left.remove(key)
            yield QUESTIONS[key].answer(seen)


class _Worker:
    """One process that is asked ``keys``; iterating gives at least one answer, and all until the process ends."""

    def __init__(self, command: Sequence[str], keys: Sequence[str], patience: float) -> None:
        self._keys, self._patience = list(keys), patience
        self._process = subprocess.Popen(  # without a buffer, in which a line could hide from select
            [*command, *keys], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )

    def __iter__(self) -> Iterator[tuple[str, str]]:
        asked, answered = "", False
        try:
            while (line := self._line()) is not None:
                said = json.loads(line)
                if "begin" in said:
                    asked = said["begin"]
                else:
                    asked, answered = "", True
                    yield said["key"], said["seen"]
            if asked or not answered:
                yield asked or self._keys[0], f"{NO_ANSWER}: {self._end()}"
        finally:
            self._stop()

    def _line(self) -> bytes | None:
        """The next line, or None where the process has ended or hangs."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + self._patience
        if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        return self._process.stdout.readline() or None

    def _end(self) -> str:
        """How the process came to its end, in a few words."""
        try:
            status = self._process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return f"nothing for {self._patience:g} s"
        if status < 0:
            return f"the process was ended by {signal.Signals(-status).name}"
        assert self._process.stderr is not None
        lines = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with status {status}" + (f", {lines[-1]}" if lines else "")

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
