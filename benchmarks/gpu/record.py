"""Record: everything that a run found, in one JSON file that is whole after every item."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from . import costs

SCHEMA = 1


class Record:
    """Results by step and item in ``data``; ``path`` is None until it is known where they go."""

    def __init__(self, path: Path | None, **about: Any) -> None:
        self.path = path
        self.data: dict[str, Any] = {"schema": SCHEMA, **about, "steps": {}, "skipped": {}}

    @property
    def device(self) -> dict[str, Any]:
        """What the first step found."""
        found: dict[str, Any] = self.results("device").get("device", {})
        return found

    def results(self, step: str) -> dict[str, Any]:
        """The results of a step by item."""
        found: dict[str, Any] = self.data["steps"].get(step, {})
        return found

    def put(self, step: str, item: str, result: dict[str, Any]) -> None:
        """Keep one result."""
        self.data["steps"].setdefault(step, {})[item] = result
        if step == "costs" and "microseconds" in result and self.path:
            write(self.path.with_suffix(".costs.json"), costs.cost_set(result, self.device))
        self.save()

    def skip(self, step: str, items: list[str], reason: str) -> None:
        """Keep what was not done, and why."""
        self.data["skipped"][step] = {"reason": reason, "items": list(items)}
        self.save()

    def failures(self) -> list[str]:
        """Items that ended with an error or a wrong result."""
        return [
            f"{step}: {item}"
            for step, results in self.data["steps"].items()
            for item, result in results.items()
            if "error" in result or result.get("ok") is False
        ]

    def save(self) -> None:
        """Write the file, if there is one."""
        if self.path:
            write(self.path, self.data)


def write(path: Path, data: Any) -> None:
    """Replace a file by JSON: it is never half there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)


def file_name(device: str) -> str:
    """A device's name as the name of a file."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", device).strip("-") + ".json"
