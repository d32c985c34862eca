"""Logs for the tests, written by hand in the formats that vLLM documents; beside a line stands which one it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paged.doctor.log_reader import Log, read_log

# -- 0.6: engine V0, the source without brackets, sizes in "GB" that are GiB -----------------------------------------
V06 = [
    "INFO 10-02 12:00:00 api_server.py:528] vLLM API server version 0.6.3",  # entrypoints/openai/api_server.py
    "INFO 10-02 12:00:00 api_server.py:529] args: Namespace(host=None, port=8000, model='meta-llama/Meta-Llama-3-8B', "
    "block_size=16, gpu_memory_utilization=0.9, max_num_batched_tokens=None, max_num_seqs=256)",  # the same file
    "INFO 10-02 12:00:10 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: "
    "model='meta-llama/Meta-Llama-3-8B', speculative_config=None, dtype=torch.bfloat16, max_seq_len=8192, "
    "tensor_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto",  # engine/llm_engine.py
    "INFO 10-02 12:00:11 model_runner.py:1060] Starting to load model meta-llama/Meta-Llama-3-8B...",
    "INFO 10-02 12:00:20 model_runner.py:1071] Loading model weights took 14.9595 GB",  # worker/model_runner.py
    "INFO 10-02 12:00:25 gpu_executor.py:122] # GPU blocks: 2500, # CPU blocks: 2048",  # executor/gpu_executor.py
    "INFO 10-02 12:00:25 gpu_executor.py:126] Maximum concurrency for 8192 tokens per request: 4.88x",  # since 0.6.3
    "INFO 10-02 12:00:27 model_runner.py:1402] Capturing the model for CUDA graphs. This may lead to more memory.",
    "INFO 10-02 12:00:39 model_runner.py:1530] Graph capturing finished in 12 secs.",  # without a size before 0.6.4
]

# -- 0.7: engine V0, the source in brackets, memory by part in three lines -------------------------------------------
V07 = [
    "INFO 03-01 08:00:00 [__init__.py:207] Automatically detected platform cuda.",  # no figure
    "INFO 03-01 08:00:09 [llm_engine.py:234] Initializing a V0 LLM engine (v0.7.3) with config: "
    "model='meta-llama/Meta-Llama-3-8B', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=1, "
    "quantization=None, enforce_eager=True, kv_cache_dtype=auto",  # engine/llm_engine.py
    "INFO 03-01 08:00:20 [model_runner.py:1115] Model loading took 14.9595 GiB and 11.2 seconds",
    "INFO 03-01 08:00:25 [worker.py:267] Memory profiling takes 4.26 seconds",  # worker/worker.py, one message of
    "INFO 03-01 08:00:25 [worker.py:267] the current vLLM instance can use total_gpu_memory (79.11GiB) x "
    "gpu_memory_utilization (0.90) = 71.20GiB",  # three lines
    "INFO 03-01 08:00:25 [worker.py:267] model weights take 14.96GiB; non_torch_memory takes 0.14GiB; PyTorch "
    "activation "
    "peak memory takes 1.21GiB; the rest of the memory reserved for KV Cache is 54.89GiB.",
    "INFO 03-01 08:00:26 [executor_base.py:111] # cuda blocks: 28103, # CPU blocks: 2048",  # "GPU" is named "cuda" now
    "INFO 03-01 08:00:26 [executor_base.py:116] Maximum concurrency for 4096 tokens per request: 109.78x",
    "INFO 03-01 08:00:30 [llm_engine.py:436] init engine (profile, create kv cache, warmup model) took 9.50 seconds",
]

# -- 0.11: engine V1, processes named before the level ---------------------------------------------------------------
V011 = [
    "(APIServer pid=102) INFO 11-14 06:32:25 [api_server.py:1839] vLLM API server version 0.11.0",
    "(APIServer pid=102) INFO 11-14 06:32:25 [utils.py:233] non-default args: {'model': 'meta-llama/Meta-Llama-3-8B', "
    "'max_model_len': 8192, 'gpu_memory_utilization': 0.9, 'max_num_seqs': 128}",  # entrypoints/utils.py
    "(EngineCore_DP0 pid=150) INFO 11-14 06:32:40 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: "
    "model='meta-llama/Meta-Llama-3-8B', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, "
    "quantization=None, enforce_eager=False, kv_cache_dtype=auto",  # v1/engine/core.py
    "(EngineCore_DP0 pid=150) INFO 11-14 06:32:41 [gpu_model_runner.py:2602] Starting to load model ...",
    "(EngineCore_DP0 pid=150) INFO 11-14 06:32:55 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 13.2 "
    "seconds",
    "(EngineCore_DP0 pid=150) INFO 11-14 06:33:06 [gpu_worker.py:298] Available KV cache memory: 54.00 GiB",
    "(EngineCore_DP0 pid=150) INFO 11-14 06:33:06 [kv_cache_utils.py:1087] GPU KV cache size: 442,368 tokens",
    "(EngineCore_DP0 pid=150) INFO 11-14 06:33:06 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per "
    "request: 54.00x",
    "(EngineCore_DP0 pid=150) INFO 11-14 06:33:15 [gpu_model_runner.py:3480] Graph capturing finished in 8 secs, took "
    "0.31 GiB",
    "(EngineCore_DP0 pid=150) INFO 11-14 06:33:15 [gpu_worker.py:391] Free memory on device (78.61/79.11 GiB) on "
    "startup. "
    "Desired GPU memory utilization is (0.9, 71.2 GiB). Actual usage is 14.99 GiB for weight, 1.23 GiB for peak "
    "activation, 0.98 GiB for non-torch memory, and 0.31 GiB for CUDAGraph memory. Replace gpu_memory_utilization "
    "config "
    "with `--kv-cache-memory=57650274304` to fit into requested memory. Current kv cache memory in use is 57982058496 "
    "bytes.",  # v1/worker/gpu_worker.py
    "(APIServer pid=102) INFO:     Application startup complete.",  # uvicorn
]

# -- 0.29: engine V1, graphs estimated before the KV cache, size and concurrency in one line -------------------------
V029 = [
    "(EngineCore pid=219) INFO 09-20 10:43:00 [core.py:116] Initializing a V1 LLM engine (v0.29.0) with config: "
    "model='meta-llama/Meta-Llama-3-8B', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, "
    "quantization=None, enforce_eager=False, kv_cache_dtype=auto",
    "(EngineCore pid=219) INFO 09-20 10:43:10 [model_runner.py:791] Model loading took 14.99 GiB memory and 7.0 "
    "seconds",
    "(EngineCore pid=219) INFO 09-20 10:43:19 [gpu_model_runner.py:6042] Estimated CUDA graph memory: 1.10 GiB total",
    "(EngineCore pid=219) INFO 09-20 10:43:20 [gpu_worker.py:440] Available KV cache memory: 4.00 GiB",
    "(EngineCore pid=219) INFO 09-20 10:43:20 [kv_cache_utils.py:2235] GPU KV cache size: 32,768 tokens, Maximum "
    "concurrency for 8,192 tokens per request: 4.00x",
    "(EngineCore pid=219) INFO 09-20 10:43:28 [model_runner.py:1371] Graph capturing finished in 18 secs, took 0.96 "
    "GiB",
    "(EngineCore pid=219) INFO 09-20 10:43:28 [gpu_worker.py:907] Free memory on device cuda:0 (23.50/24.00 GiB) on "
    "startup. Desired GPU memory utilization is (0.92, 22.08 GiB). Actual usage is 15.20 GiB for consumed memory "
    "(weights + non-torch), 1.66 GiB for peak activation, and 0.96 GiB for CUDAGraph memory. Replace "
    "gpu_memory_utilization config with `--kv-cache-memory-bytes=4294967296` (4.0 GiB) to fit into requested memory. "
    "Current kv cache memory in use is 4.00 GiB.",
]

START = {"0.6": V06, "0.7": V07, "0.11": V011, "0.29": V029}


def served_v0(at: str, prompt: float, output: float, running: int, waiting: int, usage: float) -> str:
    """V0's line of throughput (engine/metrics.py)."""
    return (
        f"INFO 10-02 {at} metrics.py:351] Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: "
        f"{output} "
        f"tokens/s, Running: {running} reqs, Swapped: 0 reqs, Pending: {waiting} reqs, GPU KV cache usage: {usage}%, "
        f"CPU "
        "KV cache usage: 0.0%."
    )


