"""The outputs in the documents are those of the commands beside them.

In Markdown a comment marks a fenced command, and the fence after it holds what the command prints::

    <!-- output: slow, needs azure_conv_2023.csv -->
    ```sh
    python -m paged replay azure_conv_2023.csv --limit 1000 | grep committed
    ```

    ```text
    committed, mean ...
    ```

The words after the colon are optional. ``slow``: takes more than a moment. ``status N``: how a shell's command ends, if
not with 0. ``needs NAME``: is left out, and said to be, where NAME is missing: ``compiler``, ``nvrtc 13.5``, or a
request trace, which is looked for in the folder that PAGEWALK_TRACES names. A block of Python runs to its end.

Commands run as a reader would run them in the root of the repository with the traces in it: on the host driver, in a
folder of their own, 100 columns wide. Only standard output counts, and every character of it but for blanks at the
ends of lines and of the whole: a command whose output is a timing, an address or a handle of this run has to leave
that out (``grep``, ``cut``, ``--backing none``).

    python docs/outputs.py                     rewrite the outputs of all documents
    python docs/outputs.py --check --quick     compare them, without the slow ones; 1 and a diff where one differs
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 100
MOST_S = 300
_BLOCK = re.compile(
    r"^<!-- output(?:: (?P<words>[^\n]*))? -->\n```(?P<language>sh|python)\n(?P<command>.*?)^```\n\n"
    r"(?P<fence>(?P<ticks>`{3,})text\n(?P<output>.*?)^(?P=ticks)$)",
    re.M | re.S,
)
_MARK = re.compile(r"^<!-- output\b", re.M)
_STATUS = re.compile(r"status (\d{1,3})", re.A)
_NEEDS = re.compile(r"needs (compiler|nvrtc \d+\.\d+|[\w.-]+\.(?:csv|jsonl))", re.A)


class OutputError(Exception):
    """A block that cannot be run, or that did not end as it says."""


@dataclass(frozen=True)
class Block:
    """One command of a document and the output beside it; ``span`` is where that, with its fences, is in the text."""

    place: str
    language: str
    command: str
    output: str
    span: tuple[int, int]
    slow: bool
    status: int
    needs: tuple[str, ...]

    def lacking(self) -> str | None:
        """Why it cannot be run here; None if it can."""
        return next((why for name in self.needs if (why := _lacking(name))), None)

    def run(self) -> str:
        """What the command prints now. Raises OutputError if it ends otherwise than it says."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("examples", "tests"):
                Path(folder, name).symlink_to(ROOT / name)
            for name in self.needs:
                if _trace(name).is_file():
                    Path(folder, name).symlink_to(_trace(name).resolve())
            printed = self._python(folder) if self.language == "python" else self._shell(folder)
        if re.search("[\ud800-\udfff]", printed):
            raise OutputError(f"{self.place}: prints half a character (a surrogate), which no document can hold")
        lines = "\n".join(line.rstrip() for line in printed.splitlines()).strip("\n")
        return f"{lines}\n" if lines else ""

    def _python(self, folder: str) -> str:
        printed = io.StringIO()
        with _inside(folder), contextlib.redirect_stdout(printed):
            try:
                exec(compile(self.command, self.place, "exec"), {"__name__": "__main__"})
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit too: the blocks after it would go unchecked
                raise OutputError(f"{self.place}: {type(error).__name__}: {error}") from error
        return printed.getvalue()

    def _shell(self, folder: str) -> str:
        script = f"python() {{ '{sys.executable}' \"$@\"; }}\n{self.command}"
        with _inside(folder):
            try:
                done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=MOST_S, check=False)
            except subprocess.TimeoutExpired:
                raise OutputError(f"{self.place}: does not end within {MOST_S} s") from None
            except (OSError, ValueError) as error:  # no bash; a command with a null character
                raise OutputError(f"{self.place}: cannot be run: {error}") from error
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode != self.status or "Traceback" in said:
            raise OutputError(f"{self.place}: status {done.returncode}, not {self.status}: {said}")
        try:
            return done.stdout.decode()
        except UnicodeDecodeError as error:
            raise OutputError(f"{self.place}: prints what is no UTF-8: {error}") from None


