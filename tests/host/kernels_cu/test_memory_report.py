"""report --memory: every figure of it follows from the sizes of the pool that the report describes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kernels_cu.__main__ import main
from kernels_cu.memory_findings import findings
from kernels_cu.memory_report import CASES, MemoryRow, memory_report

PIECE = 2 * 8 * 16 * 128 * 2
"""Bytes of a block of 16 tokens in one layer: K and V of 8 heads of 128 elements of bfloat16."""
PAGES = {
    ("block", "in order"): 32,  # a block of 32 layers is a page of 2 MiB
    ("block", "shuffled"): 32,
    ("layer", "in order"): 32 * PIECE // (2 << 20),
    ("layer", "shuffled"): 256 * PIECE // (2 << 20),  # 32 blocks anywhere in the whole plane
}


@pytest.fixture(scope="module")
def rows(compiler):  # noqa: ARG001 - skips without a compiler
    found = [row for rows in memory_report("bfloat16", 128, list(CASES)) for row in rows]
    return {(row.kernel, row.layout, row.order, row.place, row.write): row for row in found}


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", ["hnd", "nhd"])
@pytest.mark.parametrize("kernel", ["append_kv", "gather_kv", "paged_decode", "paged_prefill"])
def test_rows_of_a_token_are_read_and_written_as_whole_sectors(rows, kernel, layout):
    for order, place in PAGES:
        row = rows[kernel, layout, order, place, kernel == "append_kv"]
        assert (row.sectors_per_request, row.used, row.pages_per_request) == (32 * 16 / 32, 1, 1)
        assert row.requests * 32 * 16 == 32 * PIECE


@pytest.mark.parametrize("kernel", CASES)
def test_the_order_of_the_pool_says_how_many_pages_a_layer_has(rows, kernel):
    for (order, place), pages in PAGES.items():
        assert rows[kernel, "hnd", order, place, kernel == "append_kv"].pages == pages


def test_vllm_scatters_the_v_of_a_token(rows):
    """One element of V in each sector: of 9 requests of an append, 8 are for 2 bytes a lane and one for 16."""
    row = rows["append_kv", "vllm", "layer", "in order", True]
    assert row.sectors_per_request == 32
    assert row.used == pytest.approx((8 * 2 + 16) / 9 / 32)


def test_a_copy_reads_and_writes_whole_sectors(rows):
    for write in (False, True):
        row = rows["copy_blocks", "hnd", "block", "shuffled", write]
        assert (row.sectors_per_request, row.used, row.requests * 512) == (16, 1, 16 * PIECE)


def test_nobody_waits_for_a_bank_of_shared_memory(rows):
    conflicts = {kernel: row.conflicts for (kernel, *_), row in rows.items()}
    free = dict.fromkeys(("paged_attention_simple", "paged_decode", "paged_prefill"), 1)
    wanted = {**free, **dict.fromkeys(("append_kv", "gather_kv", "copy_blocks"))}
    assert {kernel: conflicts[kernel] for kernel in wanted} == wanted


def test_what_a_kernel_is_not_made_for_is_left_out(rows):
    assert not any(key[:2] == ("paged_decode", "vllm") for key in rows)
    assert not any(key[0] == "copy_blocks" and key[1] != "hnd" for key in rows)
    assert [rows for rows in memory_report("float32", 64, ["paged_decode"]) if rows] == []


@pytest.mark.usefixtures("rows")
def test_the_command():
    def run(*arguments):
        return CliRunner().invoke(main, ["report", "--memory", *arguments], env={"COLUMNS": "80"})

    done = run("--kernel", "paged_decode", "--kernel", "decode_merge")
    assert done.exit_code == 0
    legend, table, told = done.stdout.split("\n\n")
    above, below, first = (line.split() for line in table.splitlines()[:3])
    assert above == ["KV", "sectors", "bytes", "pages", "bank"]
    assert below == ["kernel", "layout", "order", "blocks", "each", "used", "in", "all", "turns"]
    for name in ("order", "KV blocks", "sectors each", "bytes used", "pages in all", "bank turns"):
        assert f"\n  {name} " in legend
    assert first == [
        "paged_decode",
        "hnd",
        "block",
        "in",
        "order",
        "load",
        "16.0",
        "100%",
        "32",
        "1.00",
    ]
    assert " ".join(told.split()) == (
        "Every byte fetched is used. Pages that one layer's KV blocks lie on: 32 in order block, 1 to 8 in order "
        "layer. Each needs a translation of its own. No kernel waits for a bank of shared memory."
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
    found = json.loads(run("--json", "--kernel", "paged_decode").stdout)
    assert len(found["memory"]) == 8
    assert found["memory"][0]["sectors_per_request"] == 16


def _row(kernel="paged_decode", *, layout="hnd", order="block", write=False, used=1.0, pages=1, each=1.0, turns=None):
    return MemoryRow(kernel, layout, order, "in order", write, 9, 16.0, used, each, pages, turns)


def test_the_conclusion_names_what_is_not_as_it_should_be():
    rows = [
        _row(turns=1.0, pages=4),
        _row("append_kv", layout="vllm", write=True, used=0.11, pages=6),
        _row("append_kv", layout="vllm", order="layer", write=True, used=0.11, each=1.5, pages=2),
        _row("paged_prefill", order="layer", turns=1.25, pages=2),
        _row("paged_attention_simple", pages=5, used=0.67),
        _row("paged_attention_simple", pages=5, layout="vllm", used=0.12),
    ]
    assert list(findings(rows)) == [
        "Not every byte fetched is used: by append_kv 11% in layout vllm; by paged_attention_simple 67% in layout hnd, "
        "12% in layout vllm.",
        "Pages that one layer's KV blocks lie on: 4 to 6 in order block, 2 in order layer. Each needs a translation of "
        "its own.",
        "A request of append_kv touches up to 1.50 pages (mean of a launch).",
        "More turns of the banks than needed: paged_prefill (1.25).",
    ]


def test_the_help_of_the_group_is_whole():
    told = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).stdout
    assert "report  What each kernel needs of a GPU, and of memory." in told
    assert "..." not in told.partition("Commands:")[2]
