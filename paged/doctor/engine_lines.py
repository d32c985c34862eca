"""Lines that say which vLLM it is and with which options it was started.

0.6, 0.7   Initializing an LLM engine (v0.6.1) with config: model='...', ... max_seq_len=8192, ...
0.7-0.9    Initializing a V0 LLM engine (v0.7.3) with config: ...
0.8 on     Initializing a V1 LLM engine (v0.8.4) with config: ...
0.6-0.8    args: Namespace(host=None, ..., gpu_memory_utilization=0.9, max_num_seqs=256, ...)
0.9 on     non-default args: {'model': '...', 'max_model_len': 8192, ...}
all        vLLM API server version 0.6.1
0.7 on     Chunked prefill is enabled with max_num_batched_tokens=2048.
"""

from __future__ import annotations

import re

from .line_format import Format
from .log_line import LogLine
from .server_run import ServerRun

OPTIONS = {
    "max_seq_len": "max_model_len",
    "max_model_len": "max_model_len",
    "model": "model",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "enforce_eager": "enforce_eager",
    "block_size": "block_size",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "enable_prefix_caching": "enable_prefix_caching",
}
"""Options that are read, by the names of the lines, and the names that they have on the command line."""

_VALUE = r"'(?:[^'\\]|\\.){0,400}'|[\w.+-]+"
_EQUALS = re.compile(rf"\b({'|'.join(OPTIONS)})=({_VALUE})")
_QUOTED = re.compile(rf"'({'|'.join(OPTIONS)})': ({_VALUE})")


def _engine(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.version = match[2]
    run.engine = match[1] or run.engine
    _take(run, _EQUALS, line.text)
    run.options.setdefault("enforce_eager", "False")


def _server(run: ServerRun, _line: LogLine, match: re.Match[str]) -> None:
    run.version = match[1]


def _namespace(run: ServerRun, line: LogLine, _match: re.Match[str]) -> None:
    _take(run, _EQUALS, line.text)


def _changed(run: ServerRun, line: LogLine, _match: re.Match[str]) -> None:
    _take(run, _QUOTED, line.text)


def _chunked(run: ServerRun, _line: LogLine, match: re.Match[str]) -> None:
    run.options["max_num_batched_tokens"] = match[1]


def _take(run: ServerRun, pattern: re.Pattern[str], text: str) -> None:
    """Read the options of a line; what is None there was left to vLLM."""
    for name, value in pattern.findall(text):
        if value not in ("None", "auto") or name == "kv_cache_dtype":
            run.options[OPTIONS[name]] = value.strip("'").removeprefix("torch.")


ENGINE_LINES = (
    Format(
        "engine",
        "LLM engine (v",
        re.compile(r"Initializing an? (?:(V[01]) )?LLM engine \(v([\w.+-]+)\)"),
        _engine,
    ),
    Format("server version", "API server version", re.compile(r"vLLM API server version ([\w.+-]+)"), _server),
    Format("arguments", "args: Namespace(", re.compile(r"args: Namespace\("), _namespace),
    Format("changed arguments", "non-default args", re.compile(r"non-default args: \{"), _changed),
    Format(
        "chunked prefill",
        "Chunked prefill is enabled",
        re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,9})"),
        _chunked,
    ),
)
