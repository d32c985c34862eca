"""Standard streams that were closed before a command began (>&-): Python has None for them, and nothing breaks."""

import sys

import pytest

from paged.commands.group import main as paged_main
from vmm.commands import run as vmm_run

PAGED = [
    ["replay", "--limit", "3", "--processes", "1", "--policy", "paged-vmm"],
    ["replay", "--limit", "3", "--processes", "1", "--policy", "paged-vmm", "--plot", "x.png"],
    ["plan", "--model", "llama-3-8b"],
    ["picture", "--sequences", "2"],
    ["walk"],
    ["--help"],
]
VMM = [["info"], ["demo"], pytest.param(["settle"], marks=pytest.mark.exhaustive)]


@pytest.fixture(autouse=True)
def in_a_folder_on_the_host_driver(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMM_DRIVER", "host")


def paged_status(arguments):
    with pytest.raises(SystemExit) as left:
        paged_main(arguments)
    return left.value.code


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize("arguments", PAGED, ids=" ".join)
def test_commands_of_paged_end_well(monkeypatch, capsys, arguments, closed):
    monkeypatch.setattr(sys, closed, None)
    assert paged_status(arguments) == 0
    monkeypatch.undo()
    printed = capsys.readouterr()
    assert (printed.err, bool(printed.out)) == ("", closed == "stderr")


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize("arguments", VMM, ids=" ".join)
def test_commands_of_vmm_end_well(monkeypatch, arguments, closed):
    monkeypatch.setattr(sys, closed, None)
    assert vmm_run(arguments) == 0


def test_what_the_table_of_settle_goes_to_may_be_closed(monkeypatch):
    monkeypatch.setattr("vmm.commands.settle._ask", lambda *_given: [])
    monkeypatch.setattr(sys, "stdout", None)
    assert vmm_run(["settle", "--driver", "host"]) == 0


def test_json_on_standard_output_is_alone_there_when_standard_error_is_closed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    assert paged_status(["plan", "--model", "llama-3-8b", "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("{\n")
    assert printed.endswith("}\n")


def test_a_log_on_a_closed_standard_input_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert paged_status(["doctor", "-"]) == 2
    assert capsys.readouterr().err == "error: -: standard input is closed; give the log of a vLLM server\n"
