"""Interrupts wait for the end of a change, and are never lost; the sweeps interrupt every call of every operation."""

import signal
import subprocess
import sys
import threading

import pytest

import vmm
from vmm.uninterrupted import Uninterrupted, handed_over, uninterrupted, whole


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_is_raised_at_the_end_of_the_outermost():
    steps = []

    @uninterrupted
    def inner():
        interrupt()
        steps.append("inner")

    @uninterrupted
    def outer():
        inner()
        steps.append("outer")

    with pytest.raises(KeyboardInterrupt):
        outer()
    assert steps == ["inner", "outer"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()  # the handler is the old one again


def test_two_interrupts_are_one():
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        interrupt()
        interrupt()
    with Uninterrupted():
        pass


def test_a_handler_of_the_programs_own_is_called():
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    try:
        with Uninterrupted():
            interrupt()
            assert heard == []
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_inside_is_not_hidden_by_its_interrupt():
    with pytest.raises(KeyboardInterrupt) as caught, Uninterrupted():
        interrupt()
        raise ValueError("first")
    assert isinstance(caught.value.__context__, ValueError)


def test_other_threads_have_no_interrupts():
    before, seen = signal.getsignal(signal.SIGINT), []

    def look():
        with Uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


class Made:
    closed = False

    @whole
    def __init__(self, seen, error=None):
        seen.append(self)
        interrupt()
        if error:
            raise error

    def close(self):
        self.closed = True

    @handed_over(lambda self, result: result.append(self))
    def lend(self, *, interrupted):
        if interrupted:
            interrupt()
        self.lent = []
        return self.lent


def test_what_an_interrupted_constructor_made_is_closed():
    seen = []
    with pytest.raises(KeyboardInterrupt):
        Made(seen)
    assert seen[0].closed
    with pytest.raises(KeyboardInterrupt):
        Made(seen, ValueError("refused"))
    assert not seen[1].closed  # it undoes itself


def test_a_result_that_nobody_gets_is_taken_back():
    made = Made.__new__(Made)
    with pytest.raises(KeyboardInterrupt):
        made.lend(interrupted=True)
    assert made.lent == [made]
    assert made.lend(interrupted=False) == []


def test_a_program_that_is_interrupted_while_it_grows_can_close():
    """Ctrl-C at some moment of a long grow, as a user presses it: the with-blocks end, and nothing is left."""
    program = """
import os, signal, threading, time, vmm
driver = vmm.HostDriver(memory="64 GiB", backing="none")
threading.Timer(0.25, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    with vmm.Device(0, driver=driver) as device, vmm.GrowableRange(device, reserve="60 GiB") as kv:
        while True:
            kv.grow("50 GiB")
            kv.shrink("50 GiB")
except KeyboardInterrupt:
    live = driver.live()
    print("left", live.total)
"""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.stdout, found.stderr) == ("left 0\n", "")


def test_ranges_are_whole_after_an_interrupt(device, monkeypatch):
    kv = vmm.GrowableRange(device, "16 MiB")
    with kv:
        create = device.driver.create
        monkeypatch.setattr(device.driver, "create", lambda *a, **k: (create(*a, **k), interrupt())[0])
        with pytest.raises(KeyboardInterrupt):
            kv.grow("8 MiB")
        monkeypatch.undo()
        assert (kv.committed, kv.size) == (8 << 20, 8 << 20)
        kv.shrink("4 MiB")


def interrupted_in(file, line, change):
    """Call ``change`` and interrupt it at a line of one file; whether it got as far as that."""
    left = line

    def trace(frame, event, _argument):
        nonlocal left
        if event == "line" and frame.f_code.co_filename.endswith(file):
            left -= 1
            if not left:
                sys.settrace(None)
                interrupt()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        change()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_range_is_never_left_busy(rules):
    with vmm.GrowableRange(rules, "64 MiB") as kv:
        kv.commit([0])
        line = 0
        while interrupted_in("memory_range.py", line := line + 1, lambda: kv.protect(0, kv.chunk_size, "rw")):
            kv.protect(0, kv.chunk_size, "r")  # StateError if it was left busy
        assert line > 5
