"""The page of a recording: what it holds is what the pool was, and it loads nothing."""

import json
import re
import zlib
from base64 import b64decode
from itertools import accumulate

import numpy as np
import pytest
from click.testing import CliRunner

import paged
from paged.commands.group import main
from paged.page import write_page
from paged.page.write import html, page_data
from paged.recording import record

SPEC = paged.KVSpec(2, 2, 16, "float16")
AT, FIGURES, LOW, HIGH, PARTS, ROWS, CACHED, ASLEEP, EVENTS, HELD = range(10)


@pytest.fixture
def run(device):
    """(recording, what the pool was after each step): appends, forks and ends."""
    random, seen = np.random.default_rng(5), []
    layout = paged.KVLayout(SPEC, 256, chunk=2 << 20)
    with (
        paged.KVPool(device, layout, budget="32 MiB", prefix_cache=True) as pool,
        record(pool, source="a <b>") as recorder,
    ):
        alive = []
        for step in range(60):
            if step % 4 == 3 and alive:
                alive.pop(int(random.integers(len(alive)))).free()
            elif step % 6 == 4 and alive:
                alive.append(alive[0].fork())
            else:
                ids = np.arange(random.integers(300, 6000))
                alive.append(pool.sequence(ids))
                alive[-1].append(ids[alive[-1].length :])
            moment = recorder.recording().columns()["moment"].max()
            held = sorted(sequence.held for sequence in pool.sequences)
            lengths = sorted(sequence.length for sequence in pool.sequences)
            idle = pool.blocks_idle
            seen.append((int(moment), pool.committed, held, lengths, idle))
        return recorder.recording(), seen


def unroll(runs):
    return [first + step for first, count in zip(runs[::2], runs[1::2], strict=True) for step in range(count)]


def sets(data, field):
    """What a reader makes of the toggles: a set a moment."""
    found, now = [], set()
    for index, moment in enumerate(data["moments"]):
        now = (set() if index % data["every"] == 0 else now) ^ set(unroll(moment[field]))
        found.append(now)
    return found


def tables(data, moment):
    """The tables of a moment's sequences, in their order."""
    return [list(accumulate(data["tables"][key]))[:length] for *_, key, length in moment[HELD]]


def data_of(page):
    (packed,) = re.findall(rb'<script id="data" type="text/plain">([^<]*)</script>', page)
    return json.loads(zlib.decompress(b64decode(packed)))


def test_a_moment_is_the_pool_as_it_was(run):
    recording, seen = run
    data = page_data(recording, 10_000, 0, recording.about["end"])
    assert data["part"]["every"]
    places = {moment[AT]: index for index, moment in enumerate(data["moments"])}
    committed = data["figures"].index("committed")
    rows, cached = sets(data, ROWS), sets(data, CACHED)
    for at, bytes_, held, _, idle in seen:
        moment = data["moments"][places[at]]
        assert moment[FIGURES][committed] == bytes_
        assert sorted(tables(data, moment)) == held
        assert len(cached[places[at]]) == idle
        assert len(rows[places[at]]) * (2 << 20) == bytes_
    assert (data["most_rows"], data["most_blocks"]) == (
        max(set().union(*rows)) + 1,
        max(block for step in seen for table in step[2] for block in table) + 1,
    )


def test_lengths_are_exact_once_the_next_event_tells_them_and_never_more_than_the_room(run):
    recording, _ = run
    data = page_data(recording, 10_000, 0, recording.about["end"])
    for moment in data["moments"]:
        for _, _, tokens, dropped, _, length in moment[HELD]:
            assert 0 <= tokens <= (dropped + length) * 256


def test_what_is_committed_is_live_and_waste_by_cause_to_the_byte(run):
    recording, _ = run
    data = page_data(recording, 10_000, 0, recording.about["end"])
    committed, live = data["figures"].index("committed"), data["figures"].index("live")
    for moment in data["moments"]:
        assert min(moment[PARTS]) >= 0
        assert moment[FIGURES][live] + sum(moment[PARTS]) == moment[FIGURES][committed]


def test_fewer_moments_lose_no_event_and_no_extreme(run):
    recording, _ = run
    every = page_data(recording, 10_000, 0, recording.about["end"])
    few = page_data(recording, 7, 0, recording.about["end"])
    assert (len(few["moments"]), few["part"]["every"]) == (7, False)
    assert sum(moment[EVENTS] for moment in few["moments"]) == len(recording)
    for index in range(len(few["figures"])):
        assert max(moment[HIGH][index] for moment in few["moments"]) == max(m[HIGH][index] for m in every["moments"])
        assert min(moment[LOW][index] for moment in few["moments"]) == min(m[LOW][index] for m in every["moments"])
    known = {moment[AT]: moment for moment in every["moments"]}
    assert sets(few, ROWS)[-1] == sets(every, ROWS)[-1]
    for moment in few["moments"]:  # each is what the latest change before it led to
        before = known[max(at for at in known if at <= moment[AT])]
        assert tables(few, moment) == tables(every, before)


