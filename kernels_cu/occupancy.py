"""How many thread blocks one multiprocessor holds at once, from what a block needs.

The formula is that of NVIDIA's occupancy calculator, with the figures of the CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability". They are alike for sm_80, sm_90 and sm_100 but for the shared memory.
"""

from __future__ import annotations

from .shared_memory import RESERVED_BYTES, most_shared_bytes

LANES = 32
MOST_THREAD_BLOCKS = 32
MOST_WARPS = 64
PARTS = 4
"""A multiprocessor has four parts, each with a scheduler and registers of its own."""
REGISTERS_OF_PART = 16384
REGISTER_UNIT = 256
"""Registers are given to a warp in units of this size."""
SHARED_UNIT = 128


def thread_blocks(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks of ``threads`` threads of ``registers`` registers, with ``shared_bytes`` each, on one multiprocessor."""
    warps = _up(threads, LANES) // LANES
    warps_of_part = REGISTERS_OF_PART // _up(max(registers, 1) * LANES, REGISTER_UNIT)
    whole = most_shared_bytes(arch, 1) + RESERVED_BYTES
    return min(
        MOST_THREAD_BLOCKS,
        MOST_WARPS // warps,
        PARTS * warps_of_part // warps,
        whole // _up(shared_bytes + RESERVED_BYTES, SHARED_UNIT),
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
