"""Whole logs: counts, lines that are not understood, starts, mixed versions, and logs cut off anywhere."""

from pathlib import Path
from typing import Any

import pytest

from paged.doctor.diagnosis import Settings, diagnose
from paged.doctor.line_format import LONGEST_TEXT
from paged.doctor.log_file import LogError
from paged.doctor.log_reader import MOST_RUNS, MOST_SAMPLES, read_log
from paged.doctor.server_run import MOST_FAILURES


@pytest.mark.parametrize("version", ["0.6", "0.7", "0.11", "0.29"])
def test_every_line_of_a_start_is_understood_or_known(version: str, logs: Any) -> None:
    lines = logs.start[version]
    log = logs.read(lines)
    assert log.lines.read == len(lines)
    assert log.lines.not_understood == 0
    assert log.telling().options["model"] == "meta-llama/Meta-Llama-3-8B"
    assert log.telling().version.startswith(version)
    assert (log.starts, log.telling().phase) == (1, "serving")


def test_lines_not_understood_are_counted_and_those_of_memory_are_shown_first(logs: Any) -> None:
    log = logs.read(
        [
            *logs.start["0.6"],
            *(f"INFO 10-02 12:00:00 a.py:{number}] the same file, line {number}" for number in range(7)),
            "INFO 10-02 12:00:00 b.py:1] another file \x07",
            "INFO 10-02 12:00:00 c.py:1] GPU KV cache: a new wording, 5 GiB",
        ]
    )
    assert log.lines.not_understood == 9
    first = len(logs.start["0.6"]) + 1
    assert log.lines.shown() == [
        (first + 8, "GPU KV cache: a new wording, 5 GiB"),
        (first, "the same file, line 0"),
        (first + 7, "another file ."),
    ]


def test_few_are_shown_however_many_there_are(logs: Any) -> None:
    lines = [f"INFO 10-02 12:00:00 f{number}.py:1] KV cache {number}" for number in range(100)]
    log = logs.read([*logs.start["0.6"], *lines, *(f"file {n}" for n in range(100))])
    assert log.lines.not_understood == 200
    assert len(log.lines.shown()) == MOST_SAMPLES


def test_requests_access_and_tracebacks_are_passed_over(logs: Any) -> None:
    log = logs.read(
        [
            *logs.start["0.11"],
            '(APIServer pid=102) INFO:     127.0.0.1:49854 - "POST /v1/completions HTTP/1.1" 200 OK',
            "Traceback (most recent call last):",
            logs.frame("vllm/v1/engine/core.py", "run_engine_core"),
            "    engine_core = EngineCoreProc(*args)",
            "                  ^^^^^^^^^^^^^^^^^^^^",
            "",
        ]
    )
    assert log.lines.not_understood == 0
    assert log.lines.passed_over == 6  # with uvicorn's line of the start; the frame itself is understood


def test_a_server_that_starts_again_is_another_run(logs: Any) -> None:
    log = logs.read(
        [
            *logs.start["0.6"],
            logs.out_of_memory("2.00 GiB", "1.00 GiB", "24.00 GiB", "23.00 GiB"),
            *logs.start["0.11"],
            logs.served_v1("06:34:00", 1.0, 9.0, 1, 0, 1.0),
        ]
    )
    assert (log.starts, log.versions) == (2, ("0.6.3", "0.11.0"))
    assert [run.value("kv_tokens") for run in log.runs] == [None, 442_368]
    assert log.telling().line == 1  # memory ran out in the first
    assert log.runs[1].line == len(logs.start["0.6"]) + 2


def test_ranks_of_one_start_are_one_run(logs: Any) -> None:
    engine = logs.start["0.11"][2]
    lines = [*logs.start["0.11"][:2], engine, engine.replace("DP0", "DP1"), *logs.start["0.11"][3:]]
    assert logs.read(lines).starts == 1


def test_a_server_that_starts_for_ever_takes_no_memory(logs: Any) -> None:
    log = logs.read((logs.start["0.11"] * 40) + [logs.served_v1("06:34:00", 1.0, 9.0, 1, 0, 1.0)])
    assert (log.starts, len(log.runs)) == (40, MOST_RUNS)
    assert log.telling().serving.lines == 1


def test_failures_are_kept_once_and_few(logs: Any) -> None:
    same = logs.out_of_memory("2.00 GiB", "1.00 GiB", "24.00 GiB", "23.00 GiB")
    run = logs.read([*logs.start["0.6"], same, same, same]).telling()
    assert (run.failure_count, len(run.failures)) == (3, 1)
    many = [logs.out_of_memory(f"{n + 1}.00 MiB", "0.00 MiB", "24.00 GiB", "23.00 GiB") for n in range(200)]
    run = logs.read([*logs.start["0.6"], *many]).telling()
    assert (run.failure_count, len(run.failures)) == (200, MOST_FAILURES)


