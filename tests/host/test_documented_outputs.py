"""Outputs in the documents are what the commands beside them print, and what holds a claim is a test that there is."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("documented_outputs", ROOT / "docs" / "outputs.py")
outputs = sys.modules[_SPEC.name] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(outputs)
BOUNDARY = (ROOT / "docs" / "two_layers.md").read_text()


def marked():
    for path in outputs.documents():
        for block in outputs.blocks(path):
            yield pytest.param(block, id=block.place, marks=[pytest.mark.exhaustive] if block.slow else [])


@pytest.mark.parametrize("block", list(marked()))
def test_an_output_is_what_its_command_prints(block):
    why = block.lacking()
    if why:
        pytest.skip(why)
    assert outputs.difference(block, block.run()) == ""


def test_what_needs_a_trace_is_slow_or_reads_lengths_only():
    """A replay of a published trace has no place in a plain run."""
    found = [block for path in outputs.documents() for block in outputs.blocks(path)]
    assert len(found) > 20
    assert [block.place for block in found if "replay azure" in block.command and not block.slow] == []


# -- the script ---------------------------------------------------------------------------------------------------


def document(folder, *fences):
    path = folder / "page.md"
    path.write_text("\n".join(["# A page", "", *fences, "", "The end."]) + "\n")
    return path


def fence(command, output, *, mark="<!-- output -->", language="python"):
    return f"{mark}\n```{language}\n{command}\n```\n\n```text\n{output}```\n"


def test_what_has_changed_is_shown_and_rewritten(tmp_path):
    path = document(
        tmp_path,
        fence("print('one')\nprint('two  ')", "one\nTWO\n"),
        fence("print(3)", "3\n"),
        fence("echo four | tr f F", "", language="sh"),
    )
    (first, second) = outputs.check(path)
    assert first.splitlines()[2:] == ["@@ -1,2 +1,2 @@", " one", "-TWO", "+two"]
    assert second.splitlines()[2:] == ["@@ -0,0 +1 @@", "+Four"]
    assert f"{path}:3 as written" in first
    before = path.read_text()
    assert outputs.refresh(path) == [first, second]
    assert path.read_text() == before.replace("TWO", "two").replace("```text\n```", "```text\nFour\n```")
    assert outputs.check(path) == outputs.refresh(path) == []


def test_quick_leaves_out_what_is_slow(tmp_path):
    path = document(tmp_path, fence("print(1)", "2\n", mark="<!-- output: slow -->"))
    assert outputs.check(path, quick=True) == []
    assert len(outputs.check(path)) == 1


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PAGEWALK_TRACES", str(tmp_path))
    mark = "<!-- output: needs none.csv -->"
    path = document(tmp_path, fence("cat none.csv", "text\n", language="sh", mark=mark))
    assert outputs.check(path) == []
    assert f"page.md:3 left out: none.csv is not in {tmp_path}" in capsys.readouterr().err
    (tmp_path / "none.csv").write_text("text")
    assert outputs.check(path) == []
    (tmp_path / "none.csv").write_text("other")
    assert len(outputs.check(path)) == 1
    path = document(tmp_path, fence("print(1)", "2\n", mark="<!-- output: needs nvrtc 1.2 -->"))
    assert outputs.check(path) == []
    assert "NVRTC" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fences", "said"),
    [
        (fence("1 / 0", ""), "page.md:3: ZeroDivisionError"),
        (fence("exit 3", "", language="sh"), "page.md:3: status 3, not 0"),
        (fence("true", "", language="sh", mark="<!-- output: status 1 -->"), "status 0, not 1"),
        (fence("print(1)", "", mark="<!-- output: fast -->"), "'fast' is unknown"),
        (fence("print(1)", "", mark="<!-- output: needs luck -->"), "'needs luck' is unknown"),
        (fence("print(1)", "", mark="<!-- output -->\n"), "page.md:3: a mark needs"),
        (fence("print(1)", "").replace("text", "json"), "page.md:3: a mark needs"),
        (fence("import sys; sys.exit(0)", ""), "page.md:3: SystemExit: 0"),
        (fence("raise GeneratorExit", ""), "page.md:3: GeneratorExit"),
        (fence("print(1", ""), "page.md:3: SyntaxError"),
        (fence("print('\\ud800')", ""), "page.md:3: prints half a character"),
        (fence("print(1)", "", mark="<!-- output: status 3 -->"), "'status 3' is unknown"),
        (fence("true", "", language="sh", mark="<!-- output: status 12345678901 -->"), "is unknown"),
        (fence("print(1)", "", mark="<!-- output: needs -->"), "'needs' is unknown"),
        (fence("print(1)", "", mark="<!-- output: needs  -->"), "'needs ' is unknown"),
        (fence("print(1)", "", mark="<!-- output: needs nvrtc -->"), "'needs nvrtc' is unknown"),
        (fence("print(1)", "", mark="<!-- output: needs ../a.csv -->"), "'needs ../a.csv' is unknown"),
        (fence("printf '\\377'", "", language="sh"), "page.md:3: prints what is no UTF-8"),
        (fence("echo \0", "", language="sh"), "page.md:3: cannot be run"),
    ],
)
def test_what_cannot_be_kept_true_is_an_error(tmp_path, fences, said):
    with pytest.raises(outputs.OutputError, match=re.escape(said)):
        outputs.check(document(tmp_path, fences))


def test_a_block_that_leaves_python_does_not_make_all_true(tmp_path, monkeypatch, capsys):
    path = document(tmp_path, fence("raise SystemExit", ""), fence("print(1)", "2\n"))
    monkeypatch.setattr(sys, "argv", ["outputs.py", "--check", str(path)])
    assert outputs.main() == 1
    assert "page.md:3: SystemExit" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"\xff <!-- output -->"])
def test_a_document_that_cannot_be_read_is_an_error(tmp_path, monkeypatch, capsys, content):
    path = tmp_path / "page.md"
    if content:
        path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["outputs.py", "--check", str(path)])
    assert outputs.main() == 1
    assert capsys.readouterr().err.startswith(f"error: {path}: ")


def test_a_command_that_does_not_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "MOST_S", 0.05)
    with pytest.raises(outputs.OutputError, match=r"page.md:3: does not end within"):
        outputs.check(document(tmp_path, fence("sleep 10", "", language="sh")))


def test_what_is_printed_may_hold_fences_and_marks(tmp_path):
    shown = fence("print(1)", "1\n")
    path = document(tmp_path, fence(f"cat <<'END'\n{shown.replace('`', '~')}\nEND\n", "", language="sh"))
    assert len(outputs.refresh(path)) == 1
    assert outputs.check(path) == []
    path = document(tmp_path, fence("print('a', '`' * 3, '`' * 4, 'b', sep='\\n')", "old\n"), fence("print(2)", "1\n"))
    assert len(outputs.refresh(path)) == 2
    assert "`````text\na\n```\n````\nb\n`````\n" in path.read_text()
    assert path.read_text().count("```text\n2\n```\n") == 1
    assert outputs.check(path) == outputs.refresh(path) == []


def test_a_trace_may_be_named_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGEWALK_TRACES", str(tmp_path))
    (tmp_path / "one.csv").write_text("text")
    mark = "<!-- output: needs one.csv, needs one.csv -->"
    assert outputs.check(document(tmp_path, fence("cat one.csv", "text\n", language="sh", mark=mark))) == []


def test_a_status_may_be_expected(tmp_path):
    path = document(tmp_path, fence("echo no; exit 2", "no\n", language="sh", mark="<!-- output: status 2 -->"))
    assert outputs.check(path) == []


# -- the claims ---------------------------------------------------------------------------------------------------


def test_every_claim_names_a_test_that_there_is():
    sections = re.split(r"^## ", BOUNDARY.partition("## What only a GPU")[0], flags=re.M)[1:]
    claims = [section for section in sections if "### " not in section]
    claims += [
        part for section in sections if "### " in section for part in re.split(r"^### ", section, flags=re.M)[1:]
    ]
    assert len(claims) >= 18
    assert [claim.partition("\n")[0] for claim in claims if "Held by" not in claim] == []
    for path, name in re.findall(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`", BOUNDARY):
        assert f"def {name}" in (ROOT / path).read_text(), f"{path}::{name}"
    for name in re.findall(r"`((?:examples|kernels_cu|benchmarks)/[\w/.]+)`", BOUNDARY):
        assert (ROOT / name).exists(), name
    everywhere = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", BOUNDARY):
        assert f"def {name}(" in everywhere, name
