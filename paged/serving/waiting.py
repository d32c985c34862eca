"""Who waits, in which order they are admitted, and which running sequence is preempted: the rules of vLLM's scheduler.

First come first served: those that were preempted go first, and the sequence admitted last is preempted. By priority:
the lowest number goes first, among equals who came first, and the sequence that would be the last of them is preempted.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Iterator
from typing import Protocol

from .job import Job

SCHEDULING = ("fcfs", "priority")
"""The names of the orders, as vLLM has them."""


class Waiting(Protocol):
    """The queue of a scheduler. It is true while somebody waits."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Job]: ...

    def add(self, job: Job) -> None:
        """A request has arrived."""
        ...

    def put_back(self, job: Job) -> None:
        """A sequence was preempted."""
        ...

    def first(self) -> Job:
        """Who is admitted next."""
        ...

    def pop(self) -> Job:
        """Take out who is admitted next."""
        ...

    def victim(self, running: dict[int, Job]) -> Job:
        """Which of ``running``, in the order of admission, is preempted."""
        ...


class FirstComeFirstServed:
    """The queue whose order is that of arrival."""

    def __init__(self) -> None:
        self._jobs: collections.deque[Job] = collections.deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def add(self, job: Job) -> None:
        """At the end."""
        self._jobs.append(job)

    def put_back(self, job: Job) -> None:
        """At the head."""
        self._jobs.appendleft(job)

    def first(self) -> Job:
        """The head."""
        return self._jobs[0]

    def pop(self) -> Job:
        """Take the head."""
        return self._jobs.popleft()

    def victim(self, running: dict[int, Job]) -> Job:
        """The one admitted last."""
        return running[next(reversed(running))]


class ByPriority:
    """The queue whose order is that of ``Job.priority``, and of arrival among equals."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Job]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Job]:
        return (job for _, _, job in sorted(self._heap))

    def add(self, job: Job) -> None:
        """Where its priority and its number put it."""
        heapq.heappush(self._heap, (job.priority, job.number, job))

    put_back = add

    def first(self) -> Job:
        """The lowest number."""
        return self._heap[0][2]

    def pop(self) -> Job:
        """Take the lowest number."""
        return heapq.heappop(self._heap)[2]

    def victim(self, running: dict[int, Job]) -> Job:
        """The one whose turn would come last. Looks at all of them: it is asked only when memory lacks."""
        return max(running.values(), key=lambda job: (job.priority, job.number))


def make_waiting(scheduling: str) -> Waiting:
    """The queue of one of SCHEDULING."""
    return FirstComeFirstServed() if scheduling == "fcfs" else ByPriority()
