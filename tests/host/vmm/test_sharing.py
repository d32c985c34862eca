"""vmm.sharing within one process, between two drivers: what is shared, how, and what a failure leaves."""

import contextlib
import gc
import re
from pathlib import Path

import numpy as np
import pytest

import vmm
import vmm.host.physical
from vmm.host import HostDriver, sweep
from vmm.host.shared_file import open_files
from vmm.sharing import Exporter, attach

UNIT = 2 << 20


@pytest.fixture(params=["eager", "deferred"])
def streams(request):
    return request.param


@pytest.fixture
def home(streams):
    """The exporter's device."""
    with vmm.Device(driver=HostDriver(memory="64 MiB", streams=streams)) as found:
        yield found


@pytest.fixture
def away(streams):
    """The importer's device, of a driver of its own."""
    with vmm.Device(driver=HostDriver(memory="64 MiB", streams=streams)) as found:
        yield found


@pytest.fixture
def supply(home):
    with vmm.ChunkSupply(home, cache="32 MiB", exportable=True) as found:
        yield found


@pytest.fixture
def memory(home, supply):
    """A range with chunks 0, 1, 2 and 5, each filled with its index + 1."""
    with vmm.GrowableRange(home, "32 MiB", supply=supply, name="kv") as found:
        found.commit([0, 1, 2, 5])
        for chunk in found.committed_chunks():
            found.array("uint8", UNIT, chunk * UNIT)[:] = chunk + 1
        yield found


@pytest.fixture
def exporter(memory, tmp_path):
    with Exporter(memory, access="rw", folder=tmp_path) as found:
        yield found


def first_bytes(range_):
    """The first byte of each chunk that is there."""
    return {chunk: int(range_.array("uint8", 1, chunk * UNIT)[0]) for chunk in range_.committed_chunks()}


