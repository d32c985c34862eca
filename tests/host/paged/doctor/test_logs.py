"""The logs of three generations that lie beside the tests; their lines have the formats named in conftest.py."""

from pathlib import Path

import pytest

from paged.doctor.diagnosis import Settings, diagnose
from paged.doctor.log_reader import read_log

FOLDER = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("name", "version", "generation", "cause", "unknown", "kv_tokens"),
    [
        ("vllm_0.6_kv_cache.log", "0.6.3", "V0", "KV cache", 1, 40_000),
        ("vllm_0.11_overhead.log", "0.11.0", "V1", "launch and scheduling overhead", 0, 442_368),
        ("vllm_0.29_activations.log", "0.29.0", "V1", "activations", 0, 32_768),
    ],
)
def test_a_log_of_each_generation(
    name: str, version: str, generation: str, cause: str, unknown: int, kv_tokens: int
) -> None:
    report = diagnose(read_log(FOLDER / name), Settings())
    assert (report.run.version, report.run.generation) == (version, generation)
    assert [finding.cause for finding in report.findings] == [cause]
    assert report.log.lines.not_understood == unknown
    assert report.capacity.tokens == kv_tokens
    assert report.treatments


def test_the_moment_of_each() -> None:
    first = diagnose(read_log(FOLDER / "vllm_0.6_kv_cache.log"), Settings(replay=False)).run
    assert first.preemptions == 51
    assert first.at_first_preemption is not None
    assert (first.at_first_preemption.running, first.at_first_preemption.waiting) == (30, 28)
    times = diagnose(read_log(FOLDER / "vllm_0.6_kv_cache.log"), Settings(replay=False)).phases
    # four lines of decode tell of 20 s; in the others a step of some 16 ms splits what has both, but for none
    assert times.unknown_s == 0
    assert 20 < times.decode_s < 40
    assert times.prefill_s + times.decode_s == 40
    last = diagnose(read_log(FOLDER / "vllm_0.29_activations.log"), Settings(replay=False)).run.failures[0]
    assert last.sample is not None
    assert (last.phase, last.sample.running, last.sample.usage) == ("serving", 23, 0.72)
    assert last.frames[-1] == "vllm/model_executor/layers/logits_processor.py:forward"
