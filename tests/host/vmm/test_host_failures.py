"""Failures on demand, the picture of the whole state, and the sweep that compares it."""

import contextlib
import re
from collections import Counter

import pytest

import vmm
from vmm.driver import Access, Driver
from vmm.host import Failed, FailingDriver, Failure, HostDriver, SweepError, sweep

UNIT = 2 << 20
GRANT = [(0, Access.READWRITE)]


@pytest.fixture(params=["memory", "none"])
def api(request):
    return HostDriver(memory="64 MiB", backing=request.param)


@pytest.fixture
def failing(api):
    return FailingDriver(api)


@pytest.fixture
def driver(failing):
    return Driver(failing, "host")


# -- one failure ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"call": "cuMemMapp"}, "'cuMemMapp' is no call"),
        ({"at": 0}, "counted from 1, not 0"),
        ({"code": 0}, "0 is no status"),
        ({"code": 12345}, "12345 is no status"),
    ],
)
def test_a_failure_that_could_not_happen_is_refused(options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Failure(**options)


def test_the_kth_use_of_one_call_fails_once(api):
    driver = Driver(api, "host")
    api.fail(Failure("cuMemCreate", 3, code=800))
    handles = [driver.create(0, UNIT) for _ in range(2)]
    with pytest.raises(vmm.DriverError, match="NOT_PERMITTED"):
        driver.create(0, UNIT)
    handles.append(driver.create(0, UNIT))
    assert api.live().allocations == 3
    for handle in handles:
        driver.release(handle)


def test_the_kth_call_of_any_kind_fails_and_has_its_outputs(api):
    Driver(api, "host")
    api.fail(Failure(at=2))
    assert int(api.cuDeviceGetCount()[0]) == 0
    assert api.cuMemGetInfo() == (2, None, None)
    assert api.cuMemGetInfo()[0] == 201  # as it is without a context


def test_a_failure_is_an_option_and_outlives_a_second_cu_init():
    api = HostDriver(backing="none", fail=Failure("cuMemAddressReserve"))
    Driver(api, "host")
    driver = Driver(api, "host")
    with pytest.raises(MemoryError):
        driver.reserve(UNIT)
    driver.free(driver.reserve(UNIT), UNIT)


def test_a_failure_can_be_taken_back(api):
    driver = Driver(api, "host")
    api.fail(Failure("cuMemCreate"))
    api.fail(None)
    driver.release(driver.create(0, UNIT))
    assert not [call for call in vars(api) if call.startswith("cu")]  # an open driver has no guards


def test_a_failure_before_init_opens_nothing():
    api = HostDriver(backing="none")
    api.fail(Failure("cuMemCreate", at=1))
    assert int(api.cuMemAddressReserve(UNIT, 0, 0, 0)[0]) == 3
    driver = Driver(api, "host")
    with pytest.raises(MemoryError):
        driver.create(0, UNIT)


def test_a_wrapped_driver_counts_and_spares(api):
    failing = FailingDriver(api, spared=["cuMemRelease"])
    driver = Driver(failing, "host")
    failing.arm(at=2)
    handle = driver.create(0, UNIT)
    driver.release(handle)
    with pytest.raises(MemoryError):
        driver.create(0, UNIT)
    assert failing.failed == "cuMemCreate"
    assert failing.disarm() is False
    failing.arm("cuMemMap", 1)
    assert failing.disarm() is True
    assert failing.granularity == UNIT


# -- the picture ------------------------------------------------------------------------------------------------


def test_a_picture_shows_every_kind_of_object(api):
    driver = Driver(api, "host")
    empty = api.picture()
    with driver.context(driver.context_retain(0)):
        base, handle = driver.reserve(2 * UNIT), driver.create(0, UNIT)
        driver.map(base, UNIT, handle)
        driver.set_access(base, UNIT, [(0, Access.READ)])
        plain, pinned = driver.alloc(10), driver.host_alloc(10)
        stream, event = int(api.cuStreamCreate(0)[1]), driver.event_record(0)
        seen = api.picture()
        assert seen.reservations == ((base, 2 * UNIT),)
        assert seen.mappings == ((base, UNIT, handle, (((1, 0), 1),)),)
        assert seen.allocations == ((handle, UNIT, 1, 1),)
        assert sorted(seen.plain) == sorted([(plain, 10), (pinned, 10)])
        assert (seen.contexts, seen.streams, seen.events) == ((1,), (stream,), (event,))
        assert empty.free[0] - seen.free[0] == UNIT + 4096
        text = "; ".join(empty.differences(seen))
        written = [
            f"mappings: ({base:#x}, {UNIT:#x}, {number}, (((1, 0), 1))) is new" for number in (handle, hex(handle))
        ]
        assert any(line in text for line in written)  # a large handle is written in hex
        assert f"reservations: ({base:#x}, {2 * UNIT:#x}) is gone" in "; ".join(seen.differences(empty))
        driver.alloc_free(plain)
        driver.host_free(pinned)
        driver.event_destroy(event)
        api.cuStreamDestroy(stream)
    driver.context_release(0)
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, 2 * UNIT)
    assert api.picture() == empty
    assert empty.differences(api.picture()) == []


