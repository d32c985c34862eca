"""Policies: five ways to give memory to sequences, each on the real allocators. One file a policy."""

from __future__ import annotations

import difflib

from .policy import CAUSES, Policy, Usage

POLICIES = ("static", "grow-copy", "paged-prealloc", "paged-vmm", "contiguous-vmm")
"""The names of all policies, from the plainest on."""

__all__ = ["CAUSES", "POLICIES", "Policy", "Usage", "check_policy"]


def check_policy(name: str) -> str:
    """Return ``name`` if a policy has it; ValueError with the list of those that there are."""
    if name in POLICIES:
        return name
    near = difflib.get_close_matches(name, POLICIES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown policy {name!r}; {hint}known: {', '.join(POLICIES)}")
