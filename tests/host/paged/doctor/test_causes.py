"""Each cause is found on a log made for it, alone, and not on its neighbours."""

from collections.abc import Callable
from typing import Any

import pytest

from paged.doctor.diagnosis import Settings, diagnose
from paged.doctor.finding import MEMORY_CAUSES, THROUGHPUT_CAUSES
from paged.doctor.report import Report

GIB, MIB = 1 << 30, 1 << 20
Lines = list[str]
Make = Callable[[Any], Lines]
CASES: dict[str, tuple[Make, list[str]]] = {}


def case(name: str, *causes: str) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        CASES[name] = (make, list(causes))
        return make

    return add


def steps(logs: Any, points: list[tuple[int, float, float]], *, each: int = 4, prompt: float = 0.0) -> Lines:
    """Lines of decode: (running, milliseconds a step, usage in %), so that outputs a second are running / step."""
    made = []
    for running, milliseconds, usage in points:
        rate = round(running / milliseconds * 1e3, 1)
        made += [logs.served_v1(logs.clock(len(made) + n), prompt, rate, running, 0, usage) for n in range(each)]
    return made


# -- memory: a failed allocation -------------------------------------------------------------------------------------


@case("weights, by the traceback", "weights")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"][:4],
        logs.frame("vllm/model_executor/model_loader/base_loader.py", "load_model"),
        logs.frame("vllm/model_executor/layers/linear.py", "create_weights"),
        logs.out_of_memory("224.00 MiB", "100.00 MiB", "14.50 GiB", "14.40 GiB"),
    ]


@case("weights, by what it was doing", "weights")
def _(logs: Any) -> Lines:
    return [*logs.start["0.6"][:4], logs.out_of_memory("224.00 MiB", "100.00 MiB", "14.50 GiB", "14.40 GiB")]


@case("weights leave nothing", "weights")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.7"][:3],
        "INFO 03-01 08:00:25 [worker.py:267] Memory profiling takes 4.26 seconds",
        "INFO 03-01 08:00:25 [worker.py:267] the current vLLM instance can use total_gpu_memory (16.00GiB) x "
        "gpu_memory_utilization (0.90) = 14.40GiB",
        "INFO 03-01 08:00:25 [worker.py:267] model weights take 14.96GiB; non_torch_memory takes 0.14GiB; PyTorch "
        "activation peak memory takes 1.21GiB; the rest of the memory reserved for KV Cache is -1.91GiB.",
        "ERROR 03-01 08:00:26 [engine.py:400] ValueError: No available memory for the cache blocks.",
    ]


@case("activations leave nothing", "activations")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.7"][:3],
        "INFO 03-01 08:00:25 [worker.py:267] the current vLLM instance can use total_gpu_memory (40.00GiB) x "
        "gpu_memory_utilization (0.90) = 36.00GiB",
        "INFO 03-01 08:00:25 [worker.py:267] model weights take 14.96GiB; non_torch_memory takes 0.14GiB; PyTorch "
        "activation peak memory takes 21.00GiB; the rest of the memory reserved for KV Cache is -0.10GiB.",
        "ERROR 03-01 08:00:26 [engine.py:400] ValueError: No available memory for the cache blocks.",
    ]


@case("activations, while a step is profiled", "activations")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"][:5],
        logs.frame("vllm/v1/worker/gpu_model_runner.py", "profile_run"),
        logs.frame("vllm/model_executor/layers/activation.py", "forward"),
        logs.out_of_memory("4.00 GiB", "1.00 GiB", "24.00 GiB", "22.50 GiB"),
    ]


@case("activations, while it serves, through a captured graph", "activations")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"],
        *steps(logs, [(8, 9, 5.0)]),
        logs.frame("vllm/v1/worker/gpu_worker.py", "execute_model"),
        logs.frame("vllm/compilation/cuda_graph.py", "__call__"),
        logs.frame("vllm/model_executor/layers/activation.py", "forward"),
        logs.out_of_memory("4.00 GiB", "1.00 GiB", "79.11 GiB", "77.00 GiB"),
    ]


