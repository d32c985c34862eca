"""Prometheus metrics of a pool: at the end of a recording as text, or live on localhost. Needs prometheus-client."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from ..recording import PoolRecorder, Recording
from ..recording.figures import Figures, figures
from ..recording.state import State

LOCALHOST = "127.0.0.1"

_HELP = {
    "reserved": "Bytes of virtual addresses.",
    "committed": "Bytes of physical memory, what retires included.",
    "held": "Bytes of the blocks that sequences hold.",
    "live": "Bytes of tokens that exist.",
    "cached": "Bytes of blocks that only the prefix cache keeps.",
    "retiring": "Bytes given back that work in flight may still use.",
}

Values = tuple[Figures, Mapping[str, int], Mapping[str, int]]
"""What is in use, and the driver's calls so far: how many, and their nanoseconds."""


class PoolCollector:
    """A collector for a registry of prometheus-client. ``values`` is asked at each scrape."""

    def __init__(self, pool: str, values: Callable[[], Values]) -> None:
        self.pool, self.values = pool, values

    def collect(self) -> Iterator[Any]:
        """The metrics, each labelled with the pool's name."""
        core = client("metrics_core")
        now, counts, durations = self.values()
        for name, text in _HELP.items():
            gauge = core.GaugeMetricFamily(f"pagewalk_{name}_bytes", text, labels=["pool"])
            gauge.add_metric([self.pool], getattr(now, name))
            yield gauge
        gauge = core.GaugeMetricFamily("pagewalk_sequences", "Sequences that have not been freed.", labels=["pool"])
        gauge.add_metric([self.pool], now.sequences)
        yield gauge
        calls = core.CounterMetricFamily("pagewalk_driver_calls", "Calls of the driver.", labels=["pool", "call"])
        seconds = core.CounterMetricFamily("pagewalk_driver_seconds", "Seconds in them.", labels=["pool", "call"])
        for call, count in counts.items():
            calls.add_metric([self.pool, call], count)
            seconds.add_metric([self.pool, call], durations.get(call, 0) / 1e9)
        yield calls
        yield seconds


def values_of(recording: Recording) -> Values:
    """The values at the end of a recording."""
    state = State()
    state.apply_all(recording.rows, recording.ids)
    counts, durations = (recording.marks[-1].counts, recording.marks[-1].durations) if recording.marks else ({}, {})
    return figures(recording.about, state), counts, durations


def live_values(recorder: PoolRecorder) -> Values:
    """The values of a pool that is being recorded, now: asked of the pool itself."""
    pool, calls = recorder.pool, recorder.calls
    held = pool.block_pool.used - pool.blocks_idle
    now = Figures(
        pool.reserved,
        pool.committed,
        held * pool.layout.block_bytes,
        pool.live,
        pool.blocks_idle * pool.layout.block_bytes,
        pool.retiring,
        len(pool.sequences),
    )
    return now, calls.counts() if calls else {}, calls.durations() if calls else {}


def client(module: str) -> Any:
    """A module of prometheus-client. Raises ValueError where it is missing."""
    try:
        return importlib.import_module(f"prometheus_client.{module}")
    except ImportError:
        raise ValueError("metrics need prometheus-client; pip install 'pagewalk[metrics]'") from None


def registry_of(pool: str, values: Callable[[], Values]) -> Any:
    """A registry of its own with the metrics of one pool. Raises ValueError where prometheus-client is missing."""
    registry = client("registry").CollectorRegistry()
    registry.register(PoolCollector(pool, values))
    return registry


def write(recording: Recording, out: BinaryIO) -> None:
    """The text that a scrape at the end of the recording would get."""
    registry = registry_of(recording.about["range"], lambda: values_of(recording))
    out.write(client("exposition").generate_latest(registry))


def serve(registry: Any, port: int) -> tuple[Any, int]:
    """Answer scrapes on localhost, and on no other address, until ``shutdown`` of what is returned; with the port.

    Port 0 takes a free one. Raises OSError for a port that is taken.
    """
    server, _thread = client("exposition").start_http_server(port, addr=LOCALHOST, registry=registry)
    return server, int(server.server_port)
