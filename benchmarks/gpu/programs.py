"""Everything that runs by itself: the examples, the demo, the open questions, and the tests that a device changes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

from .bench import Bench

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 75
TAIL_LINES = 20
PYTEST = [
    "-m",
    "pytest",
    "-q",
    "-n",
    "0",
    "--maxfail=20",
    "-p",
    "no:cacheprovider",
    "-c",
    str(ROOT / "pyproject.toml"),
]


def commands(driver: str) -> dict[str, list[str]]:
    """The arguments of the interpreter, by the item's name. They run in a folder of their own."""
    folder, device_tests = ROOT / "examples", ROOT / "tests" / "device"
    examples = [*sorted(folder.glob("[0-9]*.py")), folder / "tiny_llm.py"]
    return {
        "vmm demo": ["-m", "vmm", "demo", "--driver", driver],
        **{f"example {path.stem}": [str(path)] for path in examples},
        "conformance": [*PYTEST, str(ROOT / "tests" / "conformance"), "--driver", driver],
        "device tests": [*PYTEST, str(device_tests), "--ignore", str(device_tests / "test_interop.py")],
        "vmm settle": ["-m", "vmm", "settle", "--driver", driver],
    }


def names() -> list[str]:
    """The names of all commands."""
    return list(commands("cuda"))


def run(name: str, bench: Bench) -> dict[str, Any]:
    """Run one command in a process."""
    return run_process(commands("host" if bench.dry else "cuda")[name], bench)


def run_process(arguments: list[str], bench: Bench) -> dict[str, Any]:
    """Run the interpreter, for at most as long as there is time; its exit status and the end of its output."""
    driver = "host" if bench.dry else "cuda"
    environment = {**os.environ, "MPLBACKEND": "Agg", "VMM_DRIVER": driver, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    started = time.monotonic()
    timeout = min(TIMEOUT_S, max(10.0, bench.deadline - started))
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=PIPE, stderr=STDOUT, timeout=timeout, check=False
            )
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            status, output = None, error.stdout or b""
    tail = output.decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
    return {"ok": status == 0, "status": status, "seconds": round(time.monotonic() - started, 1), "tail": tail}
