"""The commands of ``python -m vmm``, one a file."""

from .entry import run

__all__ = ["run"]
