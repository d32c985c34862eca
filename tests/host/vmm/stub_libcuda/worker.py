"""Runs functions of test files over the stub library, each in a fork that has loaded no driver yet.

Started with the stub's folder in LD_LIBRARY_PATH. Each line on standard input is a JSON request: the file and the name
of a function, its arguments, environment variables, and where standard output, standard error and the pickled result
go. The answer is one line: the fork's exit status.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest  # noqa: F401  the test files import it: once here instead of in every fork

import vmm
import vmm.commands  # noqa: F401


def perform(request: dict[str, Any]) -> None:
    """What a fork does: run the function, and leave ("returned", value) or ("raised", text) behind."""
    os.environ.update(request["environment"])
    for stream, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(request[stream], os.O_WRONLY | os.O_CREAT), number)
    spec = importlib.util.spec_from_file_location("scenarios", request["file"])
    assert spec and spec.loader, "a test file can be loaded"
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        outcome = "returned", getattr(module, request["function"])(*request["arguments"])
    except BaseException:
        outcome = "raised", traceback.format_exc()
    Path(request["result"]).write_bytes(pickle.dumps(outcome))


def main() -> None:
    """One request after another until standard input ends."""
    for line in sys.stdin:
        process = os.fork()
        if not process:
            perform(json.loads(line))
            sys.exit()  # as a program ends: finalizers that still hold something run, and speak
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
