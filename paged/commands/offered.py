"""What a shell offers for a value that is not one of a fixed list: words that are known, or a file.

An option whose value is read by somebody else says here what to offer; what may be given it does not decide.
"""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from ..layout import ORDERS
from ..policies import POLICIES
from ..presets import PRESETS
from ..serving.driver_costs import SETS
from ..serving.rules import PREEMPTION
from ..serving.waiting import SCHEDULING

Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
"""Click's ``shell_complete``: from what was typed of the value to what may follow."""


def offer(*words: str, files: bool = False) -> Offer:
    """Offer the ``words`` that begin with what was typed, and with ``files`` the files that do."""

    def offered(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        found = [CompletionItem(word) for word in words if word.startswith(typed)]
        return [*found, CompletionItem(typed, type="file")] if files else found

    return offered


FILE = click.Path(readable=False)
"""Files; whether one is there, and may be, is looked at by who opens it."""
MODEL = offer(*PRESETS, files=True)
"""A preset, or the path of a config.json."""
DTYPE = offer("auto", "bfloat16", "float16", "float32", "fp8", "int8")
"""What K and V are kept in, as ``--kv-cache-dtype`` takes it."""
POLICY = offer(*POLICIES, "all")
OFFERED = {
    "kv_cache_dtype": DTYPE,
    "order": offer(*ORDERS),
    "scheduling": offer(*SCHEDULING),
    "preemption": offer(*PREEMPTION),
    "driver": offer("cuda", "host"),
    "backing": offer("none", "memory"),
    "driver_costs": offer(*SETS, files=True),
}
"""By the names of a replay's options."""
