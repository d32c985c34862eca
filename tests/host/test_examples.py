"""Every example runs as a process, checks its own result, shows what it says, and leaves no error output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9]*.py"))
NEEDS_COMPILER = {
    "04_paged_attention",
    "08_spans_and_block_tables",
    "11_your_own_kernel",
    "12_two_processes",
    "15_serving_loop",
    "16_windowed_layers",
}
SHOWN = {
    "01_reserve_map_unmap": [r"cuMemCreate, 4 times +128 MiB +8 MiB", r"cuMemRelease, 4 times +128 MiB +0 B"],
    "02_grow_in_place": [r"160 MiB +0x\w+ +16 GiB +160 MiB +96 MiB +160 MiB", r"stop=33554432"],
    "03_two_layers": [r"B: 21 tokens in \[3, 4, 5, 6, 7, 8\] +\| 0x\w+ -> ", r"D: 11 tokens in \[3, 8, 11\]"],
    "04_paged_attention": [r"bfloat16  8 query heads a KV head: error [\d.]+e-04", r"found every token"],
    "05_physical_vs_virtual": [r"paged-vmm +[\d.]+ GiB( +[\d.]+ MiB){2} +1\.0\d +0\n", r"agrees with every figure"],
    "06_two_addresses": [r"reader at 0x\w+: handle 0x\w+, READ\n", r": the same\n", r"range 'kv', chunk 0: write of"],
    "07_prefix_sharing": [
        r"two whole blocks shared \(\*\)\n  first +52 tokens   blocks 0\*  1\*  2  3\n  second +60 tokens   blocks 0\*",
        r"is held by 3: tokens 16 to 31 of row 0",
    ],
    "08_spans_and_block_tables": [
        r"a span a layer, K and V +16 MiB +\d+ +\d",
        r"block tables +[\d.]+e-04 +371,712 +1\n",
    ],
    "09_two_models": [r"4\..*\n  chat \|#{8} +\|.*\n  code \|#{24} +\|", r"112 of its 128 tokens are still known"],
    "10_sleep_and_wake": [r"kv: +2 MiB given up, 2 MiB free again", r"their sum is 3,000,000"],
    "11_your_own_kernel": [r"1,048,576 +0x\w+ +524 +837,799\n", r"range 'steps', chunk 1: write of"],
    "12_two_processes": [
        r"sends \d+ bytes of JSON, and 6 descriptors\n",
        r"prefill: closes its pool\ndecode:  6 tokens, the largest error against float64 is [\d.]+e-04",
    ],
    "13_two_devices": [r"device 0 READWRITE, device 1 READ\n", r"now device 1 has NONE"],
    "14_work_in_flight": [r"2 MiB came free", r"range 'kv', chunk 2"],
    "15_serving_loop": [r"277 steps, \d+ swaps", r"float64 in any step: [\d.]+e-04"],
    "16_windowed_layers": [
        r"1,536 +1\.50 MiB +1\.88 MiB +3\.38 MiB +9 MiB\n",
        r"first 1,152 tokens",
        r"float64: [\d.]+e-04",
    ],
    "17_general_allocator": [r"Heap\(16 blocks, 32 MiB in 32 MiB\)\n +(\.#){16}\.", r"has 32 MiB at 0x"],
}
"""What a reader is to see, by example: expressions that its output holds on the host driver."""


def stem(path):
    return path.stem


def run(path, folder, *options, **environment):
    command = [sys.executable, *options, str(path)]
    environment = {**os.environ, "MPLBACKEND": "Agg", "VMM_DRIVER": "host", **environment}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("path", EXAMPLES, ids=stem)
def test_an_example_runs_and_shows_what_it_says(path, tmp_path, request):
    if path.stem in NEEDS_COMPILER:
        request.getfixturevalue("compiler")
    done = run(path, tmp_path, "-W", "error")
    assert (done.returncode, done.stderr) == (0, "")
    assert "You will see" in done.stdout
    missing = [shown for shown in SHOWN[path.stem] if not re.search(shown, done.stdout)]
    assert not missing, done.stdout


@pytest.mark.parametrize("name", sorted(NEEDS_COMPILER))
def test_without_a_compiler_an_example_says_in_one_line_what_to_install(name, tmp_path):
    done = run(FOLDER / f"{name}.py", tmp_path, CXX="no-such-compiler")
    assert done.returncode == 1
    *told, last = done.stderr.splitlines()
    assert last.startswith("error: CXX names 'no-such-compiler'")
    assert last.endswith("python -m pip install 'pagewalk[host]'")
    assert not told


@pytest.mark.parametrize("path", EXAMPLES, ids=stem)
def test_an_example_is_short_and_says_what_the_reader_will_see(path):
    text = path.read_text()
    assert 40 <= len(text.splitlines()) <= 140
    told = text.split('"""')[1]
    assert "ou will see" in told
    assert max(map(len, told.splitlines())) <= 84, "it is printed, and a terminal has 80 columns or few more"


def test_examples_are_numbered_without_a_gap_and_the_first_five_keep_their_names():
    assert [path.stem[:3] for path in EXAMPLES] == [f"{number:02}_" for number in range(1, len(EXAMPLES) + 1)]
    assert [path.stem for path in EXAMPLES[:5]] == [
        "01_reserve_map_unmap",
        "02_grow_in_place",
        "03_two_layers",
        "04_paged_attention",
        "05_physical_vs_virtual",
    ]


def indexed(index):
    """The numbered examples of an index: (name, what it shows, what stands after that)."""
    row = r"^\| \[(\d\d_\w+)\.py\]\((?:examples/)?\1\.py\) \| (.+?)((?: \(needs|  *\|).*)$"
    return re.findall(row, (FOLDER.parent / index).read_text(), re.M)


@pytest.mark.parametrize("index", ["examples/README.md", "README.md"])
def test_an_index_names_every_example_in_order_and_says_which_need_a_compiler(index):
    rows = indexed(index)
    assert [name for name, _shows, _needs in rows] == [path.stem for path in EXAMPLES]
    assert {name for name, _shows, needs in rows if "C++ compiler" in needs} == NEEDS_COMPILER


def test_both_indexes_say_the_same_of_an_example():
    first, second = ([row[:2] for row in indexed(index)] for index in ("examples/README.md", "README.md"))
    assert first == second


def test_continuous_integration_runs_without_a_compiler_what_needs_none():
    (numbers,) = re.findall(r"for example in ([\d ]+);", (FOLDER.parent / ".ci" / "run").read_text())
    assert numbers.split() == [path.stem[:2] for path in EXAMPLES if path.stem not in NEEDS_COMPILER]
