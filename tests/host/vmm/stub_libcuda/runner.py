"""Runs a function over the stub, and reads the record of what the library was asked."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vmm


@dataclass(frozen=True)
class Call:
    """One call as the library saw it: every argument and output as its bytes in memory (None: a NULL pointer)."""

    name: str
    args: tuple[bytes | None, ...]
    code: int
    outs: tuple[bytes, ...]

    @property
    def out(self) -> int:
        """The first output as a number."""
        return int.from_bytes(self.outs[0], sys.byteorder)


def parse(line: str) -> Call:
    """A line of the record: "name argument ... = code output ..."."""
    asked, _, answered = line.partition(" = ")
    name, *args = asked.split()
    code, *outs = answered.split()
    values = {"null": None, "-": b""}
    return Call(
        name,
        tuple(values[arg] if arg in values else bytes.fromhex(arg) for arg in args),
        int(code),
        tuple(map(bytes.fromhex, outs)),
    )


class Calls(list[Call]):
    """The calls of one run in their order."""

    def names(self, *of_interest: str) -> list[str]:
        """The names in order; only ``of_interest``, if any are named."""
        return [call.name for call in self if not of_interest or call.name in of_interest]

    def of(self, name: str) -> list[Call]:
        """The calls of one function."""
        return [call for call in self if call.name == name]

    def args(self, name: str) -> list[tuple[bytes | None, ...]]:
        """What one function was given, each time."""
        return [call.args for call in self.of(name)]

    def left(self) -> dict[str, int]:
        """How much was taken and not given back, by the call that took it; mappings in bytes, the rest counted."""
        total: dict[str, int] = dict.fromkeys(set(_PAIRS.values()), 0)
        for call in self:
            if call.code == 0 and call.name in _PAIRS:
                amount = _bytes(call) if _PAIRS[call.name] == "cuMemMap" else 1
                total[_PAIRS[call.name]] += amount if call.name in _TAKES else -amount
        return {name: left for name, left in total.items() if left}


_PAIRS = {
    "cuMemAddressReserve": "cuMemAddressReserve",
    "cuMemAddressFree": "cuMemAddressReserve",
    "cuMemCreate": "cuMemCreate",
    "cuMemRetainAllocationHandle": "cuMemCreate",
    "cuMemImportFromShareableHandle": "cuMemCreate",
    "cuMemRelease": "cuMemCreate",
    "cuMemMap": "cuMemMap",
    "cuMemUnmap": "cuMemMap",
    "cuMemAlloc": "cuMemAlloc",
    "cuMemFree": "cuMemAlloc",
    "cuMemHostAlloc": "cuMemHostAlloc",
    "cuMemAllocHost": "cuMemHostAlloc",
    "cuMemFreeHost": "cuMemHostAlloc",
    "cuStreamCreate": "cuStreamCreate",
    "cuStreamDestroy": "cuStreamCreate",
    "cuEventCreate": "cuEventCreate",
    "cuEventDestroy": "cuEventCreate",
    "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease": "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent": "cuCtxPushCurrent",
    "cuCtxPopCurrent": "cuCtxPushCurrent",
}
_TAKES = set(_PAIRS.values()) | {"cuMemRetainAllocationHandle", "cuMemImportFromShareableHandle", "cuMemAllocHost"}


def _bytes(call: Call) -> int:
    """The size of a map or unmap: its second argument."""
    size: int = struct.unpack("=Q", call.args[1] or b"")[0]
    return size


class Worker:
    """The process that has the stub's ``folder`` in front of every other place for libraries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
        packages = str(Path(vmm.__file__).parents[1])  # the same ones as here, installed or not
        environment = {**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": packages, "OPENBLAS_NUM_THREADS": "1"}
        environment.pop("VMM_DRIVER", None)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def run(self, request: dict[str, Any]) -> int:
        """Run one request and return the exit status of the process that did."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)


class Stub:
    """Runs functions of one test file. ``stdout`` and ``stderr`` are those of the last run."""

    def __init__(self, worker: Worker, file: Path, folder: Path) -> None:
        self.library = worker.folder
        self.stdout = self.stderr = ""
        self._worker, self._file, self._folder = worker, file, folder
        self._runs = 0

    def __call__(
        self, function: Callable[..., Any], *arguments: Any, leaves: bool = False, **settings: object
    ) -> tuple[Any, Calls]:
        self._runs += 1
        folder = self._folder / f"run{self._runs}"
        folder.mkdir()
        status = self._worker.run(
            {
                "file": str(self._file),
                "function": function.__name__,
                "arguments": arguments,
                "environment": {"STUB_RECORD": str(folder / "record"), **{k: str(v) for k, v in settings.items()}},
                **{name: str(folder / name) for name in ("stdout", "stderr", "result")},
            }
        )
        self.stdout, self.stderr = ((folder / name).read_text() for name in ("stdout", "stderr"))
        assert status == 0, f"the process ended with {status}: {self.stderr}"
        kind, value = pickle.loads((folder / "result").read_bytes())
        assert kind == "returned", value
        record = folder / "record"
        calls = Calls(map(parse, record.read_text().splitlines())) if record.exists() else Calls()
        assert leaves or not calls.left(), f"left alive: {calls.left()}"
        return value, calls
