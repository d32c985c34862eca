"""python -m paged: compare how virtual and physical memory grow (replay), and follow one token through both (walk)."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; also the console command. What is stopped while it imports ends as in a command."""
    try:
        from kernels_cu.cache import cache_folder

        from .commands.group import main as commands

        # Where matplotlib keeps its list of fonts: a command writes to its own folder and to files that are named.
        os.environ.setdefault("MPLCONFIGDIR", str(cache_folder() / "matplotlib"))
        commands(prog_name=None if sys.argv[0].endswith("pagewalk") else "python -m paged")
    except KeyboardInterrupt:
        print("error: stopped", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
