import subprocess
import sys
from importlib.metadata import version

import pytest


@pytest.mark.parametrize("package", ["vmm", "paged", "kernels_cu"])
def test_each_command_line_says_its_version(package):
    done = subprocess.run([sys.executable, "-m", package, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pagewalk, version {version('pagewalk')}\n", "")
