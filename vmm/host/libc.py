"""The memory calls of the operating system that Python's own mmap module does not have."""

from __future__ import annotations

import ctypes

PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS = 0x01, 0x02, 0x10, 0x20
_MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x4000, 0x100000
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
)  # fmt: skip
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_mprotect = _libc.mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_fallocate = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

_ANYWHERE = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE


def reserve(size: int) -> int:
    """Take ``size`` bytes of addresses without memory or access; 0 where there are none."""
    found = _mmap(None, size, PROT_NONE, _ANYWHERE, -1, 0)
    return 0 if found == _FAILED else int(found)


def reserve_at(address: int, size: int) -> bool:
    """Take exactly these addresses; False where something is there already."""
    found = _mmap(address, size, PROT_NONE, _ANYWHERE | _MAP_FIXED_NOREPLACE, -1, 0)
    if found == _FAILED:
        return False
    if found != address:  # a kernel before 4.17 takes the address as a hint only
        _munmap(found, size)
        return False
    return True


def unreserve(address: int, size: int) -> None:
    """Give addresses back."""
    if _munmap(address, size):
        raise OSError(ctypes.get_errno(), f"munmap of {size} bytes at {address:#x} failed")


def make_plain(address: int, size: int) -> bool:
    """Turn addresses into a reservation again, in one step, so that no other code can take them in between."""
    return bool(_mmap(address, size, PROT_NONE, _ANYWHERE | _MAP_FIXED, -1, 0) != _FAILED)


def map_file(address: int, size: int, descriptor: int, offset: int) -> bool:
    """Map a part of a file over reserved addresses, without access."""
    return bool(_mmap(address, size, PROT_NONE, _MAP_SHARED | _MAP_FIXED, descriptor, offset) != _FAILED)


def protect(address: int, size: int, protection: int) -> bool:
    """Set what may be done with mapped addresses."""
    return not _mprotect(address, size, protection)


def punch_hole(descriptor: int, offset: int, size: int) -> None:
    """Give a part of a file's memory back to the system."""
    if _fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, offset, size):
        raise OSError(ctypes.get_errno(), f"giving back {size} bytes of a memory file failed")
