"""SASS, the machine code of a GPU: what nvdisasm makes of a cubin, as data."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import CompileError, CompilerMissingError

REMEDY = "run: python -m pip install 'pagewalk[test]'"
_FUNCTION = re.compile(r"\.text\.(\w+):")
_LABEL = re.compile(r"(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\d+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")


@dataclass(frozen=True)
class Instruction:
    """One line of a listing. ``opcode`` with its modifiers, "LDG.E.128"; a label has none, and its name as operands."""

    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]


class Code:
    """The instructions of a kernel, or of a part of it, with the labels between them."""

    def __init__(self, lines: Sequence[Instruction]) -> None:
        self.lines = tuple(lines)

    @property
    def instructions(self) -> list[Instruction]:
        """Without the labels."""
        return [line for line in self.lines if line.opcode]

    def count(self, pattern: str) -> int:
        """Instructions whose whole opcode matches a regular expression."""
        return sum(1 for line in self.instructions if re.fullmatch(pattern, line.opcode))

    def opcodes(self) -> Counter[str]:
        """How often each opcode with its modifiers stands there."""
        return Counter(line.opcode for line in self.instructions)

    def loops(self) -> Iterator[Code]:
        """What lies between each branch backward and its target: loops, shorter ones within longer ones too."""
        labels = {line.operands: i for i, line in enumerate(self.lines) if not line.opcode}
        for i, line in enumerate(self.lines):
            target = re.search(r"\.L_x_\d+", line.operands) if line.name == "BRA" else None
            if target and labels.get(target[0], i) < i:
                yield Code(self.lines[labels[target[0]] : i + 1])


@cache
def disassemble(cubin: bytes, kernel: str) -> Code:
    """The code of ``kernel``, once a process for each cubin.

    Raises CompilerMissingError without nvdisasm, CompileError if the cubin has no such kernel.
    """
    tool = find_nvdisasm()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"nvdisasm refused the cubin of {kernel}: {done.stderr.strip().partition(chr(10))[0]}")
    functions = dict(_functions(done.stdout))
    if kernel not in functions:
        raise CompileError(f"the cubin has no kernel {kernel}; it has {', '.join(functions) or 'none'}")
    return Code(functions[kernel])


def _functions(listing: str) -> Iterator[tuple[str, list[Instruction]]]:
    name, lines = "", list[Instruction]()
    for line in listing.splitlines():
        text = line.strip()
        if found := _FUNCTION.fullmatch(text):
            if name:
                yield name, lines
            name, lines = found[1], []
        elif found := _LABEL.fullmatch(text):
            lines.append(Instruction("", found[1]))
        elif found := _INSTRUCTION.search(text):
            lines.append(Instruction(found[2], found[3]))
    if name:
        yield name, lines


@cache
def find_nvdisasm() -> str:
    """The tool's path: its wheel puts it beside NVIDIA's other tools, where no PATH leads.

    Raises CompilerMissingError if it is not there.
    """
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package else []:
        for path in sorted(Path(folder).glob("*/bin/nvdisasm")):
            return str(path)
    raise CompilerMissingError(f"nvdisasm was not found; {REMEDY}")
