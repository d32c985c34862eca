"""A table of figures at any width: nothing that must not break does, and nothing is left out."""

import io

import pytest
from rich.console import Console

import vmm
from paged.figure_table import FigureTable
from vmm.commands import terminal

CELLS = ["114.38 MiB", "28,842", "paged", "0.60%"]


def shown(made, width):
    out = io.StringIO()
    Console(file=out, width=width).print(made)
    return out.getvalue()


def made():
    table = FigureTable("layout", "tail waste", "calls to fill", "paged-prealloc", "waste", texts=("bound by",))
    table.add_row("chosen", *CELLS, "the positions of the model, which are few")
    table.add_row()
    table.add_row("order layer", *CELLS, "KV pool")
    return table


@pytest.mark.parametrize("width", [40, 48, 57, 66, 80, 100, 160])
def test_no_figure_and_no_name_breaks_at_any_width(width):
    text = shown(made(), width)
    assert max(map(len, text.splitlines())) <= width
    for cell in [*CELLS, "paged-prealloc", "order layer"]:
        assert cell in text
    words = " ".join(text.split())
    assert words.count("114.38 MiB") == 2
    assert {"the", "positions", "of", "model,", "which", "are", "few"} <= set(words.split(" "))


def test_columns_without_room_stand_below_with_the_first_again():
    assert shown(made(), 160).count("order layer") == 1
    assert shown(made(), 48).count("order layer") > 1


def test_sizes_of_a_column_have_the_same_digits():
    assert [vmm.format_size(size, aligned=True) for size in (112 << 30, 10 << 30, 3 << 19, 5 << 10, 12, 0)] == [
        "112.00 GiB",
        "10.00 GiB",
        "1.50 MiB",
        "5.00 KiB",
        "12 B",
        "0 B",
    ]


def test_lines_in_a_pipe_have_no_blanks_at_their_ends():
    out = io.StringIO()
    terminal.console(out, 70).print(made())
    lines = out.getvalue().splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []
