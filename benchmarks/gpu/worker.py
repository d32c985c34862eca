"""The process that runs items of one step. A fault takes the context with it, so nobody else shares this process."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, TextIO

from .bench import Bench
from .steps import STEPS

TRACE_LINES = 12


def work(order: dict[str, Any]) -> None:
    """Run the items of ``order`` one after the other, a line of JSON each; stop at the first that fails.

    ``order`` has "step", "items", "dry" and "seconds" (that are left; what does not fit is not begun).
    """
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no event
    deadline = time.monotonic() + order["seconds"]
    bench = Bench(order["dry"], deadline)
    module = STEPS[order["step"]].module
    try:
        for item in order["items"]:
            if time.monotonic() >= deadline:
                break
            if not _one(module, item, bench, events):
                break
    finally:
        bench.close()


def _one(module: Any, item: str, bench: Bench, events: TextIO) -> bool:
    """Run an item and report it; whether the process is fit for another."""
    started = time.monotonic()
    try:
        result, failed = module.run(item, bench), False
    except Exception as error:
        lines = traceback.format_exc().splitlines()[-TRACE_LINES:]
        cause = _first(error)
        result, failed = {"error": f"{type(cause).__name__}: {cause}".splitlines()[0], "trace": lines}, True
    bench.trim()
    result.setdefault("seconds", round(time.monotonic() - started, 2))
    print(json.dumps({"item": item, "result": result}), file=events, flush=True)
    return not failed


def _first(error: BaseException) -> BaseException:
    """The error that came first: after a fault, giving back fails too."""
    while error.__context__ is not None:
        error = error.__context__
    return error
