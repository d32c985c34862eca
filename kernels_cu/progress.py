"""Say what takes time: to the log "pagewalk" always, and on a terminal to whoever waits."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOG = logging.getLogger("pagewalk")


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Announce ``what`` before it starts, and its seconds when it is done. Silent where stderr is no terminal."""
    seen = sys.stderr is not None and sys.stderr.isatty()
    if seen:
        print(f"pagewalk: {what} ...", end="", file=sys.stderr, flush=True)
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - start
        LOG.info("%s: %.1f s", what, seconds)
        if seen:
            print(f" {seconds:.1f} s", file=sys.stderr, flush=True)
