"""Colours: one for each sequence, the same in memory and in the block tables; memory that is no sequence's is grey."""

from __future__ import annotations

from .level import NAMED

Colour = tuple[float, float, float]

_OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")
"""Okabe and Ito's palette, told apart with any colour vision."""

_VIRIDIS = ("#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
"""Points at equal distances on matplotlib's viridis, its darkest end left out; darker is earlier, for any eye."""

SHARED, BY_ID, IDLE, EMPTY, RETIRING, FREE = "#1a1a1a", "#7a7a7a", "#d9d9d9", "#ffffff", "#f3d9d0", "#f5f5f5"
LIVE_ROW, INK, FAINT = "#8aa0b4", "#222222", "#9a9a9a"


def colours(count: int) -> list[Colour]:
    """A colour for each of ``count`` sequences or bands: distinct ones for few, a scale from first to last for many.

    On the scale every other one is lighter, so that neighbours can be told apart.
    """
    if count <= NAMED:
        return [_distinct(place) for place in range(count)]
    return [mix(on_scale(place / (count - 1)), (1, 1, 1), 0.3 * (place % 2)) for place in range(count)]


def ink_on(colour: Colour) -> str:
    """Black or white, whichever can be read on a colour (weights of Rec. 709)."""
    red, green, blue = colour
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.42 else "#ffffff"


def hex_of(colour: Colour) -> str:
    """As "#rrggbb"."""
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def parse(text: str) -> Colour:
    """From "#rrggbb"."""
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def mix(one: Colour, other: Colour, part: float) -> Colour:
    """``part`` of the other colour, the rest of the one."""
    red, green, blue = (a + (b - a) * part for a, b in zip(one, other, strict=True))
    return red, green, blue


def _distinct(place: int) -> Colour:
    """Seven colours, then lighter ones, then darker ones."""
    turn, at = divmod(place, len(_OKABE_ITO))
    colour = parse(_OKABE_ITO[at])
    return (colour, mix(colour, (1, 1, 1), 0.55), mix(colour, (0, 0, 0), 0.45))[turn % 3]


def on_scale(where: float) -> Colour:
    """The colour at 0 (first) to 1 (last)."""
    at, part = divmod(where * (len(_VIRIDIS) - 1), 1)
    low = min(int(at), len(_VIRIDIS) - 2)
    return mix(parse(_VIRIDIS[low]), parse(_VIRIDIS[low + 1]), part if at == low else 1.0)
