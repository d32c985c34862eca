"""The picture as text: every sequence and block is named, no line is too wide, and no colour is needed."""

import io
import re

import pytest
from rich.console import Console

import paged
import vmm
from paged.picture import picture_of, plain_text, show


def tables_in(text):
    """{sequence: (letter, blocks)} of the block tables in a text, wrapped lines joined."""
    lines = text.split("Block tables of", 1)[1].splitlines()[1:]
    found, name = {}, None
    for line in lines:
        head = re.match(r"([A-T]) seq (\d+) +[\d,]+ tokens  (.*)", line)
        if head:
            name = int(head[2])
            found[name] = (head[1], head[3])
        elif name is not None and line.startswith("     "):
            found[name] = (found[name][0], f"{found[name][1]} {line.strip()}")
        else:
            name = None
    return {name: (letter, blocks_in(entries)) for name, (letter, entries) in found.items()}


def blocks_in(entries):
    blocks = []
    for entry in re.sub(r"\(.*?\)", "", entries).split():
        first, _, last = entry.partition("-")
        if first:
            blocks += range(int(first), int(last or first) + 1)
    return blocks


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("sequences", [0, 1, 20, 200])
def test_no_line_is_wider_than_it_may_be(device, scenes, width, order, sequences):
    with scenes["made_up"](device, sequences, order) as pool:
        text = plain_text(picture_of(pool), width)
        assert max(map(len, text.splitlines())) <= width
        assert text.isascii()
        assert f"{sequences} sequence" in text.replace("\n", " ")


@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("sequences", [1, 3, 10, 20])
def test_every_table_can_be_read_back(device, scenes, order, sequences):
    with scenes["made_up"](device, sequences, order) as pool:
        found = tables_in(plain_text(picture_of(pool)))
        assert {name: blocks for name, (_, blocks) in found.items()} == {
            sequence.row: sequence.held for sequence in pool.sequences
        }
        assert "".join(letter for letter, _ in found.values()) == "ABCDEFGHIJKLMNOPQRST"[:sequences]


def test_blocks_apart_are_named_one_by_one(device, scenes):
    with scenes["many"](device, 2) as pool:
        for sequence in (*pool.sequences, *pool.sequences, *pool.sequences):
            sequence.append(16)
        one, other = pool.sequences
        assert one.held[1] + 1 != one.held[2]
        found = tables_in(plain_text(picture_of(pool)))
        assert found == {one.row: ("A", one.held), other.row: ("B", other.held)}


def test_every_block_stands_in_memory_with_its_letter(device, scenes):
    with scenes["made_up"](device, 10) as pool:
        text = plain_text(picture_of(pool))
        cells = "".join(re.findall(r"^row \d+ *\|(.*)\|$", text, re.MULTILINE)).replace("|", "")
        letters = {}
        for name, (letter, _) in tables_in(text).items():
            letters[name] = letter
        for sequence in pool.sequences:
            for at, block in enumerate(sequence.held):
                full = at < len(sequence.held) - 1 or sequence.length % 16 == 0
                own = letters[sequence.row] if full else letters[sequence.row].lower()
                count = pool.count(block)
                assert cells[block] == (own if count == 1 else str(count))
        idle = [block for block in range(64) if not pool.count(block) and block in pool.prefix.cache]
        assert idle
        assert {cells[block] for block in idle} == {"~"}
        assert cells.count("~") == len(idle)


def test_marks_of_tails_shares_and_drops(device, scenes):
    with scenes["full"](device, "block", 192) as pool:
        text = plain_text(picture_of(pool), 130)
        first, child = pool.sequences[0], pool.sequences[2]
        assert first.held == child.held
        lines = {line.split(" tokens")[0].split()[2]: line for line in text.splitlines() if " tokens  " in line}
        assert re.search(r"0\(x\d,c\)", lines[str(first.row)])
        assert lines[str(first.row)].endswith("5(x2,3/4,cow)")
        assert "-(5 dropped)" in lines[str(pool.sequences[4].row)]
        assert "@" in text
        assert re.search(r"\|/+\|", text)
        assert re.search(r"page table: 0x[0-9a-f]+, rows? ", text)


@pytest.mark.parametrize("order", ["block", "layer"])
def test_bands_add_up(device, scenes, order):
    with scenes["many"](device, 1_000, order) as pool:
        text = plain_text(picture_of(pool))
        rows = re.findall(r"^[A-T] (\d+) to (\d+) +([\d,]+) +([\d,]+) +([\d,]+) ", text, re.MULTILINE)
        assert "1,000 sequences in 20 bands of 50" in text
        assert [(int(first), int(last)) for first, last, *_ in rows] == [(at, at + 49) for at in range(0, 1000, 50)]
        numbers = [[int(number.replace(",", "")) for number in row[2:]] for row in rows]
        tokens, blocks, shared = map(sum, zip(*numbers, strict=True))
        assert (tokens, blocks, shared) == (pool.tokens, pool.block_pool.used, 0)


def test_lines_with_several_rows_say_which_number_they_have(device, scenes):
    with scenes["made_up"](device, 10) as pool:
        text = " ".join(plain_text(picture_of(pool)).split())
        assert "a line begins with the number of its first row, and | ends each row;" in text


def test_bands_of_very_many_fill_the_memory(ten_thousand):
    found, _tokens, _blocks = ten_thousand
    text = plain_text(found)
    assert "10,000 sequences in 20 bands of 500" in text
    cells = "".join(re.findall(r"^ *[\d,]+ \|(.*)\|$", text, re.MULTILINE))
    assert set("ABCDEFGHIJKLMNOPQRST") <= set(cells)
    per_cell = int(re.search(r"(\d+) rows? a cell", text)[1])
    assert len(cells) == -(-found.committed // found.row_bytes // per_cell)
    assert len(text.splitlines()) < 80


def test_show_prints_without_colour_in_a_pipe_and_with_it_on_a_terminal(device, scenes, capsys):
    with scenes["made_up"](device, 3) as pool:
        show(pool)
        plain = capsys.readouterr().out
        assert "\x1b" not in plain
        assert [line.rstrip() for line in plain.splitlines()] == plain_text(picture_of(pool)).splitlines()
        out = io.StringIO()
        show(pool, console=Console(file=out, force_terminal=True, color_system="truecolor", width=100))
        assert "\x1b[1;38;2;230;159;0mA" in out.getvalue()
        assert (
            re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()).splitlines()[0]
            == (plain_text(picture_of(pool), 100).splitlines()[0])
        )


def test_a_pool_that_sleeps_says_so(device, scenes):
    with scenes["made_up"](device, 2) as pool:
        pool.collect(wait=True)
        residency = vmm.Residency(device)
        residency.add(pool.range, "kv")
        residency.sleep("kv", backup=False)
        text = plain_text(picture_of(pool), 120)
        assert "64 MiB asleep" in text
        assert re.search(r"z asleep", text)
        assert "A seq 0" in text
        residency.wake("kv")


def test_what_cannot_be_shown(device):
    layout = paged.KVLayout(paged.KVSpec(1, 1, 64, "float16"), 16)
    with paged.KVPool(device, layout, blocks=4) as pool, pytest.raises(ValueError, match="needs 60 columns, not 40"):
        plain_text(picture_of(pool), 40)
    with pytest.raises(vmm.ClosedError, match="closed"):
        show(pool)
