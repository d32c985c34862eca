"""Read a kernel's parameter table out of a cubin: an ELF file whose section .nv.info.<kernel> lists its attributes.

The layout of the section is that of NVIDIA's cuobjdump -elf, with which the tests compare it: one entry an attribute,
format (1 byte), number (1 byte), then 2 bytes that are the value or, in format 4, the length of the value behind them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .elf import sections
from .errors import CompileError
from .parameters import Parameter

_VALUE_FOLLOWS = 4
_KPARAM_INFO = 0x17
"""EIATTR_KPARAM_INFO: index, ordinal, offset, and a word whose upper 14 bits are the size."""
_KPARAM = struct.Struct("<IHHI")


def kernel_parameters(cubin: bytes, kernel: str) -> tuple[Parameter, ...]:
    """The parameters of ``kernel``, in order. Raises CompileError if the cubin has no such kernel."""
    found_sections = dict(sections(cubin))
    info = found_sections.get(f".nv.info.{kernel}")
    if info is None:
        raise CompileError(f"the cubin has no kernel {kernel}; it has the sections {', '.join(sorted(found_sections))}")
    found: dict[int, Parameter] = {}
    for number, value in _attributes(info):
        if number == _KPARAM_INFO:
            _, ordinal, offset, size = _KPARAM.unpack(value)
            found[ordinal] = Parameter(offset, size >> 18)
    return tuple(found[ordinal] for ordinal in sorted(found))


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(info):
        form, number, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _VALUE_FOLLOWS:
            yield number, info[at : at + length]
            at += length
        else:
            yield number, struct.pack("<H", length)
