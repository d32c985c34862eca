"""Remedies: which there are, what they change, and the server replayed as it was and with each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paged.doctor.diagnosis import Settings, diagnose
from paged.doctor.rehearsal import rehearse, without_longest
from paged.doctor.report import Report
from paged.doctor.serving_case import ServingCase
from paged.serving.workload import Workload

GIB, MIB = 1 << 30, 1 << 20
TOKEN = 131_072  # bytes of K and V a token of llama-3-8b: 32 x 2 x 8 x 128 x 2

CASE = ServingCase(
    model="llama-3-8b",
    kv_dtype="auto",
    kv_bytes=8192 * TOKEN,
    weight_bytes=16_060_522_496,
    max_model_len=4096,
    max_num_seqs=64,
    max_num_batched_tokens=2048,
    block_size=16,
    step_overhead=0.001,
    flops=989e12,
    bandwidth=3.35e12,
    gpus=1,
)


def load(count: int, prompt: int, output: int) -> Workload:
    return Workload("x", np.zeros(count), np.full(count, prompt), np.full(count, output))


def test_a_case_has_the_budget_to_the_byte_and_the_rest_as_told() -> None:
    found = rehearse(CASE, load(20, 400, 100))
    assert found.why_not == ""
    assert (found.completed, found.rejected, found.kv_bytes) == (20, 0, 8192 * TOKEN)
    # 8,192 tokens are 512 blocks; a step has 2,048 tokens, five prompts of 25 blocks. In the step of the last five,
    # fifteen have grown to 26 blocks, 390 together, and the 122 that are left hold four prompts.
    assert found.running_peak == 19
    assert found.preemptions > 0
    most = rehearse(CASE.changed(kv_bytes=20 * 512 * TOKEN), load(20, 400, 100))
    assert (most.running_peak, most.preemptions) == (20, 0)
    assert rehearse(CASE.changed(max_num_seqs=5), load(20, 400, 100)).running_peak == 5


def test_the_overhead_is_that_of_every_step() -> None:
    one, more = (rehearse(CASE.changed(step_overhead=s), load(1, 16, 101)) for s in (0.001, 0.011))
    assert more.duration_s - one.duration_s == pytest.approx(101 * 0.010)  # the prompt's step and 100 of decode


def test_the_weights_are_the_logs_not_the_published_ones() -> None:
    one, half = (rehearse(CASE.changed(weight_bytes=w), load(1, 16, 101)) for w in (16 * GIB, 8 * GIB))
    # every step but the prompt's reads the weights once; the prompt's 16 tokens are bound by them too
    assert one.duration_s - half.duration_s == pytest.approx(101 * 8 * GIB / 3.35e12)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kv_bytes": 0}, "does not start: nothing is left for the KV cache"),
        ({"kv_bytes": -5}, "does not start: nothing is left for the KV cache"),
        (
            {"kv_bytes": 4095 * TOKEN},
            "does not start: one sequence of 4,096 tokens needs 512 MiB of KV cache, it has 511.88",
        ),
        ({"max_model_len": 100}, "no request fits: every one was rejected"),
    ],
)
def test_what_does_not_start_is_told(changes: dict[str, int], why: str) -> None:
    assert rehearse(CASE.changed(**changes), load(3, 400, 100)).why_not.startswith(why)


def test_a_cache_of_just_one_longest_sequence_starts() -> None:
    assert rehearse(CASE.changed(kv_bytes=4096 * TOKEN), load(3, 400, 100)).completed == 3


def test_the_longest_go_elsewhere() -> None:
    requests = Workload("x", np.arange(40.0), np.arange(40) + 1, np.full(40, 5))
    kept = without_longest(requests, 0.05)
    assert kept.prompt.tolist() == list(range(1, 39))
    assert kept.arrival_s.tolist() == list(range(38))
    assert without_longest(requests, 0.01) is requests
    assert rehearse(CASE.changed(longest_share=0.05), requests).completed == 38


def options(report: Report) -> list[str]:
    return [treatment.remedy.options for treatment in report.treatments]


def test_a_full_cache_gets_more_memory_then_fewer_bytes_a_token_then_a_gpu(
    logs: Any, lengths: Callable[..., Path]
) -> None:
    waits = [logs.served_v1(logs.clock(n), 900.0, 900.0, 30, 20, 99.0) for n in range(6)]
    log = logs.read([*logs.start["0.29"], *waits])
    report = diagnose(log, Settings(lengths=str(lengths(80, 900, 200))))
    assert options(report) == ["--gpu-memory-utilization 0.95", "--kv-cache-dtype fp8", "--tensor-parallel-size 2"]
    case, first, second, third = [report.case, *(treatment.remedy.case for treatment in report.treatments)]
    assert case is not None and first is not None and second is not None and third is not None
    assert case.kv_bytes == 32_768 * TOKEN
    assert case.weight_bytes == round(14.99 * GIB)
    assert first.kv_bytes == case.kv_bytes + round((0.95 - 0.92) * 24 * GIB)
    assert (second.kv_bytes, second.kv_dtype) == (case.kv_bytes, "e4m3")
    beside = round(1.66 * GIB) + round(15.20 * GIB) - round(14.99 * GIB)
    assert third.kv_bytes == 2 * (round(22.08 * GIB) - beside) - round(14.99 * GIB)
    assert (third.gpus, third.bandwidth) == (2, 2 * case.bandwidth)
    assert report.before is not None
    assert report.before.preemptions > 0
    after = [treatment.after for treatment in report.treatments]
    assert all(found is not None and found.tokens_per_s > report.before.tokens_per_s for found in after)
    assert after[2] is not None
    assert after[2].preemptions == 0


def test_a_longest_sequence_that_does_not_fit_is_made_shorter(logs: Any, lengths: Callable[..., Path]) -> None:
    log = logs.read(
        [
            *logs.start["0.11"][:5],
            "ValueError: To serve at least one request with the models's max seq len (8192), (1.00 GiB KV cache is "
            "needed, "
            "which is larger than the available KV cache memory (0.50 GiB).",
        ]
    )
    report = diagnose(log, Settings(lengths=str(lengths()), gpu_memory="24 GiB"))
    assert options(report)[0] == "--max-model-len 4096"
    assert report.before is not None
    assert report.before.why_not.startswith("does not start")
    assert report.treatments[0].after is not None
    assert report.treatments[0].after.completed == 60


def test_weights_that_do_not_fit_are_halved_or_shared(logs: Any, lengths: Callable[..., Path]) -> None:
    log = logs.read([*logs.start["0.11"][:4], logs.out_of_memory("224.00 MiB", "100.00 MiB", "14.50 GiB", "14.40 GiB")])
    report = diagnose(log, Settings(lengths=str(lengths())))
    assert options(report) == ["--quantization fp8", "--tensor-parallel-size 2", "--gpu-memory-utilization 0.95"]
    assert report.before is not None
    assert report.before.why_not == "does not start: nothing is left for the KV cache"
    halved = report.treatments[0].remedy.case
    assert halved is not None
    weights = report.account.parts["weights"]
    assert "weights" in report.account.estimates
    assert halved.kv_bytes == int(14.5 * GIB * 0.9) - weights // 2
    assert report.treatments[0].after is not None
    assert report.treatments[0].after.completed == 60


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [("2.00 GiB", "--gpu-memory-utilization 0.88"), ("1.60 GiB", "--gpu-memory-utilization 0.89")],
)
def test_room_for_what_was_lacking_is_rounded_up_to_a_hundredth(asked: str, wanted: str, logs: Any) -> None:
    message = logs.out_of_memory(asked, "0.90 GiB", "79.11 GiB", "78.00 GiB")
    lines = [*logs.start["0.11"], logs.frame("vllm/attention/flashinfer.py", "_get_workspace_buffer"), message]
    report = diagnose(logs.read(lines), Settings())
    assert report.findings[0].cause == "workspace"
    assert options(report)[0] == wanted
    case = report.treatments[0].remedy.case
    assert case is not None and report.case is not None
    assert report.case.kv_bytes - case.kv_bytes == pytest.approx((0.9 - float(wanted.split()[1])) * 79.11 * GIB, abs=2)


def test_smaller_steps_come_last_where_they_are_not_enough(logs: Any) -> None:
    def tell(asked: str) -> list[str]:
        message = logs.out_of_memory(asked, "0.00 GiB", "79.11 GiB", "78.00 GiB")
        return options(diagnose(logs.read([*logs.start["0.11"], message]), Settings()))

    # half of the activations, 1.23 GiB, are 0.615 GiB; the cache was taken before and keeps its 54 GiB
    smaller = f"--max-num-batched-tokens 4096 --kv-cache-memory-bytes {54 * GIB}"
    assert tell("0.60 GiB") == [smaller, "--gpu-memory-utilization 0.89"]
    message = logs.out_of_memory("0.60 GiB", "0.00 GiB", "79.11 GiB", "78.00 GiB")
    report = diagnose(logs.read([*logs.start["0.11"], message]), Settings())
    assert report.treatments[0].remedy.case is not None
    assert report.treatments[0].remedy.case.kv_bytes == 54 * GIB
    assert tell("0.64 GiB") == ["--gpu-memory-utilization 0.89", smaller]


def test_before_the_cache_is_taken_it_gets_what_smaller_steps_save(logs: Any) -> None:
    lines = [
        *logs.start["0.7"][:6],
        logs.frame("vllm/worker/worker.py", "profile_run"),
        logs.out_of_memory("0.50 GiB", "0.00 GiB", "79.11 GiB", "78.00 GiB"),
    ]
    report = diagnose(logs.read(lines), Settings())
    assert report.case is not None
    assert options(report)[0] == "--max-num-batched-tokens 2048"
    case = report.treatments[0].remedy.case
    assert case is not None
    assert case.kv_bytes == report.case.kv_bytes + round(1.21 * GIB) // 2


def test_v0_gives_the_cache_what_smaller_steps_save(logs: Any) -> None:
    message = logs.out_of_memory("0.50 GiB", "0.00 GiB", "79.11 GiB", "78.00 GiB")
    report = diagnose(logs.read([*logs.start["0.7"], message]), Settings())
    assert options(report) == ["--gpu-memory-utilization 0.89", "--max-num-batched-tokens 2048"]
    assert report.treatments[1].remedy.why.endswith("V0 gives it to the KV cache: lower the utilization too")


def test_others_leave_so_much(logs: Any) -> None:
    message = logs.out_of_memory("2.00 GiB", "0.50 GiB", "79.11 GiB", "60.00 GiB", others="18.00 GiB")
    report = diagnose(logs.read([*logs.start["0.11"], message]), Settings())
    assert options(report) == ["--gpu-memory-utilization 0.76"]  # 60.5 of 79.11


def test_overhead_is_what_the_roofline_does_not_explain(logs: Any) -> None:
    steps = [
        logs.served_v1(logs.clock(4 * i + n), 0.0, rate, running, 0, usage)
        for i, (running, rate, usage) in enumerate([(64, 5333.0, 5.0), (250, 5682.0, 20.0)])
        for n in range(4)
    ]
    report = diagnose(logs.read([*logs.start["0.11"], *steps]), Settings())
    assert report.case is not None
    assert report.case.step_overhead == pytest.approx(0.044 - (14.99 + 54 * 0.2) * GIB / 3.35e12, rel=1e-3)
    after = report.treatments[0].remedy.case
    assert after is not None
    assert (options(report), after.step_overhead) == (["--async-scheduling"], 0.5e-3)


def test_without_lengths_or_a_model_remedies_are_told_and_not_replayed(logs: Any) -> None:
    waits = [logs.served_v1(logs.clock(n), 900.0, 900.0, 30, 20, 99.0) for n in range(6)]
    known = diagnose(logs.read([*logs.start["0.29"], *waits]), Settings())
    assert known.before is None
    assert known.treatments[1].why_not(known.before) == "give --lengths with the lengths of requests to replay it"
    unknown = diagnose(logs.read(waits), Settings())
    assert unknown.case is None
    assert [found.why_not(unknown.before) for found in unknown.treatments] == [
        "the model is not known: give --model",
        "the model and the memory of the GPU are not known: give --model and --gpu-memory",
    ]
    sized = diagnose(logs.read(waits), Settings(gpu_memory="24 GiB"))
    assert {found.why_not(sized.before) for found in sized.treatments} == {"the model is not known: give --model"}


def test_options_that_the_log_does_not_have_are_the_servers_defaults_and_named(logs: Any) -> None:
    v0 = diagnose(logs.read(logs.start["0.6"]), Settings(replay=False)).case
    small = diagnose(logs.read(logs.start["0.29"]), Settings(replay=False)).case
    large = diagnose(logs.read([line for line in logs.start["0.11"] if "non-default" not in line]), Settings()).case
    assert v0 is not None and small is not None and large is not None
    assert (v0.max_num_seqs, v0.max_num_batched_tokens) == (256, 8192)
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    assert (large.max_num_seqs, large.max_num_batched_tokens) == (1024, 8192)
    assert v0.assumed == ("max_num_batched_tokens 8192", "step overhead 0.5 ms")
    assert large.assumed == ("max_num_seqs 1024", "max_num_batched_tokens 8192", "step overhead 0.5 ms")