@case("activations of the sampler", "activations")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"][:9],
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try "
        "lowering "
        "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    ]


@case("KV cache, while it is taken", "KV cache")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"][:6],
        logs.frame("vllm/v1/worker/gpu_model_runner.py", "initialize_kv_cache"),
        logs.out_of_memory("1.75 GiB", "1.00 GiB", "79.11 GiB", "77.00 GiB"),
    ]


@case("KV cache for one sequence", "KV cache")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"][:5],
        "(EngineCore_DP0 pid=150) INFO 11-14 06:33:06 [gpu_worker.py:298] Available KV cache memory: 0.50 GiB",
        "ValueError: To serve at least one request with the models's max seq len (8192), (1.00 GiB KV cache is "
        "needed, which "
        "is larger than the available KV cache memory (0.50 GiB). Try increasing `gpu_memory_utilization`.",
    ]


@case("KV cache for one sequence, V0", "KV cache")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.6"][:6],
        "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in "
        "KV "
        "cache (4096).",
    ]


@case("KV cache, by preemption", "KV cache")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.6"],
        logs.served_v0("12:01:00", 500.0, 900.0, 30, 0, 97.0),
        "WARNING 10-02 12:01:03 scheduler.py:1439] Sequence group c-1 is preempted by PreemptionMode.RECOMPUTE mode "
        "because "
        "there is not enough KV cache space. total_num_cumulative_preemption=1",
        logs.served_v0("12:01:05", 500.0, 900.0, 30, 0, 97.0),
    ]


@case("KV cache, by waiting before a full one", "KV cache")
def _(logs: Any) -> Lines:
    return [*logs.start["0.29"], *(logs.served_v1(logs.clock(n), 900.0, 900.0, 30, 20, 99.0) for n in range(6))]


@case("a full cache before which none waits: no cause")
def _(logs: Any) -> Lines:
    return [*logs.start["0.29"], *(logs.served_v1(logs.clock(n), 900.0, 900.0, 30, 0, 99.0) for n in range(6))]


@case("some wait before a cache that is not full: no cause")
def _(logs: Any) -> Lines:
    return [*logs.start["0.29"], *(logs.served_v1(logs.clock(n), 900.0, 900.0, 30, 20, 89.0) for n in range(6))]


@case("workspace, by the traceback", "workspace")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"],
        logs.frame("vllm/v1/worker/gpu_worker.py", "execute_model"),
        logs.frame("vllm/v1/attention/backends/flashinfer.py", "_get_workspace_buffer"),
        logs.out_of_memory("394.00 MiB", "100.00 MiB", "79.11 GiB", "78.00 GiB"),
    ]


@case("workspace of cuBLAS", "workspace")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"],
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ]


@case("graph pools, by what it was doing", "graph pools")
def _(logs: Any) -> Lines:
    return [*logs.start["0.6"][:8], logs.out_of_memory("20.00 MiB", "6.00 MiB", "24.00 GiB", "23.90 GiB", "5.00 MiB")]


@case("graph pools, by the traceback", "graph pools")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"][:8],
        logs.frame("vllm/v1/worker/gpu_model_runner.py", "capture_model"),
        logs.frame("vllm/model_executor/models/llama.py", "forward"),
        logs.out_of_memory("20.00 MiB", "6.00 MiB", "79.11 GiB", "79.00 GiB", "5.00 MiB"),
    ]


@case("other processes, before the start", "other processes")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"][:3],
        "ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than desired GPU memory "
        "utilization "
        "(0.92, 21.67 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ]


@case("other processes, later", "other processes")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"],
        logs.out_of_memory("2.00 GiB", "0.50 GiB", "79.11 GiB", "60.00 GiB", others="18.00 GiB"),
    ]


