"""The process that answers: one line of JSON before each question and one after it, so that a death has an author.

python -m vmm.settle.worker host none 1.1 1.2
"""

from __future__ import annotations

import json
import logging
import sys

from ..choice import open_driver
from ..driver import Driver
from ..errors import VmmError
from .bench import Bench
from .questions import QUESTIONS

CONTEXT_LOST = 3
"""Exit status where a question has cost the context; the others have to be asked in another process."""
_HOST_MEMORY = "256 MiB"


def main(driver: str, backing: str, keys: list[str]) -> int:
    """Answer the questions of ``keys`` on a driver of that name. ``backing`` is the host driver's."""
    logging.disable(logging.ERROR)  # the host driver reports what is asked here on purpose
    chosen = open_driver(_host(backing) if driver == "host" else driver)
    context = chosen.context_retain(0)
    with chosen.context(context):
        for key in keys:
            _say({"begin": key})
            _say({"key": key, "seen": _answer(chosen, key)})
            if int(chosen.api.cuCtxSynchronize()[0]):
                sys.stdout.flush()
                return CONTEXT_LOST
    chosen.context_release(0)
    return 0


def _answer(driver: Driver, key: str) -> str:
    bench = Bench(driver)
    try:
        return str(QUESTIONS[key].probe(bench))
    except (VmmError, TypeError, OverflowError, RuntimeError) as error:  # the way there was barred
        return f"could not be asked: {' '.join(str(error).split())}"
    finally:
        bench.close()


def _host(backing: str) -> object:
    from ..host import HostDriver

    return HostDriver(memory=_HOST_MEMORY, backing=backing)


def _say(line: dict[str, str]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
