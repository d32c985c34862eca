"""Turns: several models on one GPU. They have one clock and take turns, a step each, as far as they have work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..policies.policy import Usage
from .meter import Meter
from .scheduler import SchedulerError
from .simulation import REPORT_EVERY, Simulation


class Turns:
    """Runs ``members``, which all begin at time 0 and share one ``meter``. While one steps the others rest.

    A member that can only wait for memory of others takes no turn. ``finished_s`` says when each had served its last
    request. Raises SchedulerError when none can go on.
    """

    def __init__(self, members: Sequence[Simulation], meter: Meter) -> None:
        self.members = list(members)
        self.meter = meter
        self.now = 0.0
        self.finished_s = [0.0] * len(self.members)
        self._last = len(self.members) - 1  # who had the last turn
        self._told = 0

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Serve every request of every member; ``progress`` hears how many are done with."""
        while True:
            for member in self.members:
                member.now = self.now
                member.arrive()
            if any(_busy(member) for member in self.members):
                self._step()
            elif min(member.next_arrival for member in self.members) < float("inf"):
                self.now = min(member.next_arrival for member in self.members)
                self._pass(None)
            else:
                break
            if progress:
                self._tell(progress)
        self.meter.finish()

    def _step(self) -> None:
        """Let the next member that can take a step."""
        count = len(self.members)
        for index in [(self._last + 1 + turn) % count for turn in range(count)]:
            member = self.members[index]
            if not _busy(member):
                continue
            self.now += member.compose()
            if not member.scheduler.tokens:
                continue
            self._last = index
            self._pass(member)
            member.scheduler.complete()
            if not _busy(member):
                self.finished_s[index] = self.now
            return
        raise SchedulerError("several models wait for each other's memory and none can go on; give a larger budget")

    def _pass(self, stepping: Simulation | None) -> None:
        """Let the time pass in which one member steps, or none."""
        if any(member.scheduler.touched for member in self.members):
            usages = [member.policy.usage() for member in self.members]
            self.meter.set(Usage(*(sum(parts) for parts in zip(*usages, strict=True))))
        live = sum(member.live if member is stepping else member.resting for member in self.members)
        self.meter.advance(self.now, live, sum(len(member.scheduler.running) for member in self.members))

    def _tell(self, progress: Callable[[int], None]) -> None:
        done = sum(member.scheduler.completed + member.scheduler.rejected for member in self.members)
        if done >= self._told + REPORT_EVERY:
            self._told = done
            progress(done)


def _busy(member: Simulation) -> bool:
    return bool(member.scheduler.running or member.scheduler.waiting)
