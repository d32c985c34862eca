"""Each format gives the numbers that stand in its line; the name of a case says which version has the format."""

from typing import Any

import pytest

from paged.doctor.log_line import split_head
from paged.doctor.log_reader import FORMATS
from paged.doctor.server_run import ServerRun

GIB, MIB = 1 << 30, 1 << 20


def read(*lines: str, run: ServerRun | None = None) -> ServerRun:
    run = run or ServerRun()
    for number, text in enumerate(lines, 1):
        line = split_head(number, text)
        for form in FORMATS:
            if form.needle in line.text and (match := form.pattern.search(line.text)):
                form.record(run, line, match)
    return run


def found(run: ServerRun) -> dict[str, float]:
    return {name: value.value for name, value in run.found.items()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("Loading model weights took 14.9595 GB", {"weights": round(14.9595 * GIB)}, id="0.6"),
        pytest.param("Model loading took 15.0 GiB and 11.2 seconds", {"weights": 15 * GIB}, id="0.7"),
        pytest.param("Model loading took 15.0 GiB memory and 7.0 seconds", {"weights": 15 * GIB}, id="0.11"),
        pytest.param("Loading weights took 3.75 seconds", {}, id="0.8 time only"),
        pytest.param("# GPU blocks: 27902, # CPU blocks: 2048", {"kv_blocks": 27902, "cpu_blocks": 2048}, id="0.6"),
        pytest.param("# cuda blocks: 13618, # CPU blocks: 0", {"kv_blocks": 13618, "cpu_blocks": 0}, id="0.7"),
        pytest.param("GPU KV cache size: 686,320 tokens", {"kv_tokens": 686320}, id="V1"),
        pytest.param(
            "GPU KV cache size: 112,347 tokens, Maximum concurrency for 98,304 tokens per request: 1.14x",
            {"kv_tokens": 112347, "concurrency_tokens": 98304, "concurrency": 1.14},
            id="0.29 both",
        ),
        pytest.param(
            "Maximum concurrency for 8192 tokens per request: 54.50x",
            {"concurrency_tokens": 8192, "concurrency": 54.5},
            id="0.6.3",
        ),
        pytest.param("Available KV cache memory: 54.5 GiB", {"kv": round(54.5 * GIB)}, id="V1"),
        pytest.param("Available KV cache memory: -14.25 GiB", {"kv": round(-14.25 * GIB)}, id="V1 nothing left"),
        pytest.param("Graph capturing finished in 12 secs.", {}, id="0.6"),
        pytest.param("Graph capturing finished in 5 secs, took 0.5 GiB", {"graphs": GIB // 2}, id="0.6.4"),
        pytest.param("Estimated CUDA graph memory: 0.25 GiB total", {"graphs_estimated": GIB // 4}, id="0.19"),
        pytest.param(
            "the current vLLM instance can use total_gpu_memory (80.00GiB) x gpu_memory_utilization (0.90) = 72.00GiB",
            {"total": 80 * GIB, "utilization": 0.9, "requested": 72 * GIB},
            id="0.7",
        ),
        pytest.param(
            "model weights take 15.00GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes "
            "1.50GiB; "
            "the rest of the memory reserved for KV Cache is 55.25GiB.",
            {"weights": 15 * GIB, "non_torch": GIB // 4, "activations": 3 * GIB // 2, "kv": 221 * GIB // 4},
            id="0.7",
        ),
        pytest.param(
            "Memory profiling takes 1.2 seconds. Total non KV cache memory: 16.50GiB; torch peak memory increase: "
            "1.25GiB; "
            "non-torch forward increase memory: 0.25GiB; weights memory: 15.00GiB.",
            {"non_kv": 33 * GIB // 2, "activations": 5 * GIB // 4, "non_torch": GIB // 4, "weights": 15 * GIB},
            id="V1 DEBUG",
        ),
        pytest.param("Prefix cache hit rate: GPU: 62.50%, CPU: 0.00%", {"prefix_hit_rate": 0.625}, id="0.6"),
    ],
)
def test_memory_of_the_start(line: str, expected: dict[str, float]) -> None:
    assert found(read(f"INFO 10-02 12:00:00 [worker.py:1] {line}")) == expected


def test_the_profile_of_0_6_4_has_the_weights_in_its_peak() -> None:
    run = read(
        "INFO 12-06 14:55:15 model_runner.py:1077] Loading model weights took 2.0000 GB",
        "INFO 12-06 14:55:15 worker.py:232] Memory profiling results: total_gpu_memory=8.00GiB "
        "initial_memory_usage=2.37GiB "
        "peak_torch_memory=2.75GiB memory_usage_post_profile=2.39Gib non_torch_memory=0.25GiB kv_cache_size=4.20GiB "
        "gpu_memory_utilization=0.90",
    )
    values = found(run)
    assert values["activations"] == 0.75 * GIB
    assert (values["total"], values["non_torch"], values["utilization"]) == (8 * GIB, GIB // 4, 0.9)
    assert values["kv"] == round(4.2 * GIB)


def test_the_line_of_0_11_has_all_parts() -> None:
    run = read(
        "INFO 11-14 06:33:15 [gpu_worker.py:391] Free memory on device (78.50/79.00 GiB) on startup. Desired GPU "
        "memory "
        "utilization is (0.9, 71.0 GiB). Actual usage is 15.00 GiB for weight, 1.25 GiB for peak activation, 0.50 GiB "
        "for "
        "non-torch memory, and 0.25 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with "
        "`--kv-cache-memory=1` (9.00 GiB) to fit. Current kv cache memory in use is 58250000000 bytes."
    )
    assert found(run) == {
        "free_at_start": round(78.5 * GIB),
        "total": 79 * GIB,
        "utilization": 0.9,
        "requested": 71 * GIB,
        "weights": 15 * GIB,
        "activations": 5 * GIB // 4,
        "non_torch": GIB // 2,
        "graphs": GIB // 4,
        "kv": 58_250_000_000,
    }


def test_the_line_of_0_29_has_weights_and_the_rest_in_one() -> None:
    run = read(
        "INFO 09-20 10:43:28 [gpu_worker.py:907] Free memory on device cuda:0 (23.50/24.00 GiB) on startup. Desired "
        "GPU "
        "memory utilization is (0.92, 22.08 GiB). Actual usage is 15.25 GiB for consumed memory (weights + non-torch), "
        "1.50 GiB for peak activation, and 1.00 GiB for CUDAGraph memory. Current kv cache memory in use is 4.00 GiB."
    )
    values = found(run)
    assert values["weights_and_non_torch"] == 61 * GIB // 4
    assert "weights" not in values
    assert (values["kv"], values["graphs"], values["activations"]) == (4 * GIB, GIB, 3 * GIB // 2)


@pytest.mark.parametrize(
    ("line", "version", "engine", "generation"),
    [
        ("Initializing an LLM engine (v0.6.1.post2) with config: model='m'", "0.6.1.post2", None, "V0"),
        ("Initializing a V0 LLM engine (v0.9.1) with config: model='m'", "0.9.1", "V0", "V0"),
        ("Initializing a V1 LLM engine (v0.8.4) with config: model='m'", "0.8.4", "V1", "V1"),
        (
            "Initializing a V1 LLM engine (v0.11.0rc2.dev399+ge94c) with config: model='m'",
            "0.11.0rc2.dev399+ge94c",
            "V1",
            "V1",
        ),
        ("vLLM API server version 0.7.3", "0.7.3", None, "V0"),
        ("vLLM API server version 0.33.0", "0.33.0", None, "V1"),
    ],
)
def test_version_and_engine(line: str, version: str, engine: str | None, generation: str) -> None:
    run = read(f"INFO 10-02 12:00:00 [llm_engine.py:1] {line}")
    assert (run.version, run.engine, run.generation) == (version, engine, generation)


def test_options_of_a_namespace_a_dictionary_and_a_config() -> None:
    run = read(
        "INFO 10-02 12:00:00 api_server.py:5] args: Namespace(model='a/b', gpu_memory_utilization=0.85, "
        "max_num_seqs=64, "
        "max_num_batched_tokens=None, block_size=32, enforce_eager=True)",
        "INFO 10-02 12:00:01 [utils.py:233] non-default args: {'model_tag': 'x', 'model': 'c/d', 'max_model_len': "
        "4096, "
        "'kv_cache_dtype': 'fp8', 'served_model_name': ['max_num_seqs=1']}",
        "INFO 10-02 12:00:02 [core.py:5] Initializing a V1 LLM engine (v0.9.0) with config: model='e/f', "
        "dtype=torch.bfloat16,"
        " max_seq_len=2048, tensor_parallel_size=4, quantization=None, enforce_eager=False, kv_cache_dtype=auto",
        "INFO 10-02 12:00:03 [config.py:5] Chunked prefill is enabled with max_num_batched_tokens=2048.",
    )
    assert run.options == {
        "model": "e/f",
        "gpu_memory_utilization": "0.85",
        "max_num_seqs": "64",
        "block_size": "32",
        "enforce_eager": "False",
        "max_model_len": "2048",
        "kv_cache_dtype": "auto",
        "dtype": "bfloat16",
        "tensor_parallel_size": "4",
        "max_num_batched_tokens": "2048",
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "Avg prompt throughput: 3541.9 tokens/s, Avg generation throughput: 245.9 tokens/s, Running: 100 reqs, "
            "Swapped: "
            "2 reqs, Pending: 28 reqs, GPU KV cache usage: 99.6%, CPU KV cache usage: 1.5%.",
            (3541.9, 245.9, 100, 28, 2, 0.996, None),
            id="V0",
        ),
        pytest.param(
            "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 240.8 tokens/s, Running: 8 "
            "reqs, "
            "Waiting: 3 reqs, GPU KV cache usage: 93.9%, Prefix cache hit rate: 12.5%",
            (0.0, 240.8, 8, 3, 0, 0.939, 0.125),
            id="V1",
        ),
        pytest.param(
            "Engine 001: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 "
            "reqs, "
            "Waiting: 4 reqs, Deferred: 2 reqs, Preemptions: 5, GPU KV cache usage: 50.0%, Prefix cache hit rate: "
            "0.0%, "
            "External prefix cache hit rate: 75.0%",
            (1.0, 2.0, 3, 4, 0, 0.5, 0.0),
            id="V1 later",
        ),
        pytest.param(
            "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: "
            "4 reqs ",
            (1.0, 2.0, 3, 4, 0, None, None),
            id="V1 first",
        ),
    ],
)
def test_throughput(line: str, expected: tuple[Any, ...]) -> None:
    last = read(f"INFO 10-02 12:00:00 [loggers.py:1] {line}").serving.last
    assert last is not None
    assert (
        last.prompt_rate,
        last.output_rate,
        last.running,
        last.waiting,
        last.swapped,
        last.usage,
        last.hit_rate,
    ) == pytest.approx(expected)


def test_preemptions_by_line_and_by_count() -> None:
    words = "mode because there is not enough KV cache space. total_num_cumulative_preemption"
    run = read(
        f"WARNING 10-02 12:00:00 scheduler.py:1439] Sequence group c-1 is preempted by PreemptionMode.RECOMPUTE "
        f"{words}=1",
        f"WARNING 10-02 12:00:00 scheduler.py:1439] Sequence group c-2 is preempted by PreemptionMode.SWAP {words}=51",
    )
    assert run.preemptions == 51  # V0 writes the first and then every fiftieth
    assert run.preemptions_by_kind == {"recompute": 1, "swap": 50}
    read(
        "INFO 10-02 12:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 2.0 "
        "tokens/s, Running: 3 reqs, Waiting: 4 reqs, Preemptions: 5, GPU KV cache usage: 50.0%",
        run=run,
    )
    assert run.preemptions == 56  # V1 tells those of the interval


def test_several_engines_in_one_line() -> None:
    run = read(
        "INFO 10-02 12:00:00 [loggers.py:1] 2 Engines Aggregated: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 50.0%, Prefix cache hit "
        "rate: 0.0%"
    )
    assert run.value("engines") == 2


def test_requests_with_and_without_token_ids() -> None:
    run = read(
        "INFO 10-02 12:00:00 logger.py:36] Received request cmpl-1-0: prompt: 'max_tokens=9', params: "
        "SamplingParams(n=1, "
        "max_tokens=128, min_tokens=0), prompt_token_ids: [1, 2, 3, 4], lora_request: None.",  # V0 and early V1
        "INFO 10-02 12:00:00 [logger.py:43] Received request chatcmpl-2: prompt: 'b', params: SamplingParams(n=1, "
        "max_tokens=64), prompt_token_ids: None, prompt_embeds shape: None, lora_request: None.",  # later V1
    )
    assert run.requests == 2
    assert run.prompts.counts == {4: 1}
    assert run.max_tokens.total == 2
    assert run.max_tokens.counts[64] == 1


def failure(*lines: str) -> dict[str, Any]:
    run = read(*lines)
    assert run.failure_count == 1
    last = run.failures[0]
    names = (
        "kind",
        "asked",
        "total",
        "free",
        "in_use",
        "allocated",
        "unallocated",
        "graph_pools",
        "others",
        "needed",
        "available",
    )
    return {name: getattr(last, name) for name in names if getattr(last, name)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of "
            "44.50 "
            "GiB of which 160.50 MiB is free. Process 77 has 2.00 GiB memory in use. Process 78 has 512.00 MiB memory "
            "in "
            "use. Including non-PyTorch memory, this process has 41.00 GiB memory in use. Of the allocated memory "
            "40.00 GiB "
            "is allocated by PyTorch, with 48.00 MiB allocated in private pools (e.g., CUDA Graphs), and 396.25 MiB is "
            "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting it.",
            {
                "kind": "torch",
                "asked": 224 * MIB,
                "total": 89 * GIB // 2,
                "free": round(160.5 * MIB),
                "in_use": 41 * GIB,
                "allocated": 40 * GIB,
                "graph_pools": 48 * MIB,
                "unallocated": round(396.25 * MIB),
                "others": 5 * GIB // 2,
            },
            id="torch 2.5",
        ),
        pytest.param(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "80.00 GiB "
            "of which 1.00 GiB is free. Process 3446780 has 79.00 GiB memory in use. Of the allocated memory 78.00 "
            "GiB is "
            "allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.",
            {
                "kind": "torch",
                "asked": 2 * GIB,
                "total": 80 * GIB,
                "free": GIB,
                "in_use": 79 * GIB,
                "allocated": 78 * GIB,
                "unallocated": GIB // 2,
            },
            id="torch 2.5 in a container",
        ),
        pytest.param(
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 44.50 GiB total "
            "capacity; "
            "28.00 GiB already allocated; 512.00 MiB free; 30.00 GiB reserved in total by PyTorch) If reserved memory "
            "is >> "
            "allocated memory try setting max_split_size_mb",
            {
                "kind": "torch",
                "asked": 3 * GIB // 2,
                "total": 89 * GIB // 2,
                "free": GIB // 2,
                "allocated": 28 * GIB,
                "unallocated": 2 * GIB,
            },
            id="torch 2.1",
        ),
        pytest.param(
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try "
            "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
            {"kind": "sampler", "needed": 1024},
            id="0.8",
        ),
        pytest.param(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
            {"kind": "no cache"},
            id="all",
        ),
        pytest.param(
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is "
            "needed, "
            "which is larger than the available KV cache memory (4.50 GiB). Try increasing `gpu_memory_utilization`.",
            {"kind": "model len", "needed": 16 * GIB, "available": 9 * GIB // 2},
            id="0.8 to 0.11",
        ),
        pytest.param(
            "ValueError: To serve at least one request with the model's max seq len (1645057), 87.50 GiB KV cache is "
            "needed, "
            "which is larger than the available KV cache memory (71.00 GiB).",
            {"kind": "model len", "needed": 175 * GIB // 2, "available": 71 * GIB},
            id="later",
        ),
        pytest.param(
            "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be "
            "stored in KV "
            "cache (4096). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.",
            {"kind": "model len"},
            id="V0",
        ),
        pytest.param(
            "ValueError: Free memory on device cuda:0 (12.25/23.50 GiB) on startup is less than desired GPU memory "
            "utilization (0.92, 21.75 GiB). Decrease GPU memory utilization or reduce GPU memory used by other "
            "processes.",
            {"kind": "free memory", "free": 49 * GIB // 4, "total": 47 * GIB // 2, "needed": 87 * GIB // 4},
            id="0.9",
        ),
        pytest.param(
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            {"kind": "library"},
            id="cuBLAS",
        ),
        pytest.param("RuntimeError: CUDA error: out of memory", {"kind": "library"}, id="driver"),
        pytest.param("ncclUnhandledCudaError: Cuda failure 2 'out of memory'", {"kind": "library"}, id="NCCL"),
    ],
)
def test_failures(line: str, expected: dict[str, Any]) -> None:
    assert failure(line) == expected


def test_a_failure_has_the_frames_before_it_and_the_phase() -> None:
    run = read(
        "INFO 10-02 12:00:00 model_runner.py:1] Loading model weights took 15.0 GB",
        '  File "/usr/lib/python3.12/site-packages/vllm/worker/worker.py", line 5, in profile_run',
        "ERROR 10-02 12:00:00 [core.py:387] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    assert run.failures[0].phase == "profile"
    assert run.failures[0].frames == ("vllm/worker/worker.py:profile_run",)
    assert run.failures[0].line == 3


@pytest.mark.parametrize(
    "line",
    [
        "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 re",  # cut off
        "Avg prompt throughput: 1.2.3 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 "
        "reqs",
        "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 99999999 reqs, "
        "Waiting: 0 reqs",
        "GPU KV cache size: n/a tokens",
        "GPU KV cache size: 9999999999999999999 tokens",
        "Available KV cache memory: 1.2.3 GiB",
        "Memory profiling results: total_gpu_memory=1.00GiB peak_torch_memory=x non_torch_memory=y kv_cache_size=z "
        "gpu_memory_utilization=0.90",
    ],
)
def test_lines_that_are_half_a_format_are_not_understood(line: str, logs: Any) -> None:
    log = logs.read(
        [f"INFO 10-02 12:00:00 [a.py:1] {line}", "INFO 10-02 12:00:00 [a.py:1] GPU KV cache size: 16 tokens"]
    )
    assert (log.lines.understood, log.lines.not_understood) == (1, 1)
    assert log.lines.shown()[0][0] == 1
    assert log.runs[0].serving.lines == 0
    assert log.runs[0].value("kv_tokens") == 16
