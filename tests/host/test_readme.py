"""Every command of the README runs, offline, from another folder; its Python too; and the files that it names exist.

A command whose output stands in a document is run, and compared, by test_documented_outputs.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
UNMARKED = re.sub(r"^<!-- output\b[^\n]*\n```.*?^```", "", README, flags=re.M | re.S)
FENCED = [line for block in re.findall(r"^```sh\n(.*?)^```", UNMARKED, re.M | re.S) for line in block.splitlines()]
INLINE = re.findall(r"`(python -m (?:vmm|paged|kernels_cu) [^`]+|pagewalk [^`]+)`", README)
MARKED = re.compile(r"^<!-- output(?:: slow)? -->\n```sh\n([^|\n]*?)(?: \|[^\n]*)?\n```", re.M)
SHOWN = {
    command
    for path in (ROOT / "README.md", ROOT / "docs" / "commands.md")
    for command in MARKED.findall(path.read_text())
}
COMMANDS = sorted({command for command in [*FENCED, *INLINE] if "pip install" not in command} - SHOWN)


LONG = {"python -m kernels_cu report", "python -m paged replay --plot growth.png"}
"""Ten seconds and more each."""


def marked(command):
    return pytest.param(command, marks=pytest.mark.exhaustive) if command in LONG else command


def run(command, cwd):
    """Run a command line as a reader would, with this interpreter for its python."""
    line = re.sub(r"^python\b", sys.executable, command)
    return subprocess.run(line, shell=True, cwd=cwd, capture_output=True, text=True, timeout=200)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def test_there_are_commands():
    assert len(COMMANDS) >= 5
    assert set(COMMANDS) >= LONG
    assert {"python -m paged replay", "python -m vmm settle"} <= SHOWN
    assert sum("pip install" in command for command in FENCED) == 2


@pytest.mark.parametrize("command", [marked(command) for command in COMMANDS])
def test_a_command_of_the_readme_runs(command, folder):
    done = run(command, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr


def test_the_python_of_the_readme_runs(folder):
    code = "".join(re.findall(r"^```python\n(.*?)^```", UNMARKED, re.M | re.S))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "(9, 5)" in done.stdout or "block=9, slot=5" in done.stdout


def test_nothing_is_left_to_fill_in():
    assert re.findall(r"@\w+@|TO" + "DO", README) == []


def test_every_figure_of_the_readme_is_in_the_page_of_what_was_measured():
    number = r"\d(?:[\d,.]*\d)?(?:e-\d+)?"
    page = set(re.findall(number, (ROOT / "docs" / "measured.md").read_text()))
    rows = re.findall(r"^\| .* \| (.*\d.*) \|$", README.partition("## What was measured")[2], re.M)
    assert len(rows) > 5
    assert [row for row in rows if not set(re.findall(number, row)) <= page] == []


def test_every_file_that_the_readme_names_is_there():
    named = set(re.findall(r"`((?:vmm|paged|kernels_cu|tests)/[\w/]*(?:\.py)?)`", README))
    named |= set(re.findall(r"\]\(((?:examples|docs)/[^)]+)\)", README))
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
