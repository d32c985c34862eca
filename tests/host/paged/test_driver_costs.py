"""What driver calls cost: published sets by name, and sets of one's own."""

import pytest

from paged.serving.driver_costs import SETS, Lap, driver_costs


def test_driver_costs_multiply_calls_by_published_figures() -> None:
    calls = {"cuMemCreate": 1000, "cuMemSetAccess": 100, "cuCtxSynchronize": 7}
    costs = SETS["vattention"]
    assert costs.seconds(calls) == pytest.approx((1000 * 29 + 100 * 38) * 1e-6)
    assert costs.missing(calls) == ["cuCtxSynchronize"]


def test_driver_costs_from_a_file(tmp_path) -> None:
    path = tmp_path / "costs.json"
    path.write_text('{"source": "my GPU", "microseconds": {"cuMemMap": 3.5}}')
    costs = driver_costs(str(path))
    assert (costs.source, costs.seconds({"cuMemMap": 2})) == ("my GPU", 7e-6)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"source": "x", "microseconds": 3}', '{"source":1,"microseconds":{"a":"b"}}']
)
def test_a_file_without_driver_costs(tmp_path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"costs\.json: not a set of driver costs; write \{"):
        driver_costs(str(path))


@pytest.mark.parametrize("cost", ["-1", "NaN", "Infinity"])
def test_a_cost_that_is_none(tmp_path, cost: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(f'{{"source": "x", "microseconds": {{"cuMemMap": {cost}}}}}')
    with pytest.raises(ValueError, match=r"the cost of cuMemMap is .*; a cost is 0 microseconds or more"):
        driver_costs(str(path))


def test_unknown_driver_costs() -> None:
    with pytest.raises(ValueError, match="unknown driver costs 'mine'; use vattention, kvcached, or the path"):
        driver_costs("mine")


def test_a_lap_is_what_came_since_the_last() -> None:
    total = [5.0]
    lap = Lap(lambda: total[0])
    assert lap() == 0
    total[0] = 7.5
    assert (lap(), lap()) == (2.5, 0)
