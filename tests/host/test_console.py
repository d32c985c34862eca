"""The console command pagewalk: the commands of python -m paged under their own name, and a shell's completion."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from paged.commands.group import main as commands

AS_INSTALLED = "import sys; sys.argv[0] = '/usr/bin/pagewalk'; from paged.__main__ import main; main()"


def pagewalk(*arguments, **variables):
    command = [sys.executable, "-c", AS_INSTALLED, *arguments]
    done = subprocess.run(
        command, env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout


def complete(typed):
    """What a shell is offered for the last word of what was typed."""
    words = str(len(typed.split(" ")) - 1)
    given = pagewalk(_PAGEWALK_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=words)
    return [line.partition(",")[2] for line in given.splitlines()]


def test_the_console_command_is_the_command_line_of_paged():
    (found,) = [each for each in entry_points(group="console_scripts") if each.name == "pagewalk"]
    assert found.value == "paged.__main__:main"
    assert pagewalk("--help").startswith("Usage: pagewalk ")


def test_a_shell_completes_every_command():
    assert complete("pagewalk ") == commands.list_commands(None)


def test_a_shell_completes_options_and_what_may_follow_them():
    assert "--table" in complete("pagewalk walk --t")
    assert complete("pagewalk replay --policy paged-") == ["paged-prealloc", "paged-vmm"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("replay --order ", ["block", "layer"]),
        ("replay --preemption s", ["swap"]),
        ("replay --model llama-3-8", ["llama-3-8b", "llama-3-8"]),  # or a file that begins so
        ("walk --layout n", ["nhd"]),
        ("picture --kv-cache-dtype fl", ["float16", "float32"]),
        ("plan llama-2-1", ["llama-2-13b", "llama-2-1"]),
        ("export run.pagewalk --to c", ["chrome", "csv"]),
    ],
)
def test_a_shell_completes_values(typed, offered):
    assert complete(f"pagewalk {typed}") == offered


@pytest.mark.exhaustive
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell):
    if shell == "bash" and not shutil.which("bash"):
        pytest.skip("needs bash, whose version is asked")
    assert "_PAGEWALK_COMPLETE" in pagewalk(_PAGEWALK_COMPLETE=f"{shell}_source")
