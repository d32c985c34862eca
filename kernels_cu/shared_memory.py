"""How much shared memory a GPU has for one thread block and for all of a multiprocessor.

Figures of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

KIB = 1024
RESERVED_BYTES = KIB
"""What the system takes of each thread block's shared memory."""
_MULTIPROCESSOR_KIB = {"sm_80": 164, "sm_87": 164, "sm_90": 228, "sm_100": 228, "sm_103": 228, "host": 228}
_ELSEWHERE_KIB = 100
"""sm_86, sm_89, sm_120 and what is not known."""


def most_shared_bytes(arch: str, thread_blocks: int) -> int:
    """The shared memory that each of ``thread_blocks`` blocks of one multiprocessor may have. The CPU is as sm_90."""
    whole = _MULTIPROCESSOR_KIB.get(arch, _ELSEWHERE_KIB) * KIB
    return whole // thread_blocks - RESERVED_BYTES
