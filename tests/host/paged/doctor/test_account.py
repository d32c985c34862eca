"""What memory was for: parts by hand from the logs of four versions, and what was reserved and never used."""

from typing import Any

import pytest

from paged.doctor.account import Account, account
from paged.doctor.capacity import Capacity, capacity
from paged.doctor.nvidia_smi import process_view
from paged.doctor.server_model import server_model
from paged.doctor.server_run import ServerRun
from paged.models import model as find_model

GIB = 1 << 30


def look(run: ServerRun, gpu_memory: int | None = None) -> tuple[Capacity, Account]:
    model = server_model(run)
    cache = capacity(run, model)
    return cache, account(run, cache, model, gpu_memory)


def gib(value: float) -> int:
    return round(value * GIB)


def test_0_6_counts_blocks_and_the_models_bytes(logs: Any) -> None:
    cache, found = look(logs.read(logs.start["0.6"]).telling())
    assert (cache.tokens, cache.block_size) == (2500 * 16, 16)
    assert cache.size == 2500 * 16 * 131_072  # 32 layers x 2 x 8 heads x 128 x 2 bytes
    assert found.parts == {"weights": gib(14.9595), "kv": cache.size}
    assert found.estimates == ("kv",)
    assert (found.total, found.requested, found.outside, found.kv_unused) == (None, None, None, None)
    assert found.held == gib(14.9595) + 2500 * 16 * 131_072


def test_gpus_that_share_a_model_share_its_weights_and_its_cache(logs: Any) -> None:
    lines = [line.replace("tensor_parallel_size=1", "tensor_parallel_size=2") for line in logs.start["0.6"]]
    cache, found = look(logs.read([line for line in lines if "weights took" not in line]).telling())
    assert cache.size == 2500 * 16 * 131_072 // 2
    assert found.parts["weights"] == find_model("llama-3-8b").weight_bytes // 2
    assert found.estimates == ("kv", "weights")


def test_0_6_with_the_gpus_memory_given(logs: Any) -> None:
    _, found = look(logs.read(logs.start["0.6"]).telling(), 24 * GIB)
    assert (found.requested, found.utilization) == (int(24 * GIB * 0.9), 0.9)
    assert found.parts["activations"] == int(24 * GIB * 0.9) - gib(14.9595) - 2500 * 16 * 131_072
    assert found.estimates == ("kv", "activations")
    assert found.outside == 24 * GIB - int(24 * GIB * 0.9)


def test_0_7_has_every_part(logs: Any) -> None:
    cache, found = look(logs.read(logs.start["0.7"]).telling())
    assert cache.tokens == 28103 * 16
    assert cache.source == "blocks of the log, estimate: blocks of 16"
    assert found.parts == {
        "weights": gib(14.96),
        "activations": gib(1.21),
        "non_torch": gib(0.14),
        "kv": gib(54.89),
    }
    assert (found.total, found.requested, found.estimates) == (gib(79.11), gib(71.20), ())
    assert found.outside == gib(79.11) - gib(71.20)


def test_0_11_has_graphs_too(logs: Any) -> None:
    cache, found = look(logs.read(logs.start["0.11"]).telling())
    assert (cache.tokens, cache.size, cache.source) == (442_368, 54 * GIB, "the log")
    assert found.parts == {
        "weights": gib(14.99),
        "activations": gib(1.23),
        "non_torch": gib(0.98),
        "graphs": gib(0.31),
        "kv": 54 * GIB,
    }
    assert found.estimates == ()


def test_0_29_has_weights_and_the_rest_apart(logs: Any) -> None:
    cache, found = look(logs.read(logs.start["0.29"]).telling())
    assert (cache.tokens, cache.size) == (32_768, 4 * GIB)
    assert found.parts["non_torch"] == gib(15.20) - gib(14.99)
    assert (found.parts["graphs"], found.parts["activations"]) == (gib(0.96), gib(1.66))
    assert (found.utilization, found.requested, found.total) == (0.92, gib(22.08), 24 * GIB)


def test_what_was_never_used_is_the_rest_at_the_peak(logs: Any) -> None:
    lines = [
        *logs.start["0.11"],
        logs.served_v1("06:34:00", 10.0, 100.0, 8, 0, 25.0),
        logs.served_v1("06:34:10", 10.0, 100.0, 9, 0, 75.0),
        logs.served_v1("06:34:20", 10.0, 100.0, 7, 0, 50.0),
    ]
    _, found = look(logs.read(lines).telling())
    assert found.kv_unused == 54 * GIB // 4


