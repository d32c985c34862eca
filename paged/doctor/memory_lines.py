"""Lines of the start that say what memory is spent on. Sizes are those of one GPU.

0.6, 0.7   Loading model weights took 14.9595 GB                        (GiB, whatever it says)
0.7 on     Model loading took 14.9889 GiB and 13.20 seconds             (0.11 on: "GiB memory and")
0.6        Memory profiling results: total_gpu_memory=79.11GiB initial_memory_usage=... peak_torch_memory=...
0.7, 0.8   the current vLLM instance can use total_gpu_memory (79.11GiB) x gpu_memory_utilization (0.90) = 71.20GiB
0.7, 0.8   model weights take 14.99GiB; non_torch_memory takes 0.09GiB; PyTorch activation peak memory takes ...
V1         Available KV cache memory: 54.05 GiB
V1         Total non KV cache memory: 16.51GiB; torch peak memory increase: 1.21GiB; ... (DEBUG)
0.11 on    Free memory on device (78.6/79.1 GiB) on startup. Desired GPU memory utilization is (0.9, 71.2 GiB). ...
V0         # GPU blocks: 27902, # CPU blocks: 2048                      (0.7 on: "# cuda blocks")
V1         GPU KV cache size: 442,768 tokens
0.6.3 on   Maximum concurrency for 8192 tokens per request: 54.50x
all        Graph capturing finished in 12 secs.                         (0.6.4 on: ", took 0.26 GiB")
0.19 on    Estimated CUDA graph memory: 1.10 GiB total
"""

from __future__ import annotations

import re

from .line_format import DECIMAL, SIZE, Format, Record, count_of, share_of, size_of
from .log_line import LogLine
from .server_run import ServerRun