def descriptors():
    """What this process has open: {number: what it is}, without the folder that is being read."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[entry.name] = str(entry.readlink())
    return found


# -- what is shared ---------------------------------------------------------------------------------------------


def test_the_importer_has_the_exporters_bytes_at_the_exporters_offsets(exporter, away):
    with attach(away, exporter.path) as shared:
        assert (shared.size, shared.committed, shared.chunk_size) == (6 * UNIT, 4 * UNIT, UNIT)
        assert shared.runs() == [
            vmm.Run(0, 3 * UNIT, vmm.Access.READWRITE),
            vmm.Run(5 * UNIT, 6 * UNIT, vmm.Access.READWRITE),
        ]
        assert first_bytes(shared) == {0: 1, 1: 2, 2: 3, 5: 6}
        assert shared.base % UNIT == 0


def test_both_sides_see_what_the_other_writes(exporter, memory, away):
    with attach(away, exporter.path) as shared:
        mine, theirs = memory.array("uint32", 3 * UNIT // 4), shared.array("uint32", 3 * UNIT // 4)
        mine[:] = np.arange(mine.size, dtype=np.uint32)
        assert (theirs == np.arange(mine.size)).all()
        theirs[::4096] = 7
        assert (mine[::4096] == 7).all()
        del mine, theirs


def test_a_hole_stays_a_hole(exporter, away):
    with attach(away, exporter.path) as shared:
        with pytest.raises(vmm.RangeError, match="chunk 3 is not shared"):
            shared.array("uint8", UNIT + 1, 2 * UNIT)
        with pytest.raises(vmm.RangeError, match="chunk 6 is not shared"):
            shared.array("uint8", UNIT + 1, 5 * UNIT)
        with pytest.raises(vmm.StateError, match=r"chunk 4 of shared range .* is not shared"):
            shared.mapping(4)
        assert not vmm.describe(away, shared.base + 3 * UNIT).mapped
        assert vmm.describe(away, shared.base + 5 * UNIT).mapped
        assert [run.offset for run in vmm.snapshot(shared).runs] == [0] * 4


def test_chosen_chunks_are_shared_and_no_others(memory, away, tmp_path):
    with Exporter(memory, [5, 1, 1], folder=tmp_path) as exporter, attach(away, exporter.path) as shared:
        assert exporter.size == 2 * UNIT
        assert first_bytes(shared) == {1: 2, 5: 6}


def test_chunks_larger_than_the_granularity_are_shared_whole(home, away, tmp_path):
    with (
        vmm.ChunkSupply(home, "4 MiB", exportable=True) as supply,
        vmm.GrowableRange(home, "16 MiB", supply=supply) as memory,
    ):
        memory.grow("8 MiB")
        memory.array("uint8", 8 << 20)[:] = 9
        with Exporter(memory, folder=tmp_path) as exporter, attach(away, exporter.path) as shared:
            assert shared.chunk_size == 4 << 20
            assert (shared.array("uint8", 8 << 20) == 9).all()


def test_more_chunks_than_one_message_holds(tmp_path):
    """300 descriptors are more than the 253 of one message; of those in flight only a batch is open at a time."""
    api = HostDriver(memory="2 GiB", backing="none")
    with (
        vmm.Device(driver=api) as device,
        vmm.ChunkSupply(device, exportable=True) as supply,
        vmm.GrowableRange(device, "2 GiB", supply=supply) as memory,
        Exporter(_committed(memory, range(0, 600, 2)), folder=tmp_path) as exporter,
        attach(device, exporter.path) as shared,
    ):
        assert shared.committed_chunks() == list(range(0, 600, 2))
        assert len(shared.runs()) == 300
    assert api.live().total == 0


def _committed(memory, chunks):
    memory.commit(chunks)
    return memory


def test_an_importers_device_may_have_another_ordinal(memory, tmp_path):
    two = HostDriver(memory="64 MiB", devices=2)
    with (
        Exporter(memory, folder=tmp_path) as exporter,
        vmm.Device(1, driver=two) as other,
        attach(other, exporter.path) as shared,
    ):
        assert first_bytes(shared) == {0: 1, 1: 2, 2: 3, 5: 6}
        assert other.driver.get_access(1, shared.base) == vmm.Access.READ


def test_a_device_with_a_larger_granularity_is_refused(exporter):
    with (
        vmm.Device(driver=HostDriver(memory="64 MiB", granularity="4 MiB")) as other,
        pytest.raises(vmm.AlignmentError, match="2097152 bytes are no multiple of the granularity 4194304"),
    ):
        attach(other, exporter.path)


# -- access -----------------------------------------------------------------------------------------------------


def test_a_read_only_grant_can_be_read_and_not_written(memory, away, tmp_path):
    with Exporter(memory, folder=tmp_path) as exporter, attach(away, exporter.path) as shared:
        assert exporter.access == shared.access == vmm.Access.READ
        view = shared.array("uint8", 16)
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        with away.current(), pytest.raises(vmm.DriverError, match="INVALID_VALUE"):
            away.driver.copy_in(shared.base, b"x", 1)
        assert first_bytes(memory)[0] == 1
        del view


def test_a_fill_of_read_only_memory_names_the_shared_range(memory, away, tmp_path):
    with Exporter(memory, folder=tmp_path) as exporter, attach(away, exporter.path) as shared:
        with away.current(), pytest.raises(vmm.DriverError, match=f"range '{shared.name}', chunk 2"):
            away.driver.fill_async(shared.base + 2 * UNIT, 0, 4)
            away.synchronize()
        assert first_bytes(memory)[2] == 3


def test_the_importer_may_ask_for_less_and_never_for_more(exporter, memory, away, tmp_path):
    with attach(away, exporter.path, access="r") as shared:
        assert shared.access == vmm.Access.READ
        assert away.driver.get_access(0, shared.base) == vmm.Access.READ
    with (
        Exporter(memory, access="r", folder=tmp_path) as reading,
        pytest.raises(vmm.SharingError, match="access READWRITE was asked, READ is granted"),
    ):
        attach(away, reading.path, access="rw")
    with pytest.raises(vmm.SharingError, match="access NONE was asked"):
        attach(away, exporter.path, access="none")


@pytest.mark.parametrize("access", ["none", "w", 3.5])
def test_an_access_that_shares_nothing_is_refused(memory, access):
    with pytest.raises(ValueError, match="access must be"):
        Exporter(memory, access=access)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_that_gives_nobody_a_chance_is_refused(memory, exporter, away, timeout):
    with pytest.raises(ValueError, match="more than 0 seconds"):
        Exporter(memory, timeout=timeout)
    with pytest.raises(ValueError, match="more than 0 seconds"):
        attach(away, exporter.path, timeout=timeout)


# -- what cannot be shared --------------------------------------------------------------------------------------


def test_memory_that_was_not_made_for_it_names_the_remedy(device):
    with (
        vmm.GrowableRange(device, "8 MiB", name="plain") as memory,
        pytest.raises(vmm.StateError, match=re.escape("supply=ChunkSupply(device, exportable=True)")) as caught,
    ):
        memory.grow("2 MiB")
        Exporter(memory)
    assert "chunk 0 of plain" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_not_shared(home, supply):
    memory = vmm.GrowableRange(home, "8 MiB", supply=supply)
    with pytest.raises(vmm.StateError, match="grow"):
        Exporter(memory)
    with pytest.raises(vmm.StateError, match=r"chunk 3 of .* is not committed"):
        Exporter(memory, [3])
    memory.close()
    with pytest.raises(vmm.ClosedError, match="closed"):
        Exporter(memory)


def test_a_folder_that_cannot_be_had_leaves_nothing_behind(memory, tmp_path):
    before = memory.device.driver.api.picture()
    with pytest.raises(vmm.SharingError, match=r"cannot make a private folder in .*no_folder.*give folder="):
        Exporter(memory, folder=tmp_path / "no_folder")
    long = tmp_path / ("x" * 100)
    long.mkdir()
    with pytest.raises(vmm.SharingError, match=r"cannot listen at .*give a folder= elsewhere"):
        Exporter(memory, folder=long)
    assert memory.device.driver.api.picture() == before
    assert list(long.iterdir()) == []


# -- whose memory it is, and for how long -----------------------------------------------------------------------


def test_the_importer_keeps_what_the_exporter_decommits(exporter, memory, supply, home, away):
    free = home.memory_info().free
    with attach(away, exporter.path) as shared:
        memory.decommit([5])
        home.synchronize()
        assert shared.array("uint8", 1, 5 * UNIT)[0] == 6
        assert supply.cached == 0
        with attach(away, exporter.path) as again:  # and so does who comes later: the exporter holds it too
            assert first_bytes(again) == {0: 1, 1: 2, 2: 3, 5: 6}
        exporter.close()
        assert shared.array("uint8", 1, 5 * UNIT)[0] == 6
        assert home.memory_info().free == free  # the importer is in this process too
    assert home.memory_info().free == free + UNIT


def test_a_chunk_that_was_shared_is_never_given_to_another_owner(exporter, memory, supply, home, away):
    """An importer that keeps its mapping must not see what comes into the chunk after it was given back."""
    with attach(away, exporter.path) as shared, vmm.GrowableRange(home, "32 MiB", supply=supply) as secret:
        memory.decommit([0, 1, 2, 5])
        home.synchronize()
        exporter.close()
        secret.grow("8 MiB")
        secret.array("uint8", 4 * UNIT)[:] = 99
        assert first_bytes(shared) == {0: 1, 1: 2, 2: 3, 5: 6}
        secret.shrink("8 MiB")
        home.synchronize()
        assert supply.cached == 4 * UNIT  # these never left the process, and are kept


def test_a_chunk_moved_by_remap_stays_shared_as_it_was(exporter, memory, away):
    with attach(away, exporter.path) as shared:
        memory.remap(1)
        memory.array("uint8", UNIT, UNIT)[:] = 50
        assert first_bytes(shared)[1] == 2


def test_a_closed_range_lives_on_in_its_exporter_and_its_importer(home, supply, away, tmp_path):
    free = home.memory_info().free
    memory = vmm.GrowableRange(home, "8 MiB", supply=supply)
    memory.grow("4 MiB")
    memory.array("uint8", 2 * UNIT)[:] = 3
    exporter = Exporter(memory, folder=tmp_path)
    memory.close()
    shared = attach(away, exporter.path)
    exporter.close()
    assert (shared.array("uint8", 2 * UNIT) == 3).all()
    shared.close()
    assert home.memory_info().free == free
    assert away.driver.api.live().total == 1  # the context


def test_shared_memory_is_not_let_go_under_work_or_under_an_array(exporter, memory, away):
    shared = attach(away, exporter.path)
    view = shared.array("uint8", 8, UNIT)
    with pytest.raises(vmm.StateError, match=r"an array still views them \(uint8\[8\] at offset 2097152 of shared"):
        shared.close()
    del view
    with away.current():
        away.driver.fill_async(shared.base, 77, UNIT)  # waits in its stream where streams are deferred
    shared.close()
    shared.close()
    assert first_bytes(memory)[0] == 77
    with pytest.raises(vmm.ClosedError, match="attach again"):
        shared.array("uint8", 1)


def test_queued_work_is_seen_when_it_has_been_waited_for(exporter, memory, home, away):
    with attach(away, exporter.path) as shared:
        with home.current():
            home.driver.fill_async(memory.base, 44, UNIT)
        home.synchronize()
        assert first_bytes(shared)[0] == 44


def test_an_array_keeps_shared_memory_alive_through_an_error(exporter, away):
    kept = []
    with pytest.raises(RuntimeError, match="on its way"), attach(away, exporter.path) as shared:
        kept.append(shared.array("uint8", 4))
        raise RuntimeError("on its way")
    assert kept[0][0] == 1
    kept.clear()
    shared.close()


def test_owners_that_are_dropped_give_back_and_say_so(memory, away, tmp_path):
    exporter = Exporter(memory, folder=tmp_path)
    shared = attach(away, exporter.path)
    with pytest.warns(ResourceWarning, match=r"shared range .* was never closed"):
        del shared
        gc.collect()
    with pytest.warns(ResourceWarning, match="exporter of kv was never closed"):
        del exporter
        gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert away.driver.api.live().total == 1


def test_closing_leaves_no_file_and_no_descriptor(memory, away, tmp_path):
    before = descriptors()
    exporter = Exporter(memory, folder=tmp_path)
    folder = exporter.path.parent
    assert (folder.stat().st_mode & 0o777, folder.parent) == (0o700, tmp_path)
    with attach(away, exporter.path):
        pass
    assert exporter.wait(1, timeout=20)
    assert (exporter.attached, exporter.closed) == (1, False)
    exporter.close()
    exporter.close()
    assert exporter.closed
    assert list(tmp_path.iterdir()) == []
    assert descriptors() == before
    with pytest.raises(vmm.SharingError, match="there is no socket"):
        attach(away, exporter.path)


def test_the_text_of_both_owners(exporter, away):
    assert repr(exporter) == f"Exporter('kv', READWRITE, 8 MiB at {exporter.path})"
    with attach(away, exporter.path) as shared:
        assert repr(shared) == f"SharedRange({shared.name!r}, {shared.base:#x}, 12 MiB, 8 MiB shared, READWRITE)"
    assert repr(shared).endswith("12 MiB, closed, READWRITE)")


def test_letting_go_of_shared_chunks_costs_each_the_same(home, supply, away, tmp_path, monkeypatch):
    """The host driver looks through the descriptors of the process when it is asked what is free, not at each chunk."""
    looks = []
    monkeypatch.setattr(vmm.host.physical, "open_files", lambda: looks.append(1) or open_files())
    with vmm.GrowableRange(home, "64 MiB", supply=supply) as memory:
        memory.grow("32 MiB")
        with Exporter(memory, folder=tmp_path) as exporter:
            attach(away, exporter.path).close()
        memory.shrink("32 MiB")
        home.synchronize()
        assert looks == []
    assert home.memory_info().free == home.total
    assert len(looks) == 1


# -- failures ---------------------------------------------------------------------------------------------------


def test_an_export_that_fails_half_way_leaves_nothing(failing, tmp_path):
    device, api = failing
    with (
        vmm.ChunkSupply(device, exportable=True) as supply,
        vmm.GrowableRange(device, "16 MiB", supply=supply) as memory,
    ):
        memory.commit([0, 1, 4])
        made = []
        done = sweep(
            api,
            lambda: made.append(Exporter(memory, folder=tmp_path)),
            restore=lambda: made.pop().close(),
            state=lambda: (list(tmp_path.iterdir()), [memory.mapping(i).memory.exported for i in (0, 1, 4)]),
        )
        assert [failed.call for failed in done] == ["cuMemRetainAllocationHandle"] * 3


def test_an_export_that_fails_while_serving_is_told_to_the_importer(failing, device, tmp_path, caplog):
    home, api = failing
    with (
        vmm.ChunkSupply(home, exportable=True) as supply,
        vmm.GrowableRange(home, "16 MiB", supply=supply) as memory,
        Exporter(_committed(memory, [0, 1, 4]), folder=tmp_path) as exporter,
    ):
        api.arm("cuMemExportToShareableHandle", 2)
        with pytest.raises(vmm.SharingError, match=r"exporter refused: cuMemExportToShareableHandle.*OUT_OF_MEMORY"):
            attach(device, exporter.path)
        assert "not shared: cuMemExport" in caplog.text
        with attach(device, exporter.path) as shared:  # the next one is served
            assert shared.committed == 3 * UNIT
