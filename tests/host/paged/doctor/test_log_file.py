"""Lines of a log: bytes that are no text, lines without end, files that are no logs."""

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest

from paged.doctor.log_file import LONGEST, LogError, open_log, text_lines
from paged.doctor.log_reader import read_log


def lines(data: bytes) -> list[tuple[str, bool]]:
    return list(text_lines(io.BytesIO(data)))


def test_ends_of_lines_colours_and_progress_bars() -> None:
    assert lines(b"one\r\ntwo\n\x1b[1;36m(Worker pid=1)\x1b[0;0m three\nfour") == [
        ("one", True),
        ("two", True),
        ("(Worker pid=1) three", True),
        ("four", True),
    ]
    assert lines(b"0%|   \r50%|  \r100%| done\n") == [("100%| done", True)]


def test_bytes_that_are_no_text_are_replaced_and_told() -> None:
    assert lines(b"caf\xe9\nok\na\0b\n") == [("caf\ufffd", False), ("ok", True), ("a\0b", False)]


def test_a_long_line_is_cut_once_and_the_next_is_whole() -> None:
    found = lines(b"x" * (3 * LONGEST + 5) + b"\nnext\n")
    assert [(len(text), whole) for text, whole in found] == [(LONGEST, False), (4, True)]


def test_a_line_of_just_the_longest_length_is_whole() -> None:
    assert [(len(text), whole) for text, whole in lines(b"x" * (LONGEST - 1) + b"\nnext\n")] == [
        (LONGEST - 1, True),
        (4, True),
    ]


def test_memory_is_bounded_by_a_line_not_by_the_file(tmp_path: Path) -> None:
    path = tmp_path / "huge.log"
    served = (
        b"INFO 10-02 12:01:00 metrics.py:345] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 "
        b"tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 4 reqs, GPU KV cache usage: 5.0%, CPU KV cache usage: "
        b"0.0%.\n"
    )
    with path.open("wb") as out:
        for number in range(1_000):
            out.write(served)
            out.write(b"something else, number %d of them, " % number + b"x" * 4_000 + b"\n")
    assert path.stat().st_size > 4_000_000
    tracemalloc.start()
    try:
        log = read_log(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (log.lines.read, log.lines.understood, log.lines.not_understood) == (2_000, 1_000, 1_000)
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.log", None, "there is no such file; give the log of a vLLM server, or - for standard input"),
        ("a.log", b"", "is empty; give the log of a vLLM server"),
        ("b.log", gzip.compress(b"x", mtime=0), "is compressed with gzip; unpack it first (gunzip)"),
        ("c.log", b"hello\nthere\n", "none of 2 lines is one that a vLLM server of 0.6 to 0.33 writes"),
        ("d.log", bytes(range(256)) * 100, "none of"),
    ],
)
def test_what_is_no_log_is_one_line(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is no regular file"), open_log(tmp_path):
        pass
