"""Line: pieces of text with their styles, in the words of rich."""

from __future__ import annotations

from collections.abc import Iterator

Line = list[tuple[str, str]]
"""(text, style) from left to right."""


def wrapped(text: str, width: int, style: str = "", *, apart: str = " ", indent: str = "") -> Iterator[Line]:
    """Words, ``apart`` from each other, in lines of at most ``width``; all but the first begin with ``indent``."""
    line = ""
    for word in text.split(apart):
        longer = f"{line}{apart}{word}" if line.strip() else line + word
        if line.strip() and len(longer) > width:
            yield [(line, style)]
            longer = indent + word
        line = longer
    yield [(line, style)]


def joined(pieces: list[tuple[str, str]]) -> Line:
    """Neighbours of one style as one piece."""
    line: Line = []
    for text, style in pieces:
        if line and line[-1][1] == style:
            line[-1] = (line[-1][0] + text, style)
        else:
            line.append((text, style))
    return line
