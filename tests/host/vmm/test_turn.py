"""Whose turn it is: a second thread is refused, a borrower is waited for."""

import threading

import pytest

import vmm
from vmm.one_thread import Turn, one_thread


class Counter:
    def __init__(self):
        self.busy, self.count = Turn(), 0

    @one_thread
    def add(self):
        self.count += 1

    @one_thread
    def hold(self, inside, let_go):
        inside.set()
        assert let_go.wait(30)


def in_thread(work, *args):
    thread = threading.Thread(target=work, args=args)
    thread.start()
    return thread


def test_a_second_thread_is_refused_and_cannot_borrow():
    counter, inside, let_go = Counter(), threading.Event(), threading.Event()
    thread = in_thread(counter.hold, inside, let_go)
    assert inside.wait(30)
    with pytest.raises(vmm.StateError, match="this Counter is being changed by another thread"):
        counter.add()
    with counter.busy.borrowed() as mine:
        assert not mine
        with pytest.raises(vmm.StateError):  # who could not borrow changes nothing
            counter.add()
    let_go.set()
    thread.join(30)
    counter.add()
    assert counter.count == 1


def test_the_owner_waits_for_a_borrower():
    counter = Counter()
    with counter.busy.borrowed() as mine:
        assert mine
        thread = in_thread(counter.add)
        thread.join(0.2)
        assert thread.is_alive()
        assert counter.count == 0
    thread.join(30)
    assert counter.count == 1
    with counter.busy.borrowed() as mine:
        assert mine