def served_v1(at: str, prompt: float, output: float, running: int, waiting: int, usage: float) -> str:
    """V1's line of throughput (v1/metrics/loggers.py)."""
    return (
        f"(APIServer pid=102) INFO 11-14 {at} [loggers.py:127] Engine 000: Avg prompt throughput: {prompt} tokens/s, "
        f"Avg "
        f"generation throughput: {output} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache "
        f"usage: "
        f"{usage}%, Prefix cache hit rate: 0.0%"
    )


def clock(step: int, every: int = 10) -> str:
    """The time of the ``step``-th line, ``every`` seconds apart."""
    seconds = 7 * 3600 + step * every
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def out_of_memory(
    asked: str, free: str, total: str, mine: str, unallocated: str = "100.00 MiB", others: str = ""
) -> str:
    """PyTorch's message since 2.2 (c10/cuda/CUDACachingAllocator.cpp)."""
    other = f"Process 77 has {others} memory in use. " if others else ""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of "
        f"{total} of "
        f"which {free} is free. {other}Including non-PyTorch memory, this process has {mine} memory in use. Of the "
        f"allocated memory 1.00 GiB is allocated by PyTorch, and {unallocated} is reserved by PyTorch but unallocated."
    )


def frame(file: str, function: str) -> str:
    """A frame of Python's traceback."""
    return f'  File "/usr/lib/python3.12/site-packages/{file}", line 7, in {function}'


class Writer:
    """What the tests write their logs with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start = START
        self.served_v0, self.served_v1, self.clock = served_v0, served_v1, clock
        self.out_of_memory, self.frame = out_of_memory, frame

    def file(self, lines: list[str]) -> Path:
        path = self.folder / "server.log"
        path.write_text("\n".join(lines) + "\n")
        return path

    def read(self, lines: list[str]) -> Log:
        return read_log(self.file(lines))


@pytest.fixture
def logs(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


@pytest.fixture
def lengths(tmp_path: Path) -> Callable[..., Path]:
    """A CSV with so many requests of one prompt and one output length."""

    def write(count: int = 60, prompt: int = 500, output: int = 100) -> Path:
        path = tmp_path / "lengths.csv"
        path.write_text("prompt,output\n" + f"{prompt},{output}\n" * count)
        return path

    return write
