"""Write the page: template and data in one file."""

from __future__ import annotations

import base64
import json
import zlib
from importlib import resources
from pathlib import Path
from typing import Any

from vmm import format_size

from ..atomic_file import write_atomically
from ..recording import Recording
from .call_strip import call_strip, latest_calls
from .moments import Moment, Moments, before, choose
from .toggles import EVERY

MOST_MOMENTS = 1000
MOST_BYTES = 8_000_000 - 200_000
_SCRIPTS = ("words", "drawing", "moment", "curves", "chunks", "tables", "spent", "strip", "walk", "pointing", "page")


def write_page(
    recording: Recording,
    path: str | Path,
    *,
    most: int = MOST_MOMENTS,
    start_s: float | None = None,
    stop_s: float | None = None,
) -> dict[str, Any]:
    """Write the page of a recording, or of its part from ``start_s`` to ``stop_s``, whole or not at all.

    Returns its ``bytes``, its ``moments`` and the ``events`` of the part. As many moments are shown, at most ``most``,
    as 8 MB have room for. Raises ValueError for a part in which nothing is, OSError naming ``path``.
    """
    first = int(recording.columns()["moment"].min(initial=0)) if len(recording) else 0
    start = first if start_s is None else round(start_s * 1e9)
    stop = int(recording.about["end"]) if stop_s is None else round(stop_s * 1e9)
    if not len(recording) or stop <= start:
        span = f"{first / 1e9:g} to {recording.about['end'] / 1e9:g} s"
        raise ValueError(f"nothing is recorded from {start / 1e9:g} to {stop / 1e9:g} s; the recording has {span}")
    while True:
        data = page_data(recording, most, start, stop)
        text = html(data)
        if len(text) <= MOST_BYTES or most <= 2:
            break
        most = max(2, int(most * 0.9 * MOST_BYTES / len(text)))
    write_atomically(Path(path), lambda out: out.write(text))
    return {"bytes": len(text), "moments": len(data["moments"]), "events": data["part"]["events"]}


def page_data(recording: Recording, most: int, start: int, stop: int) -> dict[str, Any]:
    """All that the page shows, as plain data."""
    wanted, every = choose(recording, most, start, stop)
    found = Moments(recording, wanted)
    moments = found.found
    edges = wanted if len(wanted) > 1 else wanted.repeat(2)
    columns = recording.columns()
    inside = columns["moment"][before(recording, start) :] <= stop
    about = {name: value for name, value in recording.about.items() if name != "costs"}
    return {
        "about": about,
        "reserved": format_size(about["reserved"]),
        "part": {"start": start, "stop": stop, "events": int(inside.sum()), "every": every},
        "figures": list(moments[0].figures._fields),
        "causes": list(moments[0].waste),
        "moments": [_short(moment) for moment in moments],
        "tables": found.tables.differences(),
        "every": EVERY,
        "most_rows": found.rows.most,
        "most_blocks": max([found.idle.most, *(max(one, default=0) + 1 for one in found.tables.found)]),
        "strip": call_strip(recording, edges),
        "calls": latest_calls(recording, start, stop),
    }


def _short(moment: Moment) -> list[Any]:
    """[at, figures, low, high, waste, rows, cached, asleep, events since the last, sequences]."""
    bucket = moment.bucket
    return [
        moment.at,
        list(moment.figures),
        list(bucket.low),
        list(bucket.high),
        list(moment.waste.values()),
        moment.rows,
        moment.idle,
        int(moment.asleep),
        bucket.events,
        moment.sequences,
    ]


def html(data: dict[str, Any]) -> bytes:
    """The page as bytes: the data is compressed JSON in base64, which the browser itself unpacks."""
    folder = resources.files(__package__)
    text = (folder / "page.html").read_text(encoding="utf-8")
    packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)
    scripts = ((folder / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    text = text.replace("/*page.css*/", (folder / "page.css").read_text(encoding="utf-8"))
    text = text.replace("/*scripts*/", "\n".join(scripts))
    return text.replace("@DATA@", base64.b64encode(packed).decode()).encode()
