"""PNG and SVG: by structure, not by pixels. What is on the sheet has an id, and a sequence one colour everywhere."""

import re
import xml.etree.ElementTree as ET

import matplotlib
import pytest

import paged
import vmm
from paged.picture import draw, picture_of
from paged.picture.level import Level, level_of

PNG = b"\x89PNG\r\n\x1a\n"
GROUP = "{http://www.w3.org/2000/svg}g"
TEXT = "{http://www.w3.org/2000/svg}text"


class Drawn:
    """An SVG: the ids of its groups, the colours that they are filled with, and its texts."""

    def __init__(self, what, folder):
        path = folder / "picture.svg"
        draw(what, path)
        root = ET.parse(path).getroot()
        self.groups = {group.get("id"): group for group in root.iter(GROUP)}
        self.texts = [" ".join("".join(text.itertext()).split()) for text in root.iter(TEXT)]
        self.text = "\n".join(self.texts)
        width, height = (float(root.get(side)[:-2]) / 72 for side in ("width", "height"))
        self.inches = width, height

    def named(self, pattern):
        return {name for name in self.groups if name and re.fullmatch(pattern, name)}

    def fill(self, name):
        for part in self.groups[name].iter():
            found = re.search(r"fill: (#\w+)", part.get("style") or "")
            if found:
                return found[1]
        return "#000000"


