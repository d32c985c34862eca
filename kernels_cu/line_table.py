"""Which line of which source a place in compiled code comes from: the line number program of DWARF, versions 2 to 4.

The program is a compressed table: it runs a small machine whose registers are an address, a file and a line, and whose
opcodes move them on and write rows. Source: the DWARF 4 standard, section 6.2.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .elf import sections

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


@dataclass(frozen=True, order=True)
class Row:
    """Code from ``address`` on comes from ``line`` of ``file``; line 0 is the end of a stretch of code."""

    address: int
    line: int
    file: str


class LineTable:
    """The rows of one ELF file that was compiled with -g1 -gdwarf-4."""

    def __init__(self, image: bytes) -> None:
        program = dict(sections(image)).get(".debug_line", b"")
        self._rows = sorted(_rows(program))

    def line_of(self, address: int) -> str:
        """``file:line`` of the instruction at an address, "?" if the table has none."""
        at = bisect.bisect_right(self._rows, Row(address, 1 << 62, "")) - 1
        row = self._rows[at] if at >= 0 else Row(0, 0, "")
        return f"{row.file}:{row.line}" if row.line else "?"


def _rows(section: bytes) -> Iterator[Row]:
    at = 0
    while at < len(section):
        (length,) = struct.unpack_from("<I", section, at)
        yield from _Program(section[at + 4 : at + 4 + length]).rows()
        at += 4 + length


class _Program:
    """One unit: its header, and the machine that runs it."""

    def __init__(self, unit: bytes) -> None:
        self._unit, self._at = unit, 0
        self._address, self._file, self._line = 0, 1, 1
        self._version = self._number("<H")
        if not 2 <= self._version <= 4:
            self._at = len(unit)  # another layout: no rows
            return
        header_length = self._number("<I")
        self._start = self._at + header_length
        self._step = self._number("<B")
        if self._version == 4:
            self._number("<B")  # operations per instruction of a VLIW machine
        self._number("<B")
        self._line_base, self._line_range, self._opcode_base = (
            self._number("<b"),
            self._number("<B"),
            self._number("<B"),
        )
        self._operands = [self._number("<B") for _ in range(self._opcode_base - 1)]
        while self._string():  # folders
            pass
        self._files = ["?"]
        while name := self._string():
            self._files.append(name)
            self._unsigned(), self._unsigned(), self._unsigned()
        self._at = self._start

    def rows(self) -> Iterator[Row]:
        self._reset()
        while self._at < len(self._unit):
            opcode = self._number("<B")
            if opcode >= self._opcode_base:
                moved = opcode - self._opcode_base
                self._address += moved // self._line_range * self._step
                self._line += self._line_base + moved % self._line_range
                yield self._row()
            elif opcode == 0:
                yield from self._extended()
            elif opcode == _COPY:
                yield self._row()
            else:
                self._standard(opcode)

    def _standard(self, opcode: int) -> None:
        if opcode == _ADVANCE_PC:
            self._address += self._unsigned() * self._step
        elif opcode == _ADVANCE_LINE:
            self._line += self._signed()
        elif opcode == _SET_FILE:
            self._file = self._unsigned()
        elif opcode == _CONST_ADD_PC:
            self._address += (255 - self._opcode_base) // self._line_range * self._step
        elif opcode == _FIXED_ADVANCE_PC:
            self._address += self._number("<H")
        else:
            for _ in range(self._operands[opcode - 1]):
                self._unsigned()

    def _extended(self) -> Iterator[Row]:
        length = self._unsigned()
        end = self._at + length
        opcode = self._number("<B")
        if opcode == _END_SEQUENCE:
            yield Row(self._address, 0, "")
            self._reset()
        elif opcode == _SET_ADDRESS:
            self._address = self._number("<Q")
        self._at = end

    def _reset(self) -> None:
        self._address, self._file, self._line = 0, 1, 1

    def _row(self) -> Row:
        name = self._files[self._file] if self._file < len(self._files) else "?"
        return Row(self._address, self._line, name.rpartition("/")[2])

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._unit, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def _string(self) -> str:
        end = self._unit.index(b"\0", self._at)
        text = self._unit[self._at : end].decode(errors="replace")
        self._at = end + 1
        return text

    def _unsigned(self) -> int:
        """Seven bits a byte, the lowest first; the upper bit says that more follow (LEB128)."""
        value = shift = 0
        while True:
            byte = self._number("<B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _signed(self) -> int:
        before = self._at
        value = self._unsigned()
        bits = 7 * (self._at - before)
        return value - (1 << bits) if value >> (bits - 1) else value