def whole(logs: Any) -> bytes:
    """Two versions, an engine that dies, with colours and bytes of another encoding."""
    lines = [
        *logs.start["0.7"],
        *(logs.served_v0(logs.clock(n, 5), 100.0, 900.0, 20 + n, 3, 95.0) for n in range(4)),
        *logs.start["0.29"],
        "\x1b[1;36m(EngineCore pid=2)\x1b[0;0m ERROR 09-20 10:44:00 [core.py:3] Traceback (most recent call last):",
        logs.frame("vllm/v1/worker/gpu_worker.py", "execute_model"),
        logs.out_of_memory("2.00 GiB", "1.00 GiB", "24.00 GiB", "23.00 GiB"),
    ]
    return "\n".join(lines).encode() + b"\ncaf\xe9 \xff\xfe\0\n"


def test_a_log_cut_off_anywhere_is_read(logs: Any, tmp_path: Path) -> None:
    data = whole(logs)
    path = tmp_path / "cut.log"
    read = 0
    for end in range(0, len(data), 61):
        path.write_bytes(data[:end])
        try:
            report = diagnose(read_log(path), Settings(replay=False))
        except LogError:
            continue
        read += 1
        assert report.json_text().endswith("}\n")
    assert read > 0.9 * len(data) / 61


def test_a_log_with_random_bytes_in_it_is_read(logs: Any, tmp_path: Path) -> None:
    import random

    generator, data = random.Random(5), bytearray(whole(logs))
    path = tmp_path / "broken.log"
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(120):
            broken[generator.randrange(len(broken))] = generator.randrange(256)
        path.write_bytes(broken)
        log = read_log(path)
        report = diagnose(log, Settings(replay=False))
        assert report.json_text().endswith("}\n")
        assert log.lines.damaged > 0
        assert log.lines.read == log.lines.understood + log.lines.passed_over + log.lines.not_understood


def test_other_encodings_are_damaged_and_understood(logs: Any, tmp_path: Path) -> None:
    path = tmp_path / "latin.log"
    path.write_bytes("\n".join(logs.start["0.6"]).encode().replace(b"without", b"\xe9") + b" \xe9\xe8\n")
    log = read_log(path)
    assert log.lines.damaged == 1
    assert log.telling().value("kv_blocks") == 2500


@pytest.mark.parametrize(
    "text",
    [
        "Tried to allocate " + "1" * 400_000,
        "out of memory " * 40_000 + "Tried to allocate x",
        "Memory profiling results: total_gpu_memory=" + "peak_torch_memory=non_torch_memory=kv_cache_size=" * 9_000,
        "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs" * 5_000,
        "Sequence group is preempted by PreemptionMode.SWAP mode" * 9_000,
        "Received request " * 30_000,
        "non-default args: {" + "'model': '" * 50_000,
        'File "' * 80_000,
        "CUDA out of memory. Tried to allocate 2.00 GiB. " + "1." * 200_000 + " free",
        "INFO " * 100_000,
        "(a pid=1" * 60_000,
        '"GET ' * 100_000,
    ],
)
def test_lines_made_to_take_long_do_not(text: str, logs: Any) -> None:
    import time

    path = logs.file([text, *logs.start["0.6"]])
    before = time.process_time()
    assert read_log(path).runs[-1].value("kv_blocks") == 2500
    assert time.process_time() - before < 1


def test_only_requests_are_read_to_their_end(logs: Any) -> None:
    ids = ", ".join(["7"] * 20_000)
    log = logs.read(
        [
            *logs.start["0.6"],
            f"INFO 10-02 12:00:00 [a.py:1] {'x' * LONGEST_TEXT} GPU KV cache size: 16 tokens",
            f"INFO 10-02 12:00:00 [logger.py:36] Received request a-1: prompt: 'x', prompt_token_ids: [{ids}]",
        ]
    )
    assert log.telling().value("kv_tokens") is None
    assert log.telling().prompts.counts == {20_000: 1}


@pytest.mark.parametrize(
    "line",
    [
        f"Avg prompt throughput: {'9' * 400} tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, "
        f"Waiting: 0 reqs",
        "Available KV cache memory: 9999999999.0 GiB",
        "the current vLLM instance can use total_gpu_memory (80.00GiB) x gpu_memory_utilization (90.0) = 72.00GiB",
        "Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 0 "
        "reqs, GPU "
        "KV cache usage: 5000.0%",
    ],
)
def test_numbers_that_no_server_has_are_not_understood(line: str, logs: Any) -> None:
    log = logs.read(
        [f"INFO 10-02 12:00:00 [a.py:1] {line}", "INFO 10-02 12:00:00 [a.py:1] GPU KV cache size: 16 tokens"]
    )
    assert log.lines.not_understood == 1
    assert log.telling().serving.lines == 0


def test_an_option_in_other_digits_is_none(logs: Any) -> None:
    log = logs.read(
        [
            "INFO 10-02 12:00:00 [a.py:1] Initializing a V1 LLM engine (v0.9.0) with config: "
            "tensor_parallel_size=²٣, block_size=٣, max_num_seqs=0"
        ]
    )
    run = log.telling()
    assert [run.number(name) for name in ("tensor_parallel_size", "block_size", "max_num_seqs")] == [None, None, None]
    assert diagnose(log, Settings()).model.gpus == 1
