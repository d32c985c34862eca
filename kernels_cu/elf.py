"""The sections of an ELF file: a cubin is one, and so is a kernel that was compiled for the CPU."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .errors import CompileError

_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")


def sections(image: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of each section of a 64-bit little-endian ELF file. Raises CompileError for another file."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise CompileError(f"not a cubin: it begins with {image[:6]!r}")
    (table,) = struct.unpack_from("<Q", image, 0x28)
    entry_size, count, name_section = struct.unpack_from("<HHH", image, 0x3A)
    headers = [_SECTION_HEADER.unpack_from(image, table + i * entry_size) for i in range(count)]
    names = headers[name_section][4]
    for name, _, _, _, offset, size, *_ in headers:
        end = image.index(b"\0", names + name)
        yield image[names + name : end].decode(), image[offset : offset + size]
