"""python -m vmm: what the driver's layer is here (info), one walk through its calls (demo), open questions (settle)."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit status. What is stopped while it imports ends as in a command."""
    try:
        from .commands.entry import run

        return run()
    except KeyboardInterrupt:
        print("error: stopped", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
