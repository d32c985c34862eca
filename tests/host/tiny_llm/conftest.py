"""The example's modules, which are no installed package, and a model to run them on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))


@pytest.fixture
def examples() -> Path:
    """The folder with tiny_llm.py."""
    return EXAMPLES


@pytest.fixture(scope="session")
def stories() -> Path:
    """The folder of stories260K.bin; skip where there is none."""
    folder = ROOT.parent / "shared" / "models"
    if not (folder / "stories260K.bin").exists():
        pytest.skip("stories260K.bin is not in ../shared/models")
    return folder


@pytest.fixture
def stage(device: Any, request: pytest.FixtureRequest) -> Any:
    """The micro model on a device of 256 MiB."""
    request.getfixturevalue("compiler")
    from llama.stage import Stage

    return Stage(device, EXAMPLES / "micro" / "model.bin")


@pytest.fixture
def stories_stage(device: Any, stories: Path, request: pytest.FixtureRequest) -> Any:
    """The published model on a device of 256 MiB."""
    request.getfixturevalue("compiler")
    from llama.stage import Stage

    return Stage(device, stories / "stories260K.bin")
