"""README.zh.md says what README.md says: the same headings, tables, code, commands, links and figures, part by part.

Words are not compared. Where a test fails, it names the part, and what only one of the two has there: carry the change
over to the same place of the other.
"""

import re
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = (ROOT / name for name in ("README.md", "README.zh.md"))
SWITCHES = ("English | [中文](README.zh.md)\n\n", "[English](README.md) | 中文\n\n")
"""What stands above in each: the way to the other."""
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def parts(path):
    """(heading, text) of everything between two headings."""
    text = path.read_text(encoding="utf-8")
    for switch in SWITCHES:
        text = text.replace(switch, "")
    hidden = FENCED.sub(lambda block: block[0].replace("\n#", "\n\0#"), text)
    found = re.split(r"^(#+ .*)\n", hidden, flags=re.M)
    return [(head, body.replace("\0", "")) for head, body in zip(found[1::2], found[2::2], strict=True)]


def code_of(body):
    """Each block of code with its language, without the comments of Python, which are translated."""
    return [
        (language, [re.sub(r"\s+#.*", "", line) if language == "python" else line for line in text.splitlines()])
        for language, text in FENCED.findall(body)
    ]


def prose_of(body):
    return FENCED.sub("", body)


def tables_of(body):
    """The number of columns of each row."""
    return [line.count("|") for line in prose_of(body).splitlines() if line.startswith("|")]


def spans_of(body):
    return re.findall(r"`[^`]+`", prose_of(body))


def links_of(body):
    return re.findall(r"\]\(([^)]+)\)", prose_of(body))


def figures_of(body):
    """Numbers as they are written, but for those in code and links."""
    return re.findall(r"\d[\d,.]*\d|\d", re.sub(r"`[^`]+`|\]\([^)]+\)", "", prose_of(body)))


def marks_of(body):
    """Comments of HTML, by which commands are found."""
    return re.findall(r"<!--.*?-->", body)


def test_the_headings_have_the_same_levels():
    levels = [[head.split()[0] for head, _ in parts(path)] for path in (ENGLISH, CHINESE)]
    assert levels[0] == levels[1], [(mine, theirs) for mine, theirs in zip_longest(parts(ENGLISH), parts(CHINESE))]


@pytest.mark.parametrize("things_of", [tables_of, code_of, spans_of, links_of, figures_of, marks_of])
def test_each_part_has_the_same(things_of):
    differences = []
    for (english, one), (chinese, other) in zip(parts(ENGLISH), parts(CHINESE), strict=True):
        mine, theirs = (list(map(repr, things_of(body))) for body in (one, other))
        for name, own in (("README.md", only(mine, theirs)), ("README.zh.md", only(theirs, mine))):
            differences += [f"{english} / {chinese}: only {name} has {thing}" for thing in own]
    assert differences == [], "\n".join(differences)


def only(mine, theirs):
    return (Counter(mine) - Counter(theirs)).elements()


def test_there_is_something_to_compare():
    whole = CHINESE.read_text(encoding="utf-8")
    counts = [len(things_of(whole)) for things_of in (code_of, spans_of, figures_of, links_of)]
    assert all(count > least for count, least in zip(counts, (5, 80, 60, 10), strict=True))
    assert len(re.findall(r"[\u4e00-\u9fff]", prose_of(whole))) > 2000