def _sizes(*names: str, enters: str | None = None) -> Record:
    """Note sizes, a number and a unit each, in the order of ``names``."""

    def record(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
        for index, name in enumerate(names):
            run.note(name, size_of(match[2 * index + 1], match[2 * index + 2]), line.number)
        if enters:
            run.enter(enters)

    return record


def _profiled(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    """0.6: the peak of PyTorch has the weights in it, so that activations are what is above them."""
    sizes = {name: size_of(number, unit) for name, number, unit in re.findall(rf"(\w+)={SIZE}", line.text)}
    for name, key in (("total", "total_gpu_memory"), ("non_torch", "non_torch_memory"), ("kv", "kv_cache_size")):
        run.note(name, sizes[key], line.number)
    run.note("utilization", share_of(match[1]), line.number)
    weights = run.value("weights")
    if weights is not None:
        run.note("activations", max(0, sizes["peak_torch_memory"] - int(weights)), line.number)
    run.enter("cache")


def _instance(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.note("total", size_of(match[1], match[2]), line.number)
    run.note("utilization", share_of(match[3]), line.number)
    run.note("requested", size_of(match[4], match[5]), line.number)


def _startup(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.note("free_at_start", size_of(match[1], "GiB"), line.number)
    run.note("total", size_of(match[2], "GiB"), line.number)
    run.note("utilization", share_of(match[3]), line.number)
    run.note("requested", size_of(match[4], "GiB"), line.number)
    held = re.search(rf"Actual usage is {SIZE} for (weight|consumed memory)", line.text)
    if held and held[3] == "weight":
        run.note("weights", size_of(held[1], held[2]), line.number)
    elif held:
        run.note("weights_and_non_torch", size_of(held[1], held[2]), line.number)
    for name, words in (
        ("activations", "for peak activation"),
        ("non_torch", "for non-torch memory"),
        ("graphs", "for CUDAGraph memory"),
        ("kv", None),
    ):
        found = re.search(rf"{SIZE} {words}" if words else rf"Current kv cache memory in use is {SIZE}", line.text)
        if found:
            run.note(name, size_of(found[1], found[2]), line.number)


def _blocks(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.note("kv_blocks", count_of(match[1]), line.number)
    run.note("cpu_blocks", count_of(match[2]), line.number)
    run.enter("graphs")


def _tokens(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.note("kv_tokens", count_of(match[1]), line.number)
    run.enter("graphs")


def _concurrency(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    run.note("concurrency_tokens", count_of(match[1]), line.number)
    run.note("concurrency", float(match[2]), line.number)
    run.options.setdefault("max_model_len", match[1].replace(",", ""))


def _captured(run: ServerRun, line: LogLine, match: re.Match[str]) -> None:
    if match[1]:
        run.note("graphs", size_of(match[1], match[2]), line.number)
    run.enter("serving")


def _enter(phase: str) -> Record:
    return lambda run, _line, _match: run.enter(phase)


MEMORY_LINES = (
    Format(
        "weights",
        "weights took",
        re.compile(rf"Loading (?:model )?weights took (?:[\d.]+ seconds|{SIZE})"),
        lambda run, line, match: _sizes("weights", enters="profile")(run, line, match) if match[1] else None,
    ),
    Format(
        "weights", "Model loading took", re.compile(rf"Model loading took {SIZE}"), _sizes("weights", enters="profile")
    ),
    Format("loading", "Starting to load model", re.compile("Starting to load model"), _enter("weights")),
    Format(
        "profile",
        "Memory profiling results",
        re.compile(
            r"Memory profiling results: total_gpu_memory=.{1,99}peak_torch_memory=.{1,99}non_torch_memory="
            rf".{{1,40}}kv_cache_size=.{{1,40}}gpu_memory_utilization=({DECIMAL})"
        ),
        _profiled,
    ),
    Format(
        "profile time",
        "Memory profiling takes",
        re.compile(r"Memory profiling takes [\d.]{1,16} seconds"),
        _enter("cache"),
    ),
    Format(
        "profile",
        "vLLM instance can use",
        re.compile(
            rf"can use total_gpu_memory \({SIZE}\) x gpu_memory_utilization \(({DECIMAL})\) = {SIZE}",
        ),
        _instance,
    ),
    Format(
        "profile",
        "model weights take",
        re.compile(
            rf"model weights take {SIZE}; non_torch_memory takes {SIZE}; "
            rf"PyTorch activation peak memory takes {SIZE}; the rest of the memory reserved for KV Cache is {SIZE}"
        ),
        _sizes("weights", "non_torch", "activations", "kv", enters="cache"),
    ),
    Format(
        "profile",
        "Total non KV cache memory",
        re.compile(
            rf"Total non KV cache memory: {SIZE}; torch peak memory increase: {SIZE}; "
            rf"non-torch forward increase memory: {SIZE}; weights memory: {SIZE}"
        ),
        _sizes("non_kv", "activations", "non_torch", "weights", enters="cache"),
    ),
    Format(
        "KV memory",
        "Available KV cache memory",
        re.compile(rf"Available KV cache memory: {SIZE}"),
        _sizes("kv", enters="cache"),
    ),
    Format(
        "startup",
        "on startup. Desired",
        re.compile(
            rf"Free memory on device(?: [\w:]{{1,20}})? \(({DECIMAL})/({DECIMAL}) GiB\) on startup\. "
            rf"Desired GPU memory utilization is \(({DECIMAL}), ({DECIMAL}) GiB\)"
        ),
        _startup,
    ),
    Format(
        "blocks",
        "blocks: ",
        re.compile(r"# (?:GPU|cuda) blocks: ([\d,]+), # CPU blocks: ([\d,]+)"),
        _blocks,
    ),
    Format("KV tokens", "GPU KV cache size", re.compile(r"GPU KV cache size: ([\d,]+) tokens"), _tokens),
    Format(
        "concurrency",
        "Maximum concurrency for",
        re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]{1,16})x"),
        _concurrency,
    ),
    Format(
        "capturing",
        "Capturing",
        re.compile("Capturing (?:cudagraphs|the model for CUDA graphs|CUDA graph)"),
        _enter("graphs"),
    ),
    Format(
        "captured",
        "Graph capturing finished",
        re.compile(rf"Graph capturing finished in [\d.]+ secs(?:, took {SIZE})?"),
        _captured,
    ),
    Format(
        "graph estimate",
        "Estimated CUDA graph memory",
        re.compile(rf"Estimated CUDA graph memory: {SIZE}"),
        _sizes("graphs_estimated"),
    ),
    Format(
        "ready",
        "init engine (",
        re.compile(r"init engine \(profile, create kv cache, warmup model\) took"),
        _enter("serving"),
    ),
)
