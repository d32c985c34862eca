"""Lengths of requests: from files of several kinds, and from the log itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paged.doctor.given_lengths import given_lengths
from paged.doctor.lengths_file import read_lengths
from paged.doctor.server_run import ServerRun
from paged.doctor.serving_tally import Sample
from paged.serving.workload import TraceError


@pytest.mark.parametrize(
    "text",
    [
        "prompt,output\n10,3\n20,4\n",
        "id,prompt_tokens, Completion_Tokens\nx, 10 ,3\ny,20,4\n",
        "\ufeffinput_len,output_len\n10,3\n\n20,4\n",
        '{"prompt_len": 10, "output_len": 3}\n\n{"output_len": "4", "prompt_len": 20, "x": null}\n',
        "num_prefill_tokens,num_decode_tokens\n10,3\n20,4\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:00.0,10,3\n2023-11-16 18:15:09.0,20,4\n",
        '{"timestamp": 0, "input_length": 10, "output_length": 3}\n'
        '{"timestamp": 9000, "input_length": 20, "output_length": 4}',
    ],
)
def test_every_kind_of_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    path.write_text(text, encoding="utf-8")
    found = read_lengths(path)
    assert (found.prompt.tolist(), found.output.tolist()) == ([10, 20], [3, 4])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"prompt,output\n", "there is a header and no request; give at least one row"),
        (b"prompt,words\n1,2\n", "line 1: no columns of prompt and output lengths in 'prompt, words'"),
        (b"prompt,output\n1,2\n1,-2\n", "line 3: output is '-2'; a length is a whole number of 1 to 10,000,000"),
        (b"prompt,output\n1.5,2\n", "line 2: prompt is '1.5'"),
        (b"prompt,output\n0,2\n", "line 2: prompt is '0'"),
        (b"prompt,output\n10000001,2\n", "line 2: prompt is '10000001'"),
        (b"prompt,output\n1\n", "line 2: output is 'None'"),
        (b'{"prompt": 1, "output": true}\n', "line 1: output is 'True'"),
        (b'{"prompt": 1, "output": 2}\nno\n', "is neither CSV nor JSON lines in UTF-8"),
        (b'{"prompt": 1, "output": 2}\n[1]\n', "line 2: prompt is 'None'"),
        (b"prompt,output\n1,2\n\xff,3\n", "is neither CSV nor JSON lines in UTF-8"),
        (b"", "is empty"),
        (None, "there is no such file"),
    ],
)
def test_what_cannot_be_read_is_one_line(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_lengths(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def served(*, waiting: int, output: float = 400.0) -> ServerRun:
    run = ServerRun()
    for line in range(4):
        run.serving.add(Sample(line, 0.0, output, 10, waiting), 0, None, "V1")
    return run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = "".join(f"2023-11-16 18:15:{n:02}.0,100,{50 + n}\n" for n in range(60))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    return path


def test_requests_arrive_as_the_log_served_them(path: Path) -> None:
    found = given_lengths(served(waiting=0), path)
    assert found is not None
    mean = 50 + 59 / 2
    assert found.notes == (
        f"requests arrive {400 / mean:.3g} requests/s (Poisson, seed 0), the log's outputs a second over "
        "the mean output (estimate)",
    )
    assert found.arrival_s[-1] / 59 == pytest.approx(mean / 400, rel=0.5)


def test_requests_arrive_at_once_where_they_waited(path: Path) -> None:
    found = given_lengths(served(waiting=3), path)
    assert found is not None
    assert found.arrival_s[-1] < 1e-3
    assert found.notes == ("requests arrive all at once, as in the log sequences waited for 100% of the busy time",)
    alone = given_lengths(ServerRun(), path)
    assert alone is not None
    assert alone.notes == ("requests arrive all at once, the log has no line of throughput",)


def test_a_rate_a_limit_and_times_of_its_own(path: Path) -> None:
    run = served(waiting=3)
    rate = given_lengths(run, path, rate=2.0, limit=40)
    assert rate is not None
    assert (len(rate), rate.notes) == (40, ("requests arrive 2 requests/s (Poisson, seed 0), as --rate says",))
    assert rate.arrival_s[-1] == pytest.approx(20, rel=0.5)
    kept = given_lengths(run, path, keep_times=True)
    assert kept is not None
    assert kept.arrival_s.tolist() == list(range(60))
    other = given_lengths(run, path, rate=2.0, seed=1)
    assert other is not None
    assert not np.array_equal(other.arrival_s[:40], rate.arrival_s)


def test_lengths_of_the_log_are_prompts_and_upper_bounds_of_outputs(logs: Any) -> None:
    request = (
        "INFO 10-02 12:00:00 logger.py:36] Received request cmpl-{0}-0: prompt: 'x', params: SamplingParams(n=1, "
        "max_tokens={2}), prompt_token_ids: {1}, lora_request: None."
    )
    lines = [request.format(n, json.dumps([7] * (100 + 100 * (n % 2))), 64) for n in range(50)]
    run = logs.read([*logs.start["0.6"], *lines]).telling()
    assert (run.prompts.counts, run.max_tokens.counts) == ({100: 25, 200: 25}, {64: 50})
    found = given_lengths(run, None)
    assert found is not None
    assert set(found.prompt.tolist()) == {100, 200}
    assert set(found.output.tolist()) == {64}
    assert len(found) == 50
    assert found.notes[0] == "lengths are drawn from the log's requests; outputs are their max_tokens, an upper bound"
    assert given_lengths(ServerRun(), None) is None