def documents() -> list[Path]:
    """README and every document with a marked block."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if _MARK.search(_text(path))]


def blocks(path: Path) -> list[Block]:
    """The marked blocks of a document, in order. Raises OutputError for a mark without them or an unknown word."""
    text = _text(path)
    matches = list(_BLOCK.finditer(text))
    for mark in _MARK.finditer(text):
        if not any(match.start() <= mark.start() < match.end() for match in matches):  # an output may show a mark
            wrong = _place(path, text, mark.start())
            raise OutputError(
                f"{wrong}: a mark needs a ```sh or ```python fence right below it and then a ```text fence"
            )
    return [_block(path, text, match) for match in matches]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OutputError(f"{path}: is no UTF-8: {error}") from None
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}") from None


def _block(path: Path, text: str, match: re.Match[str]) -> Block:
    place, words = _place(path, text, match.start()), (match["words"] or "").split(", ")
    slow, status, needs = False, 0, []
    for word in filter(None, words):
        if word == "slow":
            slow = True
        elif (found := _STATUS.fullmatch(word)) and match["language"] == "sh":
            status = int(found[1])
        elif found := _NEEDS.fullmatch(word):
            needs.append(found[1])
        else:
            known = "slow, status N of a ```sh fence, or needs with compiler, nvrtc N.N or a trace (NAME.csv, .jsonl)"
            raise OutputError(f"{place}: {word!r} is unknown; use {known}")
    command, output = match["command"], match["output"]
    return Block(
        place, match["language"], command, output, match.span("fence"), slow, status, tuple(dict.fromkeys(needs))
    )


def _fenced(output: str) -> str:
    """The fence of an output, longer than any run of backticks in it."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", output)), default=0))
    return f"{ticks}text\n{output}{ticks}"


def _place(path: Path, text: str, at: int) -> str:
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{name}:{text.count(chr(10), 0, at) + 1}"


def _trace(name: str) -> Path:
    """Where a request trace lies; the repository ships none."""
    return Path(os.environ.get("PAGEWALK_TRACES", ROOT.parent / "shared" / "traces"), name)


def _lacking(name: str) -> str | None:
    kind, _, version = name.partition(" ")
    if kind == "compiler":
        from kernels_cu import CompilerMissingError
        from kernels_cu.compiler import find_compiler

        try:
            find_compiler()
        except CompilerMissingError as error:
            return str(error)
        return None
    if kind == "nvrtc":
        try:
            here = importlib.metadata.version("nvidia-cuda-nvrtc")
        except importlib.metadata.PackageNotFoundError:
            return "no NVRTC: pip install 'pagewalk[test]'"
        return None if here.startswith(f"{version}.") else f"the output is NVRTC {version}'s; here is {here}"
    return None if _trace(name).is_file() else f"{name} is not in {_trace(name).parent}; PAGEWALK_TRACES says where"


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    """Work in ``folder`` on the host driver, with this repository's packages."""
    before, where = dict(os.environ), Path.cwd()
    packages = os.pathsep.join(filter(None, [str(ROOT), before.get("PYTHONPATH")]))
    os.environ.update(VMM_DRIVER="host", COLUMNS=str(COLUMNS), MPLBACKEND="Agg", PYTHONPATH=packages)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(before)


def difference(block: Block, now: str) -> str:
    """What of the output is no longer true, as a diff; nothing if all is."""
    lines = difflib.unified_diff(
        block.output.splitlines(), now.splitlines(), f"{block.place} as written", "as printed now", lineterm=""
    )
    return "\n".join(lines)


def refresh(path: Path, *, quick: bool = False) -> list[str]:
    """Rewrite the outputs of a document; the diffs of what has changed. What cannot be run here stays, and is told."""
    text, changed = _text(path), []
    for block in reversed(blocks(path)):  # from the end: the places of those before stay
        now = _now(block, quick)
        if now is not None and now != block.output:
            changed.append(difference(block, now))
            text = text[: block.span[0]] + _fenced(now) + text[block.span[1] :]
    if changed:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    return changed[::-1]


def check(path: Path, *, quick: bool = False) -> list[str]:
    """The diffs between the outputs of a document and what is printed now."""
    pairs = [(block, _now(block, quick)) for block in blocks(path)]
    return [difference(block, now) for block, now in pairs if now is not None and now != block.output]


def _now(block: Block, quick: bool) -> str | None:
    if block.slow and quick:
        return None
    why = block.lacking()
    if why:
        print(f"{block.place} left out: {why}", file=sys.stderr)
        return None
    return block.run()


def main() -> int:
    """The command line; 1 where an output differs (--check) or a command fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="compare and change nothing; 1 and a diff if one differs")
    parser.add_argument("--quick", action="store_true", help="leave out what is slow")
    parser.add_argument("files", nargs="*", type=Path, help="Markdown files; by default all that have marked blocks")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    todo = check if given.check else refresh
    try:
        found = [
            diff
            for path in [path.resolve() for path in given.files] or documents()
            for diff in todo(path, quick=given.quick)
        ]
    except OutputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(found), end="\n" if found else "")
    return int(given.check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