@pytest.mark.parametrize("order", ["block", "layer"])
@pytest.mark.parametrize("sequences", [1, 3, 10])
def test_every_block_is_in_both_tables_in_one_colour(device, scenes, tmp_path, order, sequences):
    with scenes["made_up"](device, sequences, order) as pool:
        found = picture_of(pool)
        assert level_of(found) == Level.BLOCKS
        drawn = Drawn(found, tmp_path)
        expected = {f"sequence-{one.row}-block-{block}" for one in pool.sequences for block in one.held}
        assert drawn.named(r"sequence-\d+-block-\d+") == expected
        dropped = {f"sequence-{s.row}-dropped-{at}" for s in pool.sequences for at in range(s.dropped // 16)}
        assert drawn.named(r"sequence-\d+-dropped-\d+") == dropped
        for sequence in pool.sequences:
            assert f"seq {sequence.row}" in drawn.texts
            assert f"{sequence.length} tokens" in drawn.texts
            for block in sequence.held:
                above = f"memory-block-{block}-filled-by-{sequence.row}"
                below = f"sequence-{sequence.row}-block-{block}-filled-by-{sequence.row}"
                assert drawn.fill(above) == drawn.fill(below)
        colours = {drawn.fill(name) for name in drawn.named(r"sequence-\d+-block-\d+-filled-by-\d+")}
        assert len(colours) == sequences
        rows = {f"chunk-{row}" for row, state in enumerate(found.states[0]) if state}
        assert rows <= drawn.named(r"chunk-\d+")


def test_what_the_blocks_of_a_full_scene_look_like(device, scenes, tmp_path):
    with scenes["full"](device, "block", 192) as pool:
        drawn = Drawn(pool, tmp_path)
        first, child = pool.sequences[0], pool.sequences[2]
        tail = first.held[-1]
        assert drawn.named(rf"memory-block-{tail}-filled-by-\d+") == {
            f"memory-block-{tail}-filled-by-{one.row}" for one in (first, child)
        }
        assert drawn.texts.count(f"copies block {tail}") == 2
        assert f"{tail}×2" in drawn.texts
        assert "3/4" in drawn.texts
        assert "retiring" in drawn.texts
        assert re.search(r"handle 0x[0-9a-f]+", drawn.text)
        for words in (
            "shared: split by holders, ×count",
            "idle: only the prefix cache has it",
            "slots without a token",
        ):
            assert words in drawn.texts
        assert f"{pool.tokens} tokens" in drawn.text


@pytest.mark.parametrize("block_kib", [1536, 5376])
def test_blocks_that_straddle_are_drawn_in_every_row(device, scenes, tmp_path, block_kib):
    with scenes["full"](device, "block", block_kib) as pool:
        found = picture_of(pool)
        assert level_of(found) == Level.BLOCKS
        drawn = Drawn(found, tmp_path)
        rows = found.rows
        mapped = {row for row, state in enumerate(found.states[0]) if state == 1}
        pieces = [block for row in mapped for block in rows.touching(row)]
        assert len(drawn.named(r"memory-block-\d+(-from-[\d.]+)?")) == len(pieces)


@pytest.mark.parametrize(("sequences", "longest"), [(10, 1500), (60, 160)])
def test_lines_name_every_sequence_in_both(device, scenes, tmp_path, sequences, longest):
    with scenes["made_up"](device, sequences, "layer", longest) as pool:
        found = picture_of(pool)
        assert level_of(found) == Level.LINES
        drawn = Drawn(found, tmp_path)
        for sequence in pool.sequences:
            own = [block for block in sequence.held if pool.count(block) == 1]
            assert f"sequence-{sequence.row}" in drawn.groups
            assert (f"sequence-{sequence.row}-shared" in drawn.groups) == (len(own) < len(sequence.held))
            assert (f"sequence-{sequence.row}-dropped" in drawn.groups) == bool(sequence.dropped)
            assert any(text.endswith(f"seq {sequence.row}") for text in drawn.texts)
            if own:
                assert drawn.fill(f"sequence-{sequence.row}") == drawn.fill(f"memory-sequence-{sequence.row}")
        assert {"memory-shared", "memory-idle", "retiring", "committed"} <= set(drawn.groups)
        assert "the number beside a line is that of its first row" in drawn.text


def test_bins_say_how_many_and_have_the_same_colours(ten_thousand, tmp_path):
    found, tokens, blocks = ten_thousand
    assert level_of(found) == Level.BINS
    drawn = Drawn(found, tmp_path)
    bands = sorted(drawn.named(r"sequences-\d+-to-\d+"), key=lambda name: int(name.split("-")[1]))
    assert bands == [f"sequences-{at}-to-{at + 249}" for at in range(0, 10_000, 250)]
    for number, band in enumerate(bands):
        assert drawn.fill(band) == drawn.fill(f"memory-band-{number}")
    assert "10,000 sequences in 40 bands of 250" in drawn.text
    assert re.search(r"\d+ bins of \d+ rows?", drawn.text)
    told = re.findall(r"^([\d,]+) tokens in ([\d,]+) blocks, 0 shared$", drawn.text, re.MULTILINE)
    assert [sum(int(one.replace(",", "")) for one in part) for part in zip(*told, strict=True)] == [tokens, blocks]


@pytest.mark.parametrize(("sequences", "ending"), [(0, "svg"), (3, "svg"), (3, "png"), (60, "svg"), (500, "svg")])
def test_one_picture_is_always_the_same_file(device, scenes, tmp_path, sequences, ending):
    with scenes["made_up"](device, sequences) as pool:
        found = picture_of(pool)
        paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
        for path in paths:
            draw(found, path)
        one, other = (path.read_bytes() for path in paths)
        assert one == other
        assert one.startswith(PNG if ending == "png" else b"<?xml")


def test_the_sheet_is_of_a_size_that_can_be_looked_at(device, scenes, tmp_path):
    for sequences in (20, 300):
        with scenes["made_up"](device, sequences, "block") as pool:
            width, height = Drawn(pool, tmp_path).inches
            assert width == pytest.approx(13)
            assert 3 < height < 26


def test_an_empty_pool_and_one_that_sleeps(device, scenes, tmp_path):
    layout = paged.KVLayout(paged.KVSpec(2, 1, 64, "float16"), 16)
    with paged.KVPool(device, layout, blocks=100_000, name="kv") as pool:
        drawn = Drawn(pool, tmp_path)
        assert "nothing is committed" in drawn.texts
        assert "Block tables of 0 sequences" in drawn.texts
    for sequences in (2, 60):
        with scenes["made_up"](device, sequences) as pool:
            pool.collect(wait=True)
            residency = vmm.Residency(device)
            residency.add(pool.range, "kv")
            residency.sleep("kv", backup=False)
            assert re.search(r"[\d.]+ \w+ asleep are spent on", Drawn(pool, tmp_path).text)
            residency.wake("kv")


def test_the_users_settings_of_matplotlib_stay(device, scenes, tmp_path):
    with (
        scenes["made_up"](device, 2) as pool,
        matplotlib.rc_context({"font.family": ["serif"], "hatch.linewidth": 9.0}),
    ):
        found = picture_of(pool)
        draw(found, tmp_path / "a.svg")
        assert (matplotlib.rcParams["font.family"], matplotlib.rcParams["hatch.linewidth"]) == (["serif"], 9.0)
        with matplotlib.rc_context({"font.family": ["monospace"], "hatch.linewidth": 1.0}):
            draw(found, tmp_path / "b.svg")
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_what_cannot_be_written(device, scenes, tmp_path):
    with scenes["made_up"](device, 1) as pool:
        with pytest.raises(ValueError, match="written as png or svg"):
            draw(pool, tmp_path / "a.bmp")
        with pytest.raises(OSError, match=r"cannot write .*missing/a\.png"):
            draw(pool, tmp_path / "missing" / "a.png")
    with pytest.raises(vmm.ClosedError, match="closed"):
        draw(pool, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
