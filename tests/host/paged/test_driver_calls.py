"""Counting and timing of driver calls."""

import pytest

from paged.serving.driver_calls import DriverCalls


class Api:
    """Three attributes of a driver."""

    backing = "none"
    other = 3

    def cuMemMap(self, value: int) -> tuple[int, int]:  # noqa: N802
        return 0, value


def test_calls_are_counted_and_passed_on() -> None:
    calls = DriverCalls(Api())
    assert [calls.api.cuMemMap(value) for value in (1, 2)] == [(0, 1), (0, 2)]
    assert (calls.counts(), calls.seconds, calls.api.other, calls.api.backing) == ({"cuMemMap": 2}, 0, 3, "none")
    calls.clear()
    assert calls.counts() == {}
    calls.api.cuMemMap(1)
    assert calls.counts() == {"cuMemMap": 1}


def test_calls_are_timed_where_they_are_real() -> None:
    calls = DriverCalls(Api(), timed=True)
    calls.api.cuMemMap(1)
    assert 0 < calls.seconds < 1
    calls.clear()
    assert calls.seconds == 0


def test_an_attribute_that_a_driver_lacks_is_missing() -> None:
    with pytest.raises(AttributeError, match="cuNothing"):
        DriverCalls(Api()).api.cuNothing()
