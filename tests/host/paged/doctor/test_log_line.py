"""The head of a line, as each generation writes it."""

import pytest

from paged.doctor.log_line import LogLine, split_head

DAY = 86_400.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 0.6, 0.7: the file without brackets
        ("INFO 01-02 00:00:05 metrics.py:351] text", LogLine(1, "text", "INFO", DAY + 5, "metrics.py")),
        # 0.7.3 on: in brackets
        ("WARNING 01-01 00:01:00 [scheduler.py:1481] text", LogLine(1, "text", "WARNING", 60, "scheduler.py")),
        # 0.10 on: a process before it
        (
            "(EngineCore_DP0 pid=95672) INFO 01-01 00:00:01 [core.py:94] text",
            LogLine(1, "text", "INFO", 1, "core.py", "EngineCore_DP0"),
        ),
        # with folders of the file
        ("DEBUG 01-01 00:00:01 [v1/metrics/loggers.py:9] text", LogLine(1, "text", "DEBUG", 1, "loggers.py")),
        # a container's time before it
        (
            "2026-05-14 12:43:12.552 | (EngineCore pid=2) INFO 01-01 00:00:02 [gpu_worker.py:440] text",
            LogLine(1, "text", "INFO", 2, "gpu_worker.py", "EngineCore"),
        ),
        # a line of a traceback behind a process
        ('(EngineCore pid=2)   File "a.py"', LogLine(1, 'File "a.py"', process="EngineCore")),
        # no head at all
        ("Traceback (most recent call last):", LogLine(1, "Traceback (most recent call last):")),
        # a date that does not exist is no time
        ("INFO 02-30 00:00:00 [core.py:94] text", LogLine(1, "text", "INFO", None, "core.py")),
    ],
)
def test_heads(text: str, expected: LogLine) -> None:
    assert split_head(1, text) == expected


def test_what_stands_late_in_a_line_is_no_head() -> None:
    text = "x" * 300 + " INFO 01-02 00:00:05 [metrics.py:351] text"
    assert split_head(1, text) == LogLine(1, text)