@case("others hold little: not they", "activations")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"],
        logs.out_of_memory("2.00 GiB", "0.50 GiB", "79.11 GiB", "70.00 GiB", others="1.00 GiB"),
    ]


@case("others hold enough, but it has more than it may: not they", "activations")
def _(logs: Any) -> Lines:
    return [
        *logs.start["0.11"],
        logs.out_of_memory("2.00 GiB", "0.50 GiB", "79.11 GiB", "73.00 GiB", others="5.00 GiB"),
    ]


@case("fragmentation", "fragmentation")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], logs.out_of_memory("2.00 GiB", "0.50 GiB", "79.11 GiB", "78.00 GiB", "2.50 GiB")]


@case("a little less in pieces: not fragmentation", "activations")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], logs.out_of_memory("2.00 GiB", "0.50 GiB", "79.11 GiB", "78.00 GiB", "1.50 GiB")]


# -- throughput that stopped growing. 0.11's weights are 14.99 GiB and its KV cache 54 GiB; at 3.35e12 B/s the weights
# take 4.8 ms a step, and each tenth of the KV cache 1.7 ms.


@case("bandwidth", "bandwidth")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *steps(logs, [(64, 9.0, 10.0), (250, 26.0, 85.0)])]


@case("it grows: no cause")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *steps(logs, [(64, 9.0, 10.0), (250, 14.0, 50.0)])]


@case("one batch size tells nothing")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *steps(logs, [(250, 26.0, 85.0)])]


@case("overhead", "launch and scheduling overhead")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *steps(logs, [(64, 12.0, 5.0), (250, 44.0, 20.0)])]


@case("compute", "compute")
def _(logs: Any) -> Lines:
    return [*logs.start["0.7"], *steps(logs, [(500, 13.0, 8.0), (2000, 50.0, 30.0)])]


@case("neither fills the step and neither is empty", "undecided")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *steps(logs, [(64, 12.0, 12.0), (250, 33.0, 50.0)])]


@case("nothing is known of the memory", "undecided")
def _(logs: Any) -> Lines:
    return steps(logs, [(64, 9.0, 10.0), (250, 26.0, 85.0)])


@case("long requests hold the cache", "long requests")
def _(logs: Any) -> Lines:
    full = [logs.served_v1(logs.clock(20 + n), 50.0, 1800.0, 20, 30, 95.0) for n in range(5)]
    return [*logs.start["0.11"], *steps(logs, [(200, 14.0, 60.0)], each=8), *full]


@case("many that are as long hold it: the cache is small", "KV cache")
def _(logs: Any) -> Lines:
    full = [logs.served_v1(logs.clock(20 + n), 50.0, 19000.0, 310, 30, 95.0) for n in range(5)]
    return [*logs.start["0.11"], *steps(logs, [(200, 14.0, 60.0)], each=8), *full]


@case("the longest outlast a batch", "long requests")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *steps(logs, [(64, 10.0, 20.0)], each=5), *steps(logs, [(3, 8.0, 2.0)], each=5)]


@case(
    "the longest outlast a batch whose throughput had stopped growing",
    "long requests",
    "launch and scheduling overhead",
)
def _(logs: Any) -> Lines:
    grown = steps(logs, [(64, 12.0, 5.0), (250, 44.0, 20.0)])
    return [*logs.start["0.11"], *grown, *steps(logs, [(3, 8.0, 2.0)], each=9)]


@case("few run before many: no cause")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *steps(logs, [(3, 8.0, 2.0)], each=5), *steps(logs, [(64, 10.0, 20.0)], each=5)]


@case("few run as few come: no cause")
def _(logs: Any) -> Lines:
    few = steps(logs, [(3, 8.0, 2.0)], each=5, prompt=20.0)
    return [*logs.start["0.11"], *steps(logs, [(64, 10.0, 20.0)], each=5), *few]


