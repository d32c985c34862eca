"""python -m vmm: what the driver's layer is here (info), and one walk through its calls (demo)."""

from __future__ import annotations

import sys

from .commands.entry import run

if __name__ == "__main__":
    sys.exit(run())
