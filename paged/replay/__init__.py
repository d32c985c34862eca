"""Replay: a request trace against policies of memory.

``options`` (what can be told) -> ``setup`` (what a run needs) -> ``run`` -> ``report`` -> ``table`` and ``chart``.
"""

from .run import Run, load_workload, load_workloads, replay, report_of, run_all, run_policy

__all__ = ["Run", "load_workload", "load_workloads", "replay", "report_of", "run_all", "run_policy"]
