"""python -m paged: compare how virtual and physical memory grow (replay), and follow one token through both (walk)."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; also the console command. What is stopped while it imports ends as in a command."""
    try:
        from .commands.group import main as commands

        commands(prog_name=None if sys.argv[0].endswith("pagewalk") else "python -m paged")
    except KeyboardInterrupt:
        print("error: stopped", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