def test_the_page_loads_nothing_and_is_one_file(run, tmp_path):
    recording, _ = run
    write_page(recording, tmp_path / "view.html")
    page = (tmp_path / "view.html").read_bytes()
    text = page.decode()
    assert "@DATA@" not in text
    assert "/*page" not in text
    assert "/*scripts" not in text
    assert not re.search(r"https?:", text)
    assert not re.search(
        r"\b(src|import|fetch|XMLHttpRequest|@import|url\()\b", re.sub(r'<script id="data".*?</script>', "", text)
    )
    assert data_of(page)["about"]["source"] == "a <b>"  # data is never part of the markup


def test_a_page_has_fewer_moments_where_more_would_be_too_large(run, tmp_path, monkeypatch):
    recording, _ = run
    whole = len(html(page_data(recording, 10_000, 0, recording.about["end"])))
    monkeypatch.setattr("paged.page.write.MOST_BYTES", whole - 500)
    found = write_page(recording, tmp_path / "view.html")
    assert found["bytes"] <= whole - 500
    assert 2 <= found["moments"] < len(page_data(recording, 10_000, 0, recording.about["end"])["moments"])


def test_a_page_of_a_part_is_asked_for_by_from_and_until(run, tmp_path):
    recording, _ = run
    recording.save(tmp_path / "a.pagewalk")
    end = recording.about["end"] / 1e9
    arguments = ["view", str(tmp_path / "a.pagewalk"), "--json", "--output", str(tmp_path / "view.html")]
    whole, part = (
        json.loads(CliRunner().invoke(main, [*arguments, *more]).output)["events"]
        for more in ((), ("--from", str(end / 4), "--until", str(end / 2)))
    )
    assert 0 < part < whole


def test_a_part_begins_with_what_was_there_not_with_the_events_that_led_to_it(run):
    recording, _ = run
    end = recording.about["end"]
    data = page_data(recording, 50, end // 2, end)
    first = data["moments"][0]
    assert first[FIGURES][data["figures"].index("committed")] > 0
    assert first[EVENTS] == 0
    assert first[LOW] == first[FIGURES] == first[HIGH]
    assert sum(moment[EVENTS] for moment in data["moments"]) == data["part"]["events"]


def test_what_stands_for_dropped_events_is_no_event(device):
    layout = paged.KVLayout(SPEC, 256, chunk=2 << 20)
    with paged.KVPool(device, layout, budget="32 MiB") as pool, record(pool, capacity=20) as recorder:
        alive = [pool.sequence() for _ in range(3)]
        for step in range(60):
            alive[step % 3].append(400)
        recording = recorder.recording()
    assert recording.about["dropped"] > 0
    data = page_data(recording, 10_000, int(recording.columns()["moment"][0]), recording.about["end"])
    names = data["figures"]
    assert data["part"]["events"] == len(recording) - recording.about["base_events"]
    assert sum(moment[EVENTS] for moment in data["moments"]) == data["part"]["events"]
    for moment in data["moments"]:
        assert moment[HIGH][names.index("held")] <= moment[HIGH][names.index("committed")]
        assert moment[LOW][names.index("committed")] > 0


def test_the_command_writes_a_page_and_refuses_in_one_line(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recording, _ = run
    recording.save("a.pagewalk")
    found = CliRunner().invoke(main, ["view", "a.pagewalk", "-o", "view.html", "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["bytes"] == (tmp_path / "view.html").stat().st_size
    for arguments, message in (
        (["view", "a.pagewalk", "-o", "view.html", "--from", "5", "--until", "4"], "nothing is recorded from 5 to 4 s"),
        (
            ["view", "view.html", "-o", "x.html"],
            "error: view.html is no recording; make one with paged replay --record\n",
        ),
        (["view", "none.pagewalk", "-o", "x.html"], "error: none.pagewalk: there is no such file; make one with"),
        (["view", "a.pagewalk", "-o", "a.pagewalk"], "a.pagewalk is the trace itself"),
    ):
        found = CliRunner().invoke(main, arguments)
        assert found.exit_code == 2
        assert message in found.stderr
        assert found.stderr.count("\n") == 1
