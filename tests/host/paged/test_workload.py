"""Request traces: what is read, what is refused, and what is made where there is no file."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from paged.serving.trace_reader import read_trace
from paged.serving.workload import (
    OUTPUT_QUANTILES,
    PROMPT_QUANTILES,
    TraceError,
    Workload,
    draw,
    generate,
    poisson_arrivals,
    together,
)

TRACES = Path(__file__).parents[4] / "shared" / "traces"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.is_file():
        pytest.skip(f"{name} is not in ../shared/traces")
    return path


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# -- what is read -------------------------------------------------------------------------------------------------


def test_azure_keeps_all_seven_digits(write) -> None:
    found = read_trace(
        write(AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:46.6805901,396,109\n"
              "2023-11-16 18:16:46.68059,1,2\n2023-11-17 18:15:47,3,4\n")
    )  # fmt: skip
    assert found.arrival_s == pytest.approx([0, 1e-7, 60, 86_400.31941], abs=1e-9)
    assert found.prompt.tolist() == [374, 396, 1, 3]
    assert found.output.tolist() == [44, 109, 2, 4]
    assert found.notes == ()


def test_azure_with_zones_other_columns_blank_lines_and_windows_line_ends(write) -> None:
    text = "\ufeffGeneratedTokens, TIMESTAMP ,Region,ContextTokens\r\n"
    text += "5,2024-05-10 00:00:00.009930+00:00,eu,7\r\n\r\n6,2024-05-10 02:00:01.009930+02:00,us,8\r\n"
    found = read_trace(write(text))
    assert found.arrival_s == pytest.approx([0, 1])
    assert (found.prompt.tolist(), found.output.tolist()) == ([7, 8], [5, 6])


def test_lengths_may_have_arrival_times_in_seconds(write) -> None:
    path = write(
        "arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n2.5,7,3,1\n0.11520000000000001,9,4,2\n1e1,5,6,3\n"
    )
    found = read_trace(path)
    assert found.arrival_s.tolist() == [0, 2.3848, 9.8848]
    assert (found.prompt.tolist(), found.output.tolist()) == ([9, 7, 5], [4, 3, 6])
    assert any(note.endswith(": not read: pd_ratio") for note in found.notes)
    assert not any("Poisson" in note for note in found.notes)


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "", "soon", "1e99", "0x2"])
def test_an_arrival_that_is_no_number_of_seconds_is_refused(write, value: str) -> None:
    path = write(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{value},7,3\n")
    with pytest.raises(TraceError, match=r"line 2: arrived_at is .*; a time is a number of seconds, 0 or more"):
        read_trace(path)


def test_the_rate_of_a_trace_without_times_is_explained(write) -> None:
    path = write("num_prefill_tokens,num_decode_tokens\n4,2\n")
    assert "5.53 requests/s, the mean of azure_conv 2023, seed 0" in read_trace(path).notes[0]
    assert "of 3 requests/s, seed 0" in read_trace(path, rate=3).notes[0]


def test_columns_that_are_not_read_are_named(write) -> None:
    found = read_trace(write('{"timestamp": 1, "input_length": 2, "output_length": 3, "user": "x", "turn": 1}\n'))
    assert found.notes[0].endswith(": not read: user, turn")


def test_mooncake_reads_milliseconds_and_hash_ids(write) -> None:
    lines = (
        '{"timestamp": 500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
        '{"timestamp": 27482.5, "input_length": 7, "output_length": 4, "hash_ids": []}\n'
    )
    found = read_trace(write(lines, "trace.jsonl"))
    assert found.arrival_s == pytest.approx([0, 26.9825])
    assert found.prompt.tolist() == [6758, 7]
    assert found.hash_ids == ((0, 1), ())


def test_lengths_only_get_poisson_arrivals_of_the_stated_rate(write) -> None:
    path = write("num_prefill_tokens,num_decode_tokens\n" + "74,918\n" * 2000)
    found = read_trace(path, rate=4.0, seed=7)
    assert np.diff(found.arrival_s).mean() == pytest.approx(0.25, rel=0.1)
    assert np.array_equal(found.arrival_s, read_trace(path, rate=4.0, seed=7).arrival_s)
    assert not np.array_equal(found.arrival_s, read_trace(path, rate=4.0, seed=8).arrival_s)
    assert "no arrival times; Poisson arrivals of 4 requests/s, seed 7" in found.notes[0]


def test_unsorted_arrivals_are_sorted_and_said(write) -> None:
    rows = "2023-11-16 18:15:{:02}.0,{},9\n"
    found = read_trace(write(AZURE + "".join(rows.format(*row) for row in [(10, 1), (12, 2), (11, 3), (9, 4)])))
    assert found.arrival_s.tolist() == [0, 1, 2, 3]
    assert found.prompt.tolist() == [4, 1, 3, 2]
    assert re.search(r"not in order \(first at line 4\); they were sorted", found.notes[0])


def test_azure_conv_has_the_published_figures() -> None:
    found = read_trace(trace("azure_conv_2023.csv"))
    assert len(found) == 19_366
    assert found.arrival_s[-1] == pytest.approx(3502, abs=1)
    assert found.lengths() == {
        "prompt": {"p50": 1020, "p90": 2734, "p99": 4142, "max": 14_050, "sum": 22_361_870},
        "output": {"p50": 129, "p90": 424, "p99": 601, "max": 1000, "sum": 4_088_665},
    }


def test_mooncake_has_the_published_figures() -> None:
    found = read_trace(trace("mooncake_conversation.jsonl"))
    assert len(found) == 12_031
    assert found.arrival_s[-1] == pytest.approx(3537, abs=1)
    lengths = [[of[q] for q in ("p50", "p90", "p99", "max")] for of in found.lengths().values()]
    assert lengths == [[6909, 27_367, 85_400, 126_195], [350, 597, 1119, 2000]]


def test_every_mooncake_prompt_has_an_id_a_512_tokens() -> None:
    found = read_trace(trace("mooncake_conversation.jsonl"))
    assert found.hash_ids is not None
    assert [len(ids) for ids in found.hash_ids] == (-(-found.prompt // 512)).tolist()


def test_sharegpt_lengths() -> None:
    assert len(read_trace(trace("sharegpt_lengths.csv"))) == 30_731


# -- what is refused ----------------------------------------------------------------------------------------------

ROW = "2023-11-16 18:15:46.68,374,44\n"
BAD = {
    "empty": (b"", "is empty; give a trace"),
    "blank": (b" \n\n", "is empty; give a trace"),
    "header only": (AZURE, "no request; give a trace with at least one row"),
    "not UTF-8": (AZURE.encode() + ROW.encode() + b"2023\xff", "line 3: byte 0xff is not UTF-8; convert"),
    "gzip": (b"\x1f\x8b\x08\x00", "is compressed with gzip; unpack it"),
    "unknown columns": ("a,b\n1,2\n", "line 1: the header 'a,b' is of no known kind; give TIMESTAMP,"),
    "missing column": ("TIMESTAMP,ContextTokens\n" + ROW, "line 1: the header .* lacks the column GeneratedTokens"),
    "missing length": ("num_prefill_tokens,x\n1,2\n", "line 1: the header .* lacks the column num_decode_tokens"),
    "short row": (AZURE + ROW + "2023-11-16 18:15:46,3\n", "line 3: 2 fields where the header has 3; mend"),
    "word": (AZURE + ROW + ROW.replace("374", "many"), "line 3: ContextTokens is 'many'; .* whole number from 1"),
    "fraction": (AZURE + ROW.replace("44", "4.5"), "line 2: GeneratedTokens is '4.5'; "),
    "nan": (AZURE + ROW.replace("44", "nan"), "line 2: GeneratedTokens is 'nan'; "),
    "negative": (AZURE + ROW.replace("374", "-3"), "line 2: ContextTokens is '-3'; "),
    "zero": (AZURE + ROW.replace("374", "0"), "line 2: ContextTokens is '0'; "),
    "huge": (AZURE + ROW.replace("374", "9" * 400), r"line 2: ContextTokens is '9{40,57}\.\.\.; .* 10,000,000"),
    "no number": (AZURE + ROW.replace("374", ""), "line 2: ContextTokens is ''; "),
    "no time": (AZURE + "soon,1,2\n", "line 2: TIMESTAMP is 'soon'; write it as 2023-11-16"),
    "no such day": (AZURE + "2023-02-30 18:15:46.68,1,2\n", "line 2: TIMESTAMP is '2023-02-30 18:15:46.68'; "),
    "ten years": (AZURE + ROW + ROW.replace("2023", "2043"), "line 3: arrives 631152000 s after the first"),
    "NUL": (AZURE + "\0,1,2\n", "line 2: "),
    "not JSON": ('{"timestamp": 1\n', r"line 1: .* is not JSON .*; mend the row"),
    "not an object": ('{"timestamp":1,"input_length":1,"output_length":1}\n[1]\n', "line 2: lacks timestamp, input_"),
    "missing key": ('{"timestamp": 1, "input_length": 1}\n', "line 1: lacks output_length; "),
    "time is a word": ('{"timestamp":"x","input_length":1,"output_length":1}', "line 1: timestamp is 'x'; "),
    "time is NaN": ('{"timestamp":NaN,"input_length":1,"output_length":1}', "line 1: timestamp is nan; "),
    "time is infinite": ('{"timestamp":1e999,"input_length":1,"output_length":1}', "line 1: timestamp is inf; "),
    "time is negative": ('{"timestamp":-1,"input_length":1,"output_length":1}', "line 1: timestamp is -1; "),
    "time is true": ('{"timestamp":true,"input_length":1,"output_length":1}', "line 1: timestamp is True; "),
    "length is true": ('{"timestamp":1,"input_length":true,"output_length":1}', "line 1: input_length is True; "),
    "length is huge": ('{"timestamp":1,"input_length":1e300,"output_length":1}', r"line 1: input_length is 1e\+300"),
    "hash ids": ('{"timestamp":1,"input_length":1,"output_length":1,"hash_ids":"x"}', "line 1: hash_ids is 'x'; "),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_trace_is_a_one_line_error(write, case: str) -> None:
    content, words = BAD[case]
    path = write(content)
    with pytest.raises(TraceError, match=words) as caught:
        read_trace(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400 + len(str(path))
    assert message.startswith(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: there is no such file; give a trace"):
        read_trace(tmp_path / "none.csv")


# -- what is made -------------------------------------------------------------------------------------------------


def test_generated_lengths_have_the_quantiles_they_were_drawn_from() -> None:
    lengths = draw(PROMPT_QUANTILES, 200_000, np.random.default_rng(3))
    for q, tokens in PROMPT_QUANTILES.items():
        if 0 < q < 1:
            assert np.quantile(lengths, q) == pytest.approx(tokens, rel=0.05)
    assert lengths.min() >= 2
    assert lengths.max() <= 14_050


def test_quantiles_are_those_of_the_published_trace() -> None:
    found = read_trace(trace("azure_conv_2023.csv"))
    for tokens, quantiles in ((found.prompt, PROMPT_QUANTILES), (found.output, OUTPUT_QUANTILES)):
        for q, value in quantiles.items():
            assert abs(np.quantile(tokens, q) - value) <= 0.5


def test_logarithms_are_linear_between_quantiles() -> None:
    class Half:
        def random(self, count: int) -> np.ndarray:
            return np.full(count, 0.5)

    assert draw({0.0: 10, 1.0: 1000}, 2, Half()).tolist() == [100, 100]  # type: ignore[arg-type]


def test_a_seed_makes_the_same_workload_again() -> None:
    first, again, other = generate(50, seed=3), generate(50, seed=3), generate(50, seed=4)
    for field in ("arrival_s", "prompt", "output"):
        assert np.array_equal(getattr(first, field), getattr(again, field))
        assert not np.array_equal(getattr(first, field), getattr(other, field))


def test_poisson_arrivals() -> None:
    arrivals = poisson_arrivals(20_000, 50.0, seed=1)
    gaps = np.diff(arrivals)
    assert arrivals[0] == 0
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # an exponential distribution


def test_rate_scale_divides_the_gaps_and_first_takes_the_first() -> None:
    load = Workload("x", np.array([0.0, 3.0, 9.0]), np.array([1, 2, 3]), np.array([4, 5, 6]), (), ((0,), (1,), (2,)))
    assert load.scaled(3).arrival_s.tolist() == [0, 1, 3]
    short = load.first(2)
    assert (len(short), short.prompt.tolist(), short.hash_ids) == (2, [1, 2], ((0,), (1,)))
    assert len(load.first(99)) == 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda load: load.scaled(0), "above 0, not 0"),
        (lambda load: load.scaled(float("nan")), "above 0, not nan"),
        (lambda load: load.first(0), "at least 1, not 0"),
        (lambda _: generate(0), "at least 1, not 0"),
        (lambda _: generate(5, rate=-1), "above 0, not -1"),
        (lambda _: generate(5, rate=float("inf")), "above 0, not inf"),
    ],
)
def test_numbers_that_make_no_workload(call, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        call(generate(3))


def test_mooncake_text_may_hold_other_line_ends_and_null_ids(tmp_path):
    path = tmp_path / "trace.jsonl"
    row = {"timestamp": 0, "input_length": 5, "output_length": 7, "hash_ids": None, "note": "a\u2028b\x0bc"}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\r\n", encoding="utf-8")
    found = read_trace(path)
    assert (found.prompt.tolist(), found.output.tolist(), found.hash_ids) == ([5], [7], None)


def test_a_folder_or_a_pipe_is_no_trace(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match="is no regular file"):
            read_trace(path)


# -- priority -----------------------------------------------------------------------------------------------------


def test_a_column_of_priorities_is_read_and_stays_with_its_request(write) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens,priority\n"
    text += "2023-11-16 18:15:48,3,1,-2\n2023-11-16 18:15:46,1,1, 7 \n2023-11-16 18:15:47,2,1,0\n"
    found = read_trace(write(text))
    assert found.prompt.tolist() == [1, 2, 3]
    assert found.priority.tolist() == [7, 0, -2]
    assert found.first(2).priority.tolist() == [7, 0]
    lengths = read_trace(write("num_prefill_tokens,num_decode_tokens,priority\n4,2,1\n5,2,0\n"))
    assert lengths.priority.tolist() == [1, 0]
    row = {"timestamp": 0, "input_length": 5, "output_length": 2}
    lines = [json.dumps(row), json.dumps({**row, "priority": 3})]
    assert read_trace(write("\n".join(lines), "trace.jsonl")).priority.tolist() == [0, 3]


def test_without_a_column_nobody_goes_first(write) -> None:
    assert read_trace(write(AZURE + "2023-11-16 18:15:46,1,1\n")).priority is None


@pytest.mark.parametrize("value", ["high", "", "1.5", "12345678901"])
def test_a_priority_that_is_no_number_is_named(write, value: str) -> None:
    text = f"num_prefill_tokens,num_decode_tokens,priority\n4,2,{value}\n"
    with pytest.raises(TraceError, match=rf"trace\.csv, line 2: priority is '{value}'; give a whole number"):
        read_trace(write(text))


def test_several_workloads_are_one_in_the_order_of_arrival() -> None:
    first = Workload("a", np.array([0.0, 4.0]), np.array([1, 2]), np.array([10, 20]), ("told",))
    second = Workload("b", np.array([3.0]), np.array([3]), np.array([30]), ("told", "more"))
    made = together([first, second])
    assert (made.name, made.notes) == ("a + b", ("told", "more"))
    assert (made.arrival_s.tolist(), made.prompt.tolist(), made.output.tolist()) == ([0, 3, 4], [1, 3, 2], [10, 30, 20])
    assert together([first]) is first


def test_more_requests_than_anybody_means_are_refused() -> None:
    with pytest.raises(TraceError, match="at most 10,000,000, not 100,000,000,000"):
        generate(10**11)
