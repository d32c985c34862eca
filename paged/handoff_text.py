"""The text of a handoff, read with suspicion: another process wrote it, and what it says would be used as addresses."""

from __future__ import annotations

import json
from typing import Any

from vmm.shown import shown

from .layout import KVLayout
from .spec import KVSpec

VERSION = 1

_KINDS: dict[type, str] = {
    int: "a whole number",
    str: "a word",
    dict: "an object",
    list: "a list",
    type(None): "null",
}
_SPEC: dict[str, tuple[type, ...]] = {
    "layers": (int,),
    "kv_heads": (int,),
    "head_dim": (int,),
    "dtype": (str,),
    "components": (int,),
    "window": (int, type(None)),
}
_LAYOUT: dict[str, tuple[type, ...]] = {
    "spec": (dict,),
    "block_size": (int,),
    "order": (str,),
    "layout": (str,),
    "chunk": (int,),
}
_HANDOFF: dict[str, tuple[type, ...]] = {
    "version": (int,),
    "layout": (dict,),
    "blocks": (int,),
    "tables": (list,),
    "lengths": (list,),
}


def read_handoff(text: str | bytes) -> dict[str, Any]:
    """The arguments of ``Handoff`` as told by ``text``. Raises ValueError for what is missing, or of a wrong type."""
    told = _told(text)
    if type(told) is dict and "version" in told and told["version"] != VERSION:
        raise ValueError(f"it is not of version {VERSION}, the only one that this process knows")
    handoff = _object("it", told, _HANDOFF)
    layout = _object("layout", handoff["layout"], _LAYOUT)
    spec = KVSpec(**_object("layout.spec", layout["spec"], _SPEC))
    for number, table in enumerate(handoff["tables"]):
        if type(table) is not list:
            raise ValueError(f"the table of sequence {number} must be a list, not {shown(table)}")
    return {
        "layout": KVLayout(**{**layout, "spec": spec}),
        "blocks": handoff["blocks"],
        "tables": tuple(map(tuple, handoff["tables"])),
        "lengths": tuple(handoff["lengths"]),
    }


def _told(text: str | bytes) -> Any:
    if not isinstance(text, (str, bytes, bytearray)):
        raise ValueError(f"{shown(text)} is no text")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None
    except ValueError:  # no UTF-8, no JSON, or a number of thousands of digits: what Python says of it is about Python
        raise ValueError(f"{shown(text)} is no JSON") from None


def _object(name: str, value: Any, fields: dict[str, tuple[type, ...]]) -> dict[str, Any]:
    """``value``, if it is an object with exactly these fields."""
    if type(value) is not dict:
        raise ValueError(f"{name} must be an object with {', '.join(fields)}, not {shown(value)}")
    if missing := [field for field in fields if field not in value]:
        raise ValueError(f"{name} lacks {', '.join(missing)}")
    if unknown := [field for field in value if field not in fields]:
        raise ValueError(f"{name} has {shown(unknown[0])}, which version {VERSION} does not know")
    for field, kinds in fields.items():
        if type(value[field]) not in kinds:  # true is no number here
            expected = " or ".join(_KINDS[kind] for kind in kinds)
            raise ValueError(f"{field} must be {expected}, not {shown(value[field])}")
    return value
