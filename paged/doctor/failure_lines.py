"""Lines at which memory ran out.

torch >= 2.2   CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 44.34 GiB of which
               160.81 MiB is free. [Process 7 has 30.53 GiB memory in use.] [Including non-PyTorch memory,] this process
               has 44.17 GiB memory in use. Of the allocated memory 43.36 GiB is allocated by PyTorch[, with 41.88 MiB
               allocated in private pools (e.g., CUDA Graphs)], and 396.27 MiB is reserved by PyTorch but unallocated.
torch < 2.2    Tried to allocate 1.63 GiB (GPU 0; 44.56 GiB total capacity; 27.91 GiB already allocated; ...)
0.8 on         CUDA out of memory occurred when warming up sampler with 1024 dummy requests.
all            No available memory for the cache blocks.
V0             The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV
                   cache (4096)
0.8 on         To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which
               is larger than the available KV cache memory (4.11 GiB).
0.9 on         Free memory on device (12.18/23.56 GiB) on startup is less than desired GPU memory utilization
                   (0.92, 21.67 GiB)
libraries      CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED, NCCL's "out of memory", "CUDA error: out of ..."
"""

from __future__ import annotations

import re
from typing import Any

from .line_format import DECIMAL, SIZE, Format, count_of, share_of, size_of
from .log_line import LogLine
from .server_run import Failure, ServerRun

_LONGEST_TEXT = 300
_PARTS = {
    "asked": re.compile(rf"Tried to allocate {SIZE}"),
    "total": re.compile(rf"total capacity of {SIZE}|{SIZE} total capacity"),
    "free": re.compile(rf"of which {SIZE} is free|{SIZE} free[;)]"),
    "in_use": re.compile(rf"this process has {SIZE} memory in use"),
    "allocated": re.compile(rf"Of the allocated memory {SIZE} is allocated|{SIZE} already allocated"),
    "graph_pools": re.compile(rf"with {SIZE} allocated in private pools"),
    "unallocated": re.compile(rf"and {SIZE} is reserved by PyTorch but unallocated"),
}
_OTHER = re.compile(rf"Process \d+ has {SIZE} memory in use")
_RESERVED = re.compile(rf"{SIZE} reserved in total by PyTorch")


def _torch(run: ServerRun, line: LogLine, _match: re.Match[str]) -> None:
    parts: dict[str, int] = {}
    for name, pattern in _PARTS.items():
        found = pattern.search(line.text)
        if found:
            number, unit = (group for group in found.groups() if group is not None)
            parts[name] = size_of(number, unit)
    others = [size_of(number, unit) for number, unit in _OTHER.findall(line.text)]
    if "in_use" not in parts and len(others) == 1:
        parts["in_use"] = others.pop()  # in a container the process does not know its own number
    reserved = _RESERVED.search(line.text)
    if reserved and "allocated" in parts:
        parts["unallocated"] = size_of(reserved[1], reserved[2]) - parts["allocated"]
    _fail(run, line, "torch", others=sum(others), **parts)


def _sampler(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    _fail(run, line, "sampler", needed=int(match[1]))


def _no_cache(run: ServerRun, line: LogLine, _match: re.Match[str]) -> None:
    _fail(run, line, "no cache")


def _model_len(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.options["max_model_len"] = match[1]
    needed, available = size_of(match[2], match[3]), size_of(match[4], match[5])
    _fail(run, line, "model len", needed=needed, available=available)


def _model_len_tokens(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.options["max_model_len"] = match[1]
    run.note("kv_tokens", count_of(match[2]), line.number)
    _fail(run, line, "model len")


def _others(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    free, total, needed = (size_of(match[group], "GiB") for group in (1, 2, 4))
    run.note("free_at_start", free, line.number)
    run.note("total", total, line.number)
    run.note("utilization", share_of(match[3]), line.number)
    run.note("requested", needed, line.number)
    _fail(run, line, "free memory", free=free, total=total, needed=needed)


def _library(run: ServerRun, line: LogLine, _match: re.Match[str]) -> None:
    _fail(run, line, "library")


def _frame(run: ServerRun, _line: LogLine, match: re.Match[str]) -> None:
    run.frames.append(f"{match[1].rpartition('site-packages/')[2]}:{match[2]}")


def _fail(run: ServerRun, line: LogLine, kind: str, **figures: Any) -> None:
    text = " ".join(line.text.split())[:_LONGEST_TEXT]
    run.fail(Failure(kind, line.number, run.phase, text, frames=tuple(run.frames), sample=run.serving.last, **figures))


FAILURE_LINES = (
    Format(
        "out of memory", "Tried to allocate", re.compile(rf"out of memory.{{1,80}}Tried to allocate {SIZE}"), _torch
    ),
    Format(
        "sampler", "when warming up sampler", re.compile(r"warming up sampler with (\d{1,9}) dummy requests"), _sampler
    ),
    Format("no cache", "No available memory for the cache blocks", re.compile("No available memory"), _no_cache),
    Format(
        "one sequence",
        "To serve at least one request",
        re.compile(
            rf"max seq len \((\d{{1,12}})\), \(?{SIZE} KV cache is needed, which is larger than the available KV cache "
            rf"memory \({SIZE}\)"
        ),
        _model_len,
    ),
    Format(
        "one sequence",
        "larger than the maximum number of tokens",
        re.compile(
            r"max seq len \((\d{1,12})\) is larger than the maximum number of tokens that can be stored in KV cache "
            r"\((\d{1,12})\)"
        ),
        _model_len_tokens,
    ),
    Format(
        "free memory",
        "on startup is less than desired",
        re.compile(
            rf"Free memory on device(?: [\w:]{{1,20}})? \(({DECIMAL})/({DECIMAL}) GiB\) on startup is less than "
            rf"desired GPU memory utilization \(({DECIMAL}), ({DECIMAL}) GiB\)"
        ),
        _others,
    ),
    Format(
        "library",
        "ALLOC_FAILED",
        re.compile(r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED"),
        _library,
    ),
    Format("library", "CUDA error: out of memory", re.compile("CUDA error: out of memory"), _library),
    Format("library", "Cuda failure", re.compile(r"Cuda failure (?:2 )?'out of memory'"), _library),
    Format("frame", 'File "', re.compile(r'^\s*File "([^"]{1,400})", line \d+, in (\S{1,200})'), _frame),
)