def test_a_picture_tells_a_changed_access(api):
    driver = Driver(api, "host")
    base, handle = driver.reserve(UNIT), driver.create(0, UNIT)
    driver.map(base, UNIT, handle)
    before = api.picture()
    driver.set_access(base, UNIT, GRANT)
    assert len(before.differences(api.picture())) == 2  # the same mapping with and without
    driver.set_access(base, UNIT, [(0, Access.NONE)])
    assert api.picture() == before  # no access is no access
    driver.unmap(base, UNIT)
    driver.release(handle)
    driver.free(base, UNIT)


# -- the sweep --------------------------------------------------------------------------------------------------


class Grow:
    """Three granules in one reservation, by hand; ``forgets`` names the step that is not undone."""

    def __init__(self, driver, forgets=""):
        self.driver, self.forgets = driver, forgets
        self.undo = []

    def __call__(self):
        self.undo = []
        try:
            self.grow()
        except Exception:
            self.back()
            raise

    def grow(self):
        base = self.driver.reserve(3 * UNIT)
        self.then("free", lambda: self.driver.free(base, 3 * UNIT))
        for index in range(3):
            self.one(base + index * UNIT)
        self.driver.set_access(base, 3 * UNIT, GRANT)

    def one(self, address):
        handle = self.driver.create(0, UNIT)
        self.then("release", lambda: self.driver.release(handle))
        self.driver.map(address, UNIT, handle)
        self.then("unmap", lambda: self.driver.unmap(address, UNIT))

    def then(self, name, step):
        if name != self.forgets:
            self.undo.append(step)

    def back(self):
        while self.undo:
            self.undo.pop()()


EXPECTED = ["cuMemAddressReserve", *["cuMemCreate", "cuMemMap"] * 3, "cuMemSetAccess"]


def test_a_sweep_fails_every_call_in_turn(driver, failing):
    grow = Grow(driver)
    done = sweep(failing, grow, restore=grow.back)
    assert [(failed.call, failed.at) for failed in done] == [(call, at) for at, call in enumerate(EXPECTED, 1)]
    assert all(isinstance(failed.error, MemoryError) for failed in done)
    assert failing.live().total == 0


@pytest.mark.parametrize("forgets", ["free", "release", "unmap"])
def test_an_undo_that_is_left_out_is_caught(driver, failing, forgets):
    grow = Grow(driver, forgets)
    said = {"free": "reservations: ", "release": "allocations: ", "unmap": "mappings: "}[forgets]
    with pytest.raises(SweepError, match="failed and the operation raised") as caught:
        sweep(failing, grow, restore=grow.back)
    assert said in str(caught.value)
    tidy(failing)


def tidy(api):
    """Give back what a broken operation left, by the driver's own picture."""
    seen = api.picture()
    for base, size, *_ in seen.mappings:
        api.cuMemUnmap(base, size)
    for handle, _size, references, _maps in seen.allocations:
        for _ in range(references):
            api.cuMemRelease(handle)
    for base, size in seen.reservations:
        api.cuMemAddressFree(base, size)
    assert api.live().total == 0


def test_a_sweep_of_one_call_with_another_code(driver, failing):
    grow = Grow(driver)
    done = sweep(failing, grow, restore=grow.back, call="cuMemMap", code=1)
    assert [(failed.call, failed.at) for failed in done] == [("cuMemMap", 1), ("cuMemMap", 2), ("cuMemMap", 3)]
    assert all(failed.error.code == 1 for failed in done)


def test_a_sweep_compares_what_it_is_told_to(driver, failing):
    grow, counted = Grow(driver), []

    def forgetful():
        counted.append(1)
        grow()

    with pytest.raises(SweepError, match=r"call 1, cuMemAddressReserve, .* the state was 0, is 1"):
        sweep(failing, forgetful, state=lambda: len(counted))


def test_an_operation_that_does_without_a_call_goes_on(driver, failing):
    def careful():
        for _ in range(2):
            with contextlib.suppress(MemoryError):
                driver.release(driver.create(0, UNIT))

    done = sweep(failing, careful, restore=lambda: None, call="cuMemCreate")
    assert done == [Failed("cuMemCreate", 1, None), Failed("cuMemCreate", 2, None)]
    assert sweep(failing, careful, call="cuMemCreate") == done[:1]  # nothing brings the state back, so it ends there


def test_an_error_of_the_operation_itself_is_no_result(failing, driver):
    def broken():
        driver.free(driver.reserve(UNIT), UNIT)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sweep(failing, broken, call="cuMemCreate")


def test_a_sweep_of_the_toolkits_own_growth(failing):
    with vmm.Device(driver=failing) as device, vmm.GrowableRange(device, "32 MiB") as memory:
        memory.grow("2 MiB")
        state = lambda: (memory.size, memory.committed_chunks(), memory.supply.in_use)
        done = sweep(failing, lambda: memory.grow("6 MiB"), restore=lambda: memory.shrink("6 MiB"), state=state)
        assert Counter(failed.call for failed in done) == {"cuMemCreate": 3, "cuMemMap": 3, "cuMemSetAccess": 1}
