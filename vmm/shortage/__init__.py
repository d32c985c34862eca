"""Why there is not so much as was asked: the limit that binds, what fills it up, who has it, and what would help.

``report`` is the form, in vmm and above it alike; each other file finds the limits of one thing that can run out.
"""

from .report import Held, Limit, Portion, Remedy, Shortage

__all__ = ["Held", "Limit", "Portion", "Remedy", "Shortage"]
