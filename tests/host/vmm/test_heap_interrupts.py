"""Ctrl-C between any two steps of Python: the books of a heap are right, and nobody holds its turn."""

import dis
import signal
import sys
from pathlib import Path

import pytest

import vmm
from vmm import uninterrupted

MIB = 1 << 20
RETURNS = {code for name, code in dis.opmap.items() if name.startswith("RETURN_")}
FILES = {str(Path(vmm.__file__).with_name(f"{name}.py")) for name in ("heap", "spans", "arena", "heap_turn", "block")}


class Interrupt:
    """Raises KeyboardInterrupt before the step ``at`` of the heap's own code, where Python could."""

    def __init__(self, at):
        self.left, self.raised = at, False

    def __call__(self, frame, event, _argument):
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.raised and self.is_possible(frame):
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise KeyboardInterrupt
        return self

    @staticmethod
    def is_possible(frame):
        """Not while interrupts wait; nor before a return: Python looks after calls, at jumps, and as a call begins."""
        returns = frame.f_code.co_code[frame.f_lasti] in RETURNS
        return not returns and signal.getsignal(signal.SIGINT) is not uninterrupted._note


def interrupted(operation, at):
    """Run it with an interrupt at that step; whether it came to its end before."""
    trace, before = Interrupt(at), sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return not trace.raised


def prepared(heap, hold):
    """Some holes, and a block to free."""
    blocks = [heap.allocate(size) for size in (5000, 70_000, 3 * MIB, 5000, 2 * MIB)]
    for block in blocks[::2]:
        block.free()
    hold += blocks[1::2]
    return blocks[3]


OPERATIONS = {
    "allocate what a hole has": lambda heap, _block: heap.allocate(4000),
    "allocate a large one": lambda heap, _block: heap.allocate(MIB),
    "allocate new memory": lambda heap, _block: heap.allocate(9 * MIB),
    "allocate for a stream": lambda heap, _block: heap.allocate(4000, stream=0),
    "allocate aligned": lambda heap, _block: heap.allocate(4000, alignment=1 << 16),
    "free": lambda _heap, block: block.free(),
    "free after": lambda _heap, block: block.free(after=0),
    "drop": lambda _heap, block: block.drop(),
    "trim": lambda heap, _block: heap.trim(),
    "collect": lambda heap, _block: heap.collect(),
}


def interrupt_everywhere(name, *, keep=True, stride=1):
    """Run an operation again and again, each time with an interrupt ``stride`` steps later."""
    steps = 0
    with vmm.Device(driver=vmm.HostDriver(memory="64 MiB", backing="none")) as device:
        while True:
            with vmm.Heap(device, "64 MiB", keep=keep) as heap:
                hold = []
                block = prepared(heap, hold)
                operation = OPERATIONS[name]
                done = interrupted(lambda: operation(heap, block), steps)  # noqa: B023  it is called at once
                heap.check()
                assert not heap.turn, f"after step {steps} the turn is held"
                hold = [one for one in hold if heap.holds(one) and one not in heap._dropped]
                heap.collect(wait=True)
                heap.check()
                if not done:  # nobody ever had what was allocated
                    assert heap.allocated == sum(one.size for one in hold)
                for one in hold:
                    one.free()
                heap.allocate(20 * MIB)
                heap.check()
            if done:
                break
            steps += stride
    assert steps > 5 or name == "drop"


@pytest.mark.parametrize("name", ["allocate what a hole has", "free"])
def test_an_interrupt_at_some_steps(name):
    interrupt_everywhere(name, stride=5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupt_between_any_two_steps(name, keep):
    interrupt_everywhere(name, keep=keep)


def test_books_that_are_not_mended_are_noticed(monkeypatch):
    monkeypatch.setattr(vmm.Heap, "_mend", lambda heap, block: heap.turn.end(block))
    with pytest.raises((AssertionError, LookupError)):
        interrupt_everywhere("allocate what a hole has", stride=5)
