"""Interrupts at every line of a question that one pool asks another: its turn, which is borrowed, comes back."""

import signal
import sys

import pytest

import paged
import vmm

MIB = 1 << 20


def interrupted_at(line, ask):
    """Call ``ask`` and interrupt it at one line of what borrows a turn; whether it got as far as that line."""
    left = line

    def trace(frame, event, _argument):
        nonlocal left
        if not frame.f_code.co_filename.endswith(("spare.py", "one_thread.py")):
            return trace if "paged" in frame.f_code.co_filename or "vmm" in frame.f_code.co_filename else None
        if event == "line":
            left -= 1
            if not left:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ask()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("question", ["blocks_free", "can_allocate", "holders"])
def test_a_turn_that_was_borrowed_comes_back(rules, make_layout, question):
    layout = make_layout(512)
    with (
        vmm.ChunkSupply(rules, budget=8 * MIB) as supply,
        paged.KVPool(rules, layout, budget=8 * MIB, supply=supply) as asked,
        paged.KVPool(rules, layout, budget=8 * MIB, supply=supply) as asking,
    ):
        ask = {
            "blocks_free": lambda: asking.blocks_free,
            "can_allocate": lambda: asking.can_allocate(17),
            "holders": supply.holders,
        }[question]
        line = 0
        while interrupted_at(line := line + 1, ask):
            asked.free(asked.allocate(1))  # StateError if its turn was lost
        assert line > 10
        asking.free(asking.allocate(1))
