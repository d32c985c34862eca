"""python -m paged: compare how virtual and physical memory grow (replay), and follow one token through both (walk)."""

from __future__ import annotations

from .commands.group import main

__all__ = ["main"]

if __name__ == "__main__":
    main(prog_name="python -m paged")