@case("as many as may run", "batch limit")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *(logs.served_v1(logs.clock(n), 500.0, 9000.0, 128, 40, 30.0) for n in range(6))]


@case("as many as may run and none waits: no cause")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *(logs.served_v1(logs.clock(n), 500.0, 9000.0, 128, 0, 30.0) for n in range(6))]


@case("fewer than may run and some wait: no cause")
def _(logs: Any) -> Lines:
    return [*logs.start["0.11"], *(logs.served_v1(logs.clock(n), 500.0, 9000.0, 127, 40, 30.0) for n in range(6))]


@case("a failure, and before it a small cache", "activations", "KV cache")
def _(logs: Any) -> Lines:
    served = [logs.served_v1(logs.clock(n), 900.0, 900.0, 30, 20, 99.0) for n in range(6)]
    return [*logs.start["0.29"], *served, logs.out_of_memory("2.00 GiB", "0.50 GiB", "24.00 GiB", "23.40 GiB")]


def look(name: str, logs: Any) -> Report:
    return diagnose(logs.read(CASES[name][0](logs)), Settings(replay=False))


@pytest.mark.parametrize("name", CASES)
def test_the_causes_of_a_log_are_these_and_no_others(name: str, logs: Any) -> None:
    report = look(name, logs)
    assert [finding.cause for finding in report.findings] == CASES[name][1]
    for finding in report.findings:
        assert any(letter.isdigit() for letter in " ".join(finding.figures)) or "library" in finding.figures[0]


def test_every_cause_has_a_log_of_its_own() -> None:
    alone = {causes[0] for _, causes in CASES.values() if len(causes) == 1}
    assert alone == {*MEMORY_CAUSES, *THROUGHPUT_CAUSES}


def test_the_figures_of_a_failure_are_its_lines(logs: Any) -> None:
    report = look("activations, while it serves, through a captured graph", logs)
    finding = report.findings[0]
    assert finding.figures[0] == "an allocation of 4 GiB failed while it served"
    assert finding.figures[1].startswith("1 GiB of 79.11 GiB were free; this process had 77 GiB; PyTorch had 100 MiB")
    assert finding.figures[2] == "its traceback is in vllm/model_executor/layers/activation.py:forward"
    assert (finding.short, finding.estimate) == (3 * GIB, False)
    at = report.run.failures[0].sample
    assert at is not None
    assert (at.running, at.waiting, at.usage) == (8, 0, 0.05)


def test_the_figures_of_bandwidth_by_hand(logs: Any) -> None:
    report = look("bandwidth", logs)
    step = report.step
    assert step is not None
    assert step.read == round(14.99 * GIB) + round(54 * GIB * 0.85)
    assert step.seconds == pytest.approx(0.026, rel=1e-3)
    assert step.bandwidth_share == pytest.approx((14.99 + 54 * 0.85) * GIB / (0.026 * 3.35e12), rel=1e-3)
    assert step.compute_share == pytest.approx(2 * 8_030_261_248 * 250 / (0.026 * 989e12), rel=1e-3)
    assert report.growth is not None
    assert report.growth.exponent == pytest.approx(0.221, abs=0.002)  # log(9615/7111) / log(250/64)
    assert step.overhead_s == pytest.approx(0.026 - (14.99 + 54 * 0.85) * GIB / 3.35e12, rel=1e-2)


def test_another_gpu_has_another_cause(logs: Any) -> None:
    log = logs.read(CASES["bandwidth"][0](logs))
    faster = diagnose(log, Settings(replay=False, bandwidth=8e12))
    assert [finding.cause for finding in faster.findings] == ["undecided"]


def test_a_memory_that_is_no_size() -> None:
    with pytest.raises(ValueError, match="--gpu-memory"):
        Settings(gpu_memory="many")


@pytest.mark.parametrize("name", ["flops", "bandwidth", "rate"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_that_are_none(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number above 0, not"):
        Settings(**{name: value})  # type: ignore[arg-type]
