"""The site: every public name is in it, its Python runs as it stands there, and it builds in silence and offline."""

import ast
import contextlib
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path
from types import ModuleType

import pytest

import paged
import vmm

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# What is marked with output is run, and compared, by test_documented_outputs.
FENCE = re.compile(r"(<!-- (?:not run: |output)[^\n]*-->\n)?^```(\S+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.M | re.S)
PLACES = "docs/api/*.md"


def documented():
    """What the reference pages ask the generator for: names, and modules with all that is in them."""
    for name, options in ASKED:
        yield name
        if isinstance(named(name), ModuleType) and "members: false" not in options:
            yield from (f"{name}.{each}" for each in vars(named(name)))


ASKED = [found for page in PAGES for found in re.findall(r"^::: ([\w.]+)\n((?:    .*\n)*)", page.read_text(), re.M)]


def named(name):
    """What a dotted name stands for. A function hides the module of its name, as in ``import``."""
    package, *parts = name.split(".")
    found = importlib.import_module(package)
    for done, part in enumerate(parts, start=1):
        for depth in (done, done - 1):  # a module that nobody has imported yet, or one that is hidden
            if not hasattr(found, part):
                with contextlib.suppress(TypeError, ModuleNotFoundError):
                    hiding = importlib.import_module(".".join([package, *parts[:depth]]))
                    found = hiding if depth < done else found
        found = getattr(found, part)
    return found


def test_every_public_name_is_in_a_reference_page(public_names):
    assert len(public_names) > 100
    same = {id(named(name)) for name, _ in ASKED}  # a class that two packages give is in the page of one
    missing = sorted(name for name in public_names - set(documented()) if id(named(name)) not in same)
    assert missing == [], f"add a line '::: NAME' for each to the page of its package in {PLACES}"


def test_every_name_of_a_reference_page_is_there_once():
    asked = [name for name, _ in ASKED]
    assert [name for name in asked if named(name) is None] == []
    assert sorted(set(asked)) == sorted(asked)


def test_every_public_function_class_and_module_says_what_it_is(public_names):
    """Data may have its text below it, where only the generator sees it."""
    silent = []
    for name in public_names:
        found = named(name)
        if callable(found) and hasattr(found, "__module__") and found.__module__.split(".")[0] in {"vmm", "paged"}:
            silent += [name] if not (found.__doc__ or "").strip() else []
            members = vars(found).items() if isinstance(found, type) else ()
            silent += [f"{name}.{key}" for key, member in members if key[0] != "_" and is_silent(member)]
    assert silent == []


def is_silent(member):
    function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
    return hasattr(function, "__code__") and not (function.__doc__ or "").strip()


def test_an_error_that_a_public_call_raises_itself_is_in_its_text(public_names):
    silent = [
        (name, error)
        for name in public_names
        for name, function, text in callables(name, named(name))
        for error in raised_by(function)
        if error not in text
    ]
    assert silent == []


def callables(name, found):
    """The public functions of a name, each with its text; a class's text speaks for its construction too."""
    if inspect.isfunction(found):
        yield name, found, found.__doc__ or ""
    for key, member in vars(found).items() if isinstance(found, type) else ():
        function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
        if inspect.isfunction(function) and (key[0] != "_" or key in {"__init__", "__post_init__"}):
            yield f"{name}.{key}", function, (function.__doc__ or "") + (found.__doc__ or "")


def raised_by(function):
    """The classes of errors that a function's own lines raise, but for checks of our own books."""
    if function.__module__ == "typing":  # a Protocol's
        return set()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # made by dataclass, which has no source
        return set()
    calls = [node.exc.func for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name) and call.id[0].isupper()}
    return names - {"AssertionError"}


WITH_PYTHON = [page for page in PAGES if "\n```python\n" in page.read_text()]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, tmp_path, request):
    """All of its blocks as one program, beside the files that the page shows."""
    blocks = FENCE.findall(page.read_text())
    for _, _, title, text in blocks:
        if title:
            (tmp_path / title).write_text(text)
    if "\n```c++" in page.read_text():
        request.getfixturevalue("compiler")
    code = "".join(text for unrun, language, _, text in blocks if language == "python" and not unrun)
    done = run([sys.executable, "-W", "error", "-c", code], tmp_path)
    assert (done.returncode, done.stderr.replace(compiling(done.stderr), "")) == (0, "")


def compiling(text):
    """The lines that tell of a first compilation."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("compiling"))


COMMANDS = sorted(
    {
        line
        for page in PAGES
        for unrun, language, _, text in FENCE.findall(page.read_text())
        if language == "sh" and not unrun
        for line in text.splitlines()
        if "pip install" not in line and line.startswith(("python ", "pagewalk "))
    }
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_page_runs(command, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = run(re.sub(r"^python\b", sys.executable, command), tmp_path, shell=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr


def test_there_are_commands_and_programs():
    assert len(COMMANDS) >= 5
    assert len(WITH_PYTHON) >= 4


@pytest.mark.exhaustive
def test_the_site_builds_without_a_warning_has_every_public_name_and_fetches_nothing(public_names, sweeping, tmp_path):
    """One test, so that it is built once, and strictly: --quiet lets warnings pass."""
    pytest.importorskip("mkdocs", reason="the site needs the docs extra: python -m pip install -e '.[docs]'")
    done = run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)], ROOT)
    assert (done.returncode, re.findall(r"^(?:WARNING|ERROR).*", done.stderr, re.M)) == (0, []), done.stderr

    _, _, _, _, packed = (tmp_path / "objects.inv").read_bytes().split(b"\n", 4)
    there = {line.split(" ", 1)[0] for line in zlib.decompress(packed).decode().splitlines()}
    assert sorted(public_names - there) == []
    split = {"vmm": (vmm.GrowableRange, vmm.ChunkSupply, vmm.StatisticsHeap), "paged": (paged.KVPool,)}
    of_bases = {f"{package}.{name}" for package in split for name in sweeping.public_methods(*split[package])}
    assert sorted(name for name in of_bases - there if not name.endswith("__init__")) == []

    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 10
    fetched = r"<(?:script|img|iframe|source)[^>]* src=\"(?:https?:)?//[^\"]*|<link[^>]* href=\"(?:https?:)?//[^\"]*"
    assert [(page.name, found) for page in pages for found in re.findall(fetched, page.read_text())] == []


def run(command, cwd, **options):
    environment = {**os.environ, "MPLBACKEND": "Agg", "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False, **options
    )
