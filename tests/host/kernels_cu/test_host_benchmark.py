"""The benchmark of the CPU run measures every kernel in every build; its speeds are asserted nowhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "host_kernels.py"


@pytest.mark.usefixtures("target")
def test_it_measures_and_checks_what_it_measures():
    command = [sys.executable, str(BENCHMARK), "--context", "100", "--rounds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["found"]
    rows = {(row["kernel"], row["group"], row["build"]) for row in found}
    assert len(rows) == 2 * 3 * 3
    assert all(row["rows_per_second"] > 0 for row in found)
