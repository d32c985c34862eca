"""What nvidia-smi would have shown at the same moment: one process, one number.

Memory is counted for the process that asked the driver for it, in MiB, whatever it is for and whether it is used; a KV
cache is asked for whole, once. Source: nvidia-smi's documentation, "Used GPU Memory" of compute processes and
"FB Memory Usage"; ``nvmlDeviceGetComputeRunningProcesses``.
"""

from __future__ import annotations

import dataclasses

from .account import Account
from .server_run import ServerRun


@dataclasses.dataclass(frozen=True)
class ProcessView:
    """Bytes of one GPU. ``used`` is the server's number, ``others`` those of the rest, None where nothing tells.

    ``estimate`` says that it is worked out of the parts of the log; contexts and libraries (some 0.5 GiB) come on top.
    """

    used: int | None
    others: int
    total: int | None
    estimate: bool
    cannot: tuple[str, ...]

    def rows(self) -> list[str]:
        """The table as the tool prints it, as far as the log tells."""
        used = "?" if self.used is None else f"{self.used >> 20}MiB"
        whole = "?" if self.used is None else f"{(self.used + self.others) >> 20}MiB"
        total = "?" if self.total is None else f"{self.total >> 20}MiB"
        rows = [f"Memory-Usage {whole} / {total}", f"  process VLLM::EngineCore   {used}"]
        return rows + ([f"  other processes            {self.others >> 20}MiB"] if self.others else [])


def process_view(run: ServerRun, account: Account) -> ProcessView:
    """The view at the first failure, or while the server served."""
    failure = next((failure for failure in run.failures if failure.in_use is not None), None)
    if failure is not None:
        return ProcessView(failure.in_use, failure.others, failure.total or account.total, False, _cannot(run, account))
    held = account.held
    if held is not None and account.total is not None:
        held = min(held, account.total)  # what would have been more was never held
    return ProcessView(held, 0, account.total, held is not None, _cannot(run, account))


def _cannot(run: ServerRun, account: Account) -> tuple[str, ...]:
    """What the one number does not tell, with this log's figures."""
    said = ["which part it is: weights, KV cache, activations, graph pools and workspace are one number"]
    peak = run.serving.peak_usage
    if peak is not None and peak.usage is not None:
        whole = run.serving.total()
        mean = whole.usage_s / whole.seconds if whole.seconds else 0.0
        said.append(f"how full the KV cache was: {mean:.1%} on average and {peak.usage:.1%} at its peak, same number")
    if run.preemptions:
        said.append(f"that sequences lost their memory {run.preemptions:,} times: nothing was allocated or freed then")
    unallocated = next((failure.unallocated for failure in run.failures if failure.unallocated), None)
    if unallocated:
        said.append(f"that PyTorch held {unallocated >> 20} MiB which no tensor had")
    if run.failure_count:
        said.append("what was asked for when it failed: a failed allocation leaves no trace in it")
    if account.outside:
        said.append(f"that {account.outside >> 20} MiB were free by choice (gpu_memory_utilization)")
    return tuple(said)