def test_capacity_of_concurrency_alone_is_an_estimate() -> None:
    run = ServerRun()
    run.note("concurrency", 4.88, 1)
    run.note("concurrency_tokens", 8192, 1)
    cache, _ = look(run)
    assert (cache.tokens, cache.size) == (round(4.88 * 8192), None)
    assert cache.source.startswith("estimate")


def test_of_ranks_the_greatest_weights_and_the_least_cache_count() -> None:
    run = ServerRun()
    for line, (weights, tokens) in enumerate([(10, 500), (12, 400), (11, 450)], 1):
        run.note("weights", weights, line)
        run.note("kv_tokens", tokens, line)
    assert (run.found["weights"].value, run.found["weights"].line) == (12, 2)
    assert (run.found["kv_tokens"].value, run.found["kv_tokens"].line) == (400, 2)


def test_engines_that_are_told_together_have_their_tokens_together() -> None:
    run = ServerRun()
    run.note("kv_tokens", 1000, 1)
    run.note("engines", 2, 2)
    cache, _ = look(run)
    assert cache.tokens == 2000
    assert cache.per_sequence(0.5, 10) == 100
    assert cache.per_sequence(0.5, 0) is None


@pytest.mark.parametrize(
    ("options", "dtype", "gpus"),
    [
        ({}, "auto", 1),
        ({"kv_cache_dtype": "fp8", "tensor_parallel_size": "4"}, "e4m3", 4),
        ({"kv_cache_dtype": "fp8_e5m2", "tensor_parallel_size": "2", "pipeline_parallel_size": "3"}, "e4m3", 6),
        ({"tensor_parallel_size": "99999999"}, "auto", 1),
    ],
)
def test_the_model_of_a_log(options: dict[str, str], dtype: str, gpus: int) -> None:
    run = ServerRun()
    run.options = {"model": "meta-llama/Meta-Llama-3-8B", **options}
    found = server_model(run)
    assert (found.kv_dtype, found.gpus, found.why_not) == (dtype, gpus, "")
    assert found.spec == find_model("llama-3-8b", dtype)


def test_a_model_that_is_not_known_is_told_and_one_that_is_named_is_refused() -> None:
    run = ServerRun()
    assert server_model(run).why_not == "the log names no model; give --model"
    run.options["model"] = "someone/something"
    assert server_model(run).spec is None
    assert "someone/something is not known here; give --model" in server_model(run).why_not
    assert server_model(run, "llama-2-7b").spec == find_model("llama-2-7b")
    with pytest.raises(ValueError, match="unknown model 'nothing'"):
        server_model(run, "nothing")


def test_nvidia_smi_shows_one_number_that_does_not_move(logs: Any) -> None:
    quiet = logs.read([*logs.start["0.11"], logs.served_v1("06:34:00", 1.0, 9.0, 1, 0, 1.0)]).telling()
    busy = logs.read([*logs.start["0.11"], logs.served_v1("06:34:00", 1.0, 9.0, 90, 9, 99.0)]).telling()
    views = [process_view(run, look(run)[1]) for run in (quiet, busy)]
    assert views[0].used == views[1].used == sum(map(gib, (14.99, 1.23, 0.98, 0.31, 54)))
    assert views[0].estimate
    assert views[0].rows()[1].split()[-1] == f"{views[0].used >> 20}MiB"
    assert any("1.0% at its peak" in text for text in views[0].cannot)
    assert any("99.0% at its peak" in text for text in views[1].cannot)


def test_nvidia_smi_at_a_failure_is_the_messages_number(logs: Any) -> None:
    message = logs.out_of_memory("2.00 GiB", "1.00 GiB", "79.00 GiB", "76.00 GiB", others="2.00 GiB")
    run = logs.read([*logs.start["0.11"], message]).telling()
    view = process_view(run, look(run)[1])
    assert (view.used, view.others, view.total, view.estimate) == (76 * GIB, 2 * GIB, 79 * GIB, False)
    assert view.rows()[0] == f"Memory-Usage {78 << 10}MiB / {79 << 10}MiB"
