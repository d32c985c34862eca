"""The page in a real headless Chromium: load, move the slider, click a block, read the chunk that is highlighted."""

import statistics

import numpy as np
import pytest

import paged
import vmm
from paged.page import write_page
from paged.recording import record

LEFT, RIGHT, DOWN, END = "\ue012", "\ue014", "\ue015", "\ue010"


def make_page(path):
    """A page of a pool with shared prefixes; returns (tables, base) at the end."""
    random, calls = np.random.default_rng(7), vmm.Recorder()
    host = vmm.HostDriver(memory="4 GiB", backing="none")
    layout = paged.KVLayout(paged.KVSpec(8, 4, 64, "float16"), 256, chunk=2 << 20)  # a block is a chunk
    with (
        vmm.Device(driver=host, recorder=calls) as device,
        paged.KVPool(device, layout, budget="2 GiB", prefix_cache=True) as pool,
        record(pool, calls=calls, source="a browser's test") as recorder,
    ):
        alive = []
        for step in range(80):
            if step % 3 == 2 and len(alive) > 6:
                alive.pop(int(random.integers(len(alive)))).free()
            elif step % 5 == 4:
                alive.append(alive[0].fork())
            else:
                ids = np.arange(random.integers(2000, 9000))
                alive.append(pool.sequence(ids))
                alive[-1].append(ids[alive[-1].length :])
        tables = [sequence.table for sequence in alive]
        write_page(recorder.recording(), path)
        return tables, pool.range.base


@pytest.fixture(scope="module")
def shown(browser, tmp_path_factory):
    """(browser, tables at the end, base address), the page open."""
    page = tmp_path_factory.mktemp("page") / "view.html"
    tables, base = make_page(page)
    browser.open(page)
    return browser, tables, base


def at_the_end(browser):
    browser.run("pagewalk.show(pagewalk.moments.length - 1)")


def click_entry(browser, sequence, entry):
    where = browser.run("const p = pagewalk.entryAt(arguments[0], arguments[1]); return [p.x, p.y]", sequence, entry)
    browser.point(*where)


def test_the_slider_moves_through_time(shown):
    browser, _, _ = shown
    slider = "const s = document.getElementById('slider'); s.value = arguments[0]; s.dispatchEvent(new Event('input'));"
    read = "return [pagewalk.index, document.getElementById('clock').textContent]"
    seen = {browser.run(slider + read, index)[1] for index in (0, 20, 40)}
    assert len(seen) == 3
    assert browser.run(read)[0] == 40
    browser.run("document.getElementById('slider').focus()")
    browser.press(RIGHT, RIGHT, LEFT)
    assert browser.run(read)[0] == 41
    browser.press(END)
    assert browser.run(read)[0] == browser.run("return pagewalk.moments.length - 1")


def test_a_clicked_block_leads_to_its_chunk_and_address(shown):
    browser, tables, base = shown
    at_the_end(browser)
    browser.run("document.getElementById('scroll').scrollTop = 0")
    click_entry(browser, 0, 3)
    found = browser.run("return pagewalk.selected")
    block = tables[0][3]
    assert (int(found["block"]), int(found["chunk"]), int(found["token"])) == (block, block, 3 * 256)
    assert int(found["address"], 16) == base + block * (2 << 20)
    assert int(found["holders"]) == sum(block in table for table in tables)
    text = browser.run("return document.getElementById('inspector').innerText")
    assert f"block {block}" in text.replace(",", "")
    assert found["address"] in text


def test_a_clicked_chunk_leads_back_to_its_sequence(shown):
    browser, tables, _ = shown
    at_the_end(browser)
    index = len(tables) - 1
    block = tables[index][-1]
    browser.point(*browser.run("const p = pagewalk.chunkAt(arguments[0]); return [p.x, p.y]", block))
    found = browser.run("return pagewalk.selected")
    assert int(found["block"]) == block
    assert int(found["token"]) == (len(tables[index]) - 1) * 256
    assert found["holders"] == str(sum(block in table for table in tables))


def test_the_highlight_is_on_both_canvases(shown):
    browser, tables, _ = shown
    at_the_end(browser)
    marked = """
      const there = (id, p) => { const c = document.getElementById(id), b = c.getBoundingClientRect();
        const x = Math.round(p.x - b.left) - 4, y = Math.round(p.y - b.top) - 10;
        const d = c.getContext('2d').getImageData(x, y, 8, 20).data;
        let dark = 0; for (let i = 0; i < d.length; i += 4) dark += d[i] + d[i + 1] + d[i + 2] < 30 && d[i + 3] > 200;
        return dark; };
      return [there('table', pagewalk.entryAt(0, 2)), there('chunks', pagewalk.chunkAt(arguments[0]))]"""
    browser.run("document.documentElement.classList.remove('dark'); pagewalk.select(arguments[0], 0)", tables[0][2])
    with_it = browser.run(marked, tables[0][2])
    browser.run("pagewalk.select(arguments[0], 0)", tables[0][8])
    without = browser.run(marked, tables[0][2])
    assert all(a > b for a, b in zip(with_it, without, strict=True))


def test_hovering_shows_and_leaving_restores(shown):
    browser, tables, _ = shown
    at_the_end(browser)
    browser.run("document.getElementById('scroll').scrollTop = 0")
    click_entry(browser, 0, 1)
    chosen = browser.run("return document.getElementById('inspector').dataset.block")
    where = browser.run("const p = pagewalk.entryAt(0, 5); return [p.x, p.y]")
    browser.point(*where, click=False)
    assert browser.run("return document.getElementById('inspector').dataset.block") == str(tables[0][5])
    browser.point(5, 5, click=False)
    assert browser.run("return document.getElementById('inspector').dataset.block") == chosen == str(tables[0][1])


def test_keys_move_in_the_tables_and_the_token_field_finds_a_block(shown):
    browser, tables, _ = shown
    at_the_end(browser)
    browser.run("document.getElementById('table').focus(); pagewalk.select(arguments[0], 0)", tables[0][0])
    browser.press(RIGHT, RIGHT)
    assert browser.run("return pagewalk.selected.token") == str(2 * 256)
    browser.press(DOWN)
    assert browser.run("return pagewalk.selected.block") == str(tables[1][2])
    field = "const t = document.getElementById('token'); t.value = arguments[0]; t.dispatchEvent(new Event('input'));"
    browser.run(field, 4 * 256 + 7)
    found = browser.run("return pagewalk.selected")
    assert (found["token"], found["block"]) == (str(4 * 256 + 7), str(tables[1][4]))


def test_light_and_dark_differ_and_nothing_is_loaded(shown):
    browser, _, _ = shown
    ground = "return getComputedStyle(document.body).backgroundColor"
    first = browser.run(ground)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(ground) != first
    assert (
        browser.run("return performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length")
        == 0
    )


def test_the_picture_is_drawn(shown, tmp_path):
    browser, _, _ = shown
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes()[:4] == b"\x89PNG"
    drawn = """return ['curves', 'chunks', 'table', 'bar', 'strip'].map(id => { const c = document.getElementById(id);
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
      for (let i = 0; i < d.length; i += 16) seen.add((d[i] << 16) | (d[i + 1] << 8) | d[i + 2]); return seen.size })"""
    assert min(browser.run(drawn)) >= 3


def test_a_move_of_the_slider_takes_less_than_100_ms(shown):
    browser, _, _ = shown
    times = browser.run(
        "const t = []; for (let i = 0; i < 30; i++) { pagewalk.show(i * 2); t.push(pagewalk.lastRender) } return t"
    )
    assert statistics.median(times) < 100
