"""Options that make no sense, each refused in one line before anything runs."""

from pathlib import Path

import pytest

import vmm
from paged import replay
from paged.policies import POLICIES
from paged.replay.options import Options
from paged.replay.setup import prepare
from paged.serving.workload import TraceError

BAD = [
    ({"gpu_memory_utilization": 0.0}, "utilization must be above 0 and at most 1, not 0"),
    ({"gpu_memory_utilization": float("nan")}, "utilization must be above 0 and at most 1, not nan"),
    ({"reserve": -0.5}, "reserve must be a fraction of 0 or more, not -0.5"),
    ({"seed": -1}, "seed must be 0 or more, not -1"),
    ({"order": "token"}, "order must be one of 'block', 'layer', not 'token'"),
    ({"driver": "gpu"}, "driver must be one of 'cuda', 'host', not 'gpu'"),
    ({"backing": "disk"}, "backing must be one of 'none', 'memory', not 'disk'"),
    ({"policies": ()}, "no policy is named"),
    ({"policies": ("paged",)}, "unknown policy 'paged'"),
    ({"model": "llama-9"}, "unknown model 'llama-9'"),
    ({"kv_cache_dtype": "fp8_e5m2"}, "KV cache dtype 'fp8_e5m2' is not supported yet"),
    ({"max_model_len": 9000}, "max_model_len 9000 is more than the 8192 positions of llama-3-8b"),
    ({"max_model_len": 0}, "max_model_len must be at least 1, not 0"),
    ({"max_num_batched_tokens": 100}, r"max_num_batched_tokens \(100\) must be at least max_num_seqs \(1024\)"),
    ({"block_size": 0}, "block_size must be 1 to 256 tokens, not 0"),
    ({"chunk": "3 MiB"}, "chunk '3 MiB' is no multiple of the device's granularity, 2097152 bytes"),
    ({"chunk": "big"}, "chunk 'big' is not a size"),
    ({"gpu_memory": "10 GB"}, "GPU memory '10 GB' is not a size"),
    ({"gpu_memory": "1 MiB"}, "GPU memory 1 MiB is less than the granularity"),
    ({"gpu_memory": "16 GiB"}, r"KV budget -1\.56 GiB = 0\.9 x 16 GiB - 14\.96 GiB weights - 1 GiB activations: less"),
    ({"activation_memory": "90 GiB"}, r"90 GiB activations: less than one block needs \(2 MiB\); give more GPU memory"),
    ({"activation_memory": -1}, "activation memory must be more than 0"),
    ({"flops": 0.0}, "FLOP rate must be a number above 0"),
    ({"bandwidth": float("inf")}, "bandwidth must be a number above 0"),
    ({"step_overhead": -1.0}, "step overhead must be 0 s or more"),
    ({"driver_costs": "mine"}, "unknown driver costs 'mine'"),
    ({"limit": 0}, "number of requests must be at least 1, not 0"),
    ({"rate": 1e-308}, "rate must be 1e-06 to 1e.09, not 1e-308"),
    ({"rate_scale": 1e-300}, "rate scale must be 1e-06 to 1e.06, not 1e-300"),
    ({"flops": 1e-300}, "flops must be"),
    ({"bandwidth": 1e-300}, "bandwidth must be"),
    ({"step_overhead": 1e300}, "step overhead must be 0 to 3600, not 1e.300"),
    ({"rate": 0.0}, "arrival rate must be a number of requests a second above 0"),
    ({"rate_scale": -2.0}, "rate scale must be a number above 0, not -2"),
    ({"backing": "memory", "gpu_memory": "900 TiB"}, "of memory to give; give less GPU memory, or use backing 'none'"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=str)
def test_options_that_make_no_sense(changes: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        replay(None, **{"driver": "host", **changes})
    assert "\n" not in str(caught.value)


def test_an_option_that_there_is_not() -> None:
    with pytest.raises(TypeError, match="gpu_mem"):
        replay(None, gpu_mem="80 GiB")


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no such file"):
        replay(tmp_path / "trace.csv", driver="host")


def test_a_real_driver_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(vmm.DriverMissingError, match="driver 'cuda'"):
        prepare(Options(driver="cuda"))


def test_the_environment_chooses_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMM_DRIVER", "host")
    assert prepare(Options()).driver == "host"


@pytest.mark.parametrize("named", ["all", ["all"], ("static", "all"), ["all", "static"]])
def test_all_names_every_policy(named) -> None:
    assert Options(policies=named).policies == POLICIES


def test_one_policy_may_be_a_word() -> None:
    assert Options(policies="paged-vmm").policies == ("paged-vmm",)
