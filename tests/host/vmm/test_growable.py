import gc
import random
import threading

import numpy as np
import pytest

import vmm

STREAMS = ("eager", "deferred")

MIB = 1 << 20
CHUNK = 2 * MIB


@pytest.fixture
def kv(device):
    with vmm.GrowableRange(device, "64 MiB", name="kv") as made:
        yield made


def test_the_example_of_the_front_page(device):
    with vmm.GrowableRange(device, "64 GiB") as kv:
        base = kv.base
        kv.grow("200 MiB")
        x = kv.array("float16", (1024, 128))
        x[:] = 3
        assert (kv.reserved, kv.committed) == (64 << 30, 200 * MIB)
        assert kv.runs() == [vmm.Run(0, 200 * MIB, vmm.Access.READWRITE)]
        kv.grow(1)
        assert kv.committed == 202 * MIB
        assert kv.base == base
        assert (x == 3).all()
        del x
        kv.shrink("150 MiB")
        device.synchronize()  # nothing was queued; with deferred streams even that is known only later
        assert kv.committed == 52 * MIB
        assert kv.size == 50 * MIB + 1


def test_the_front_counts_bytes_and_commits_whole_chunks(kv):
    for size, chunks in ((1, 1), (CHUNK, 1), (CHUNK + 1, 2), (5 * CHUNK, 5), (3, 1)):
        kv.resize(size)
        kv.collect(wait=True)
        assert (kv.size, kv.committed) == (size, chunks * CHUNK)
    kv.shrink(3)
    kv.collect(wait=True)
    assert (kv.size, kv.committed) == (0, 0)


def test_growing_inside_a_committed_chunk_makes_no_driver_call(rules):
    recorder = vmm.Recorder()
    with (
        vmm.Device(driver=rules.driver.api, recorder=recorder) as device,
        vmm.GrowableRange(device, "1 GiB") as memory,
    ):
        memory.grow(1)
        recorder.clear()
        memory.grow(CHUNK - 1)
        assert recorder.counts() == {}


def test_calls_are_few(rules):
    recorder = vmm.Recorder()
    with (
        vmm.Device(driver=rules.driver.api, recorder=recorder) as device,
        vmm.GrowableRange(device, "4 GiB") as memory,
    ):
        recorder.clear()
        memory.grow(512 * CHUNK)
        assert recorder.counts() == {"cuMemCreate": 512, "cuMemMap": 512, "cuMemSetAccess": 1}
        recorder.clear()
        memory.shrink(512 * CHUNK)
        counts = recorder.counts()
        assert (counts["cuMemUnmap"], counts["cuMemRelease"]) == (1, 512)
        recorder.clear()
        memory.commit([9, 1, 2, 3, 7, 8])
        assert recorder.counts() == {"cuMemCreate": 6, "cuMemMap": 6, "cuMemSetAccess": 2}


def test_any_set_of_chunks_is_committed_and_decommitted(kv):
    kv.commit([5, 1, 2])
    assert kv.committed_chunks() == [1, 2, 5]
    assert kv.runs() == [
        vmm.Run(CHUNK, 3 * CHUNK, vmm.Access.READWRITE),
        vmm.Run(5 * CHUNK, 6 * CHUNK, vmm.Access.READWRITE),
    ]
    kv.decommit([2, 5])
    assert kv.committed_chunks() == [1]
    kv.commit([])
    kv.decommit([])
    kv.collect(wait=True)
    assert kv.committed == CHUNK


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        (lambda kv: kv.commit([32]), vmm.RangeError, "chunk 32 is outside kv, which has chunks 0 to 31"),
        (lambda kv: kv.commit([-1, 3]), vmm.RangeError, "chunk -1"),
        (lambda kv: kv.commit([0, 1]), vmm.StateError, "chunk 0 of kv is committed already"),
        (lambda kv: kv.decommit([7]), vmm.StateError, "chunk 7 of kv is not committed"),
        (lambda kv: kv.decommit([0]), vmm.StateError, "shrink"),
        (lambda kv: kv.grow("65 MiB"), vmm.RangeError, "64 MiB reserved for kv"),
        (lambda kv: kv.grow(0), vmm.SizeError, "grow by must be more than 0"),
        (lambda kv: kv.grow(-4), vmm.SizeError, "-4"),
        (lambda kv: kv.grow("lots"), vmm.SizeError, "lots"),
        (lambda kv: kv.shrink("5 MiB"), vmm.RangeError, "its size is 2097152"),
        (lambda kv: kv.protect(0, 1, "r"), vmm.AlignmentError, "multiples of the chunk"),
        (lambda kv: kv.protect(CHUNK, CHUNK, "r"), vmm.RangeError, "no span"),
        (lambda kv: kv.protect(0, 2 * CHUNK, "r"), vmm.StateError, "chunk 1 of kv is not committed"),
        (lambda kv: kv.protect(0, CHUNK, "w"), ValueError, "'none', 'r' or 'rw', not 'w'"),
        (lambda kv: kv.remap(4), vmm.StateError, "chunk 4 of kv is not committed"),
        (lambda kv: kv.array("float32", 1024, offset=CHUNK), vmm.RangeError, "chunk 1 is not committed"),
        (lambda kv: kv.array("float32", (2, -1)), vmm.RangeError, r"\(2, -1\)"),
        (lambda kv: kv.array("float32", 4, offset=2), vmm.AlignmentError, "offset 2"),
        (lambda kv: kv.array("float33", 4), ValueError, "float33"),
        (lambda kv: kv.mapping(3), vmm.StateError, "chunk 3"),
    ],
)
def test_bad_input_is_one_line_with_the_value_and_changes_nothing(kv, action, error, text):
    kv.grow(CHUNK)
    live = kv.device.driver.api.live()
    with pytest.raises(error, match=text) as caught:
        action(kv)
    assert "\n" not in str(caught.value)
    assert (kv.size, kv.committed_chunks()) == (CHUNK, [0])
    assert kv.device.driver.api.live() == live


def test_a_full_device_changes_nothing_and_says_at_which_chunk(kv):
    with vmm.GrowableRange(kv.device, "1 GiB", name="big") as big:
        big.grow("200 MiB")
        with pytest.raises(vmm.OutOfMemoryError, match=r"chunk 29 of 50 new ones; 0 B free"):
            big.grow("100 MiB")
        assert (big.size, big.committed) == (200 * MIB, 200 * MIB)
        big.shrink("100 MiB")
        big.grow("100 MiB")


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_case_1_a_grow_that_fails_at_any_call_leaves_no_trace(failing, call):
    """pytorch#188008, kvcached#437, Mooncake#2380."""
    device, api = failing
    with vmm.GrowableRange(device, "32 MiB", name="kv") as kv:
        kv.commit([2])
        live, free, at = device.driver.api.live(), device.memory_info().free, 0
        while True:
            at += 1
            api.arm(call, at)
            try:
                kv.commit([0, 1, 3, 4, 7])
            except vmm.VmmError as error:
                assert call in str(error)
                assert "chunk" in str(error)
            if api.disarm():
                break
            assert kv.committed_chunks() == [2]
            assert (device.driver.api.live(), device.memory_info().free) == (live, free)
        assert at == {"cuMemCreate": 6, "cuMemMap": 6, "cuMemSetAccess": 4}[call]  # three runs: 0-1, 3-4, 7
        assert kv.committed_chunks() == [0, 1, 2, 3, 4, 7]


def test_a_decommit_that_fails_midway_puts_the_same_bytes_back(failing):
    device, api = failing
    with vmm.GrowableRange(device, "32 MiB") as kv:
        kv.commit([0, 1, 4, 6])
        for chunk in (0, 1, 4, 6):
            kv.array("uint8", CHUNK, offset=chunk * CHUNK)[:] = chunk + 1
        kv.protect(4 * CHUNK, 5 * CHUNK, "r")
        for at in (1, 2, 3):
            api.arm("cuMemUnmap", at, 1)
            with pytest.raises(vmm.DriverError, match="cuMemUnmap"):
                kv.decommit([0, 1, 4, 6])
            assert kv.committed_chunks() == [0, 1, 4, 6]
            assert kv.mapping(4).access == vmm.Access.READ
            for chunk in (0, 1, 4, 6):
                assert (kv.array("uint8", CHUNK, offset=chunk * CHUNK) == chunk + 1).all()
        kv.decommit([0, 1, 4, 6])
        assert kv.committed == 0


@pytest.mark.parametrize(
    "call", ["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemcpyDtoDAsync", "cuMemUnmap"]
)
def test_a_remap_that_fails_at_any_call_leaves_the_chunk_where_it_was(failing, call):
    device, api = failing
    with vmm.GrowableRange(device, "32 MiB") as kv:
        kv.grow(3 * CHUNK)
        kv.array("uint8", 3 * CHUNK)[:] = 9
        live, handle, at = device.driver.api.live(), kv.mapping(1).handle, 0
        while True:
            at += 1
            api.arm(call, at, 2)
            try:
                kv.remap(1)
            except vmm.VmmError:
                assert kv.mapping(1).handle == handle
                assert device.driver.api.live() == live
                assert (kv.array("uint8", 3 * CHUNK) == 9).all()
            if api.disarm():
                break
        assert at > 1, f"a remap never calls {call}"
        assert kv.mapping(1).handle != handle
        assert (kv.array("uint8", 3 * CHUNK) == 9).all()


def test_remap_moves_the_bytes_and_keeps_address_and_access(kv):
    kv.grow(3 * CHUNK)
    kv.array("int32", 3 * CHUNK // 4)[:] = np.arange(3 * CHUNK // 4)
    kv.protect(CHUNK, 2 * CHUNK, "r")
    handle, address = kv.mapping(1).handle, kv.mapping(1).address
    after = kv.remap(1)
    assert after.handle != handle
    assert (after.address, after.access) == (address, vmm.Access.READ)
    assert (kv.array("int32", 3 * CHUNK // 4) == np.arange(3 * CHUNK // 4)).all()


def test_access_can_be_lowered_and_raised_by_span(kv):
    kv.grow(3 * CHUNK)
    kv.protect(CHUNK, 2 * CHUNK, "r")
    assert [run.access.name for run in kv.runs()] == ["READWRITE", "READ", "READWRITE"]
    view = kv.array("uint8", 16, offset=CHUNK)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    with pytest.raises(vmm.StateError, match="still views"):
        kv.protect(CHUNK, 2 * CHUNK, "none")
    del view
    kv.protect(CHUNK, 2 * CHUNK, "none")
    with pytest.raises(vmm.StateError, match="cannot be read"):
        kv.array("uint8", 16, offset=CHUNK)
    with pytest.raises(vmm.StateError, match="cannot be read"):
        kv.remap(1)
    kv.protect(0, 3 * CHUNK, "rw")
    kv.array("uint8", 3 * CHUNK)[:] = 1


def test_a_range_can_start_read_only(device):
    with vmm.GrowableRange(device, "8 MiB", access="r") as kv:
        kv.grow(CHUNK)
        assert kv.mapping(0).access == vmm.Access.READ
        assert not kv.array("uint8", 8).flags.writeable


def test_decommit_under_a_live_view_is_refused_naming_it(kv):
    kv.grow(4 * CHUNK)
    view = kv.array("bfloat16", (8, 16), offset=3 * CHUNK)
    part = view[2:4]
    del view
    with pytest.raises(vmm.StateError, match=r"bfloat16\[8, 16\] at offset 6291456 of kv"):
        kv.shrink(CHUNK)
    assert (kv.size, kv.committed) == (4 * CHUNK, 4 * CHUNK)
    with pytest.raises(vmm.StateError, match="close kv"):
        kv.close()
    del part
    kv.shrink(2 * CHUNK)


def test_an_array_keeps_the_range_alive(device):
    kv = vmm.GrowableRange(device, "8 MiB")
    kv.grow(CHUNK)
    x = kv.array("uint8", CHUNK)
    x[:] = 5
    del kv
    gc.collect()
    assert (x == 5).all()
    with pytest.warns(ResourceWarning, match="never closed"):
        del x
        gc.collect()
    assert device.driver.api.live().reservations == 0


def test_an_error_inside_with_is_not_hidden_by_an_array_in_its_frames(device):
    def fail(kv):
        x = kv.array("uint8", 4)
        raise KeyError(x.shape)

    with pytest.raises(KeyError), vmm.GrowableRange(device, "8 MiB") as kv:
        kv.grow(CHUNK)
        fail(kv)
    kv.close()


def test_case_20_a_captured_part_is_neither_unmapped_nor_moved_and_growth_beyond_it_is_free(kv):
    """flashinfer#4398, llama.cpp#26771."""
    kv.grow(4 * CHUNK)
    base = kv.base
    kv.array("uint8", CHUNK, CHUNK)[:] = 7
    with kv.pin(CHUNK, 2 * CHUNK, "the graph of decode step 7"):
        with pytest.raises(vmm.StateError, match="the graph of decode step 7"):
            kv.remap(1)
        with pytest.raises(vmm.StateError, match="the graph of decode step 7"):
            kv.resize(CHUNK)
        kv.remap(2)
        kv.grow(2 * CHUNK)
        kv.shrink(3 * CHUNK)
        assert (kv.base, kv.size) == (base, 3 * CHUNK)
        with pytest.raises(vmm.StateError, match="the graph of decode step 7"):
            kv.close()
        assert (kv.array("uint8", CHUNK, CHUNK) == 7).all()
    kv.shrink(3 * CHUNK)


def test_a_chunk_from_another_owner_is_zeroed_first(device):
    with vmm.ChunkSupply(device, cache="8 MiB") as supply:
        with vmm.GrowableRange(device, "8 MiB", supply=supply) as first:
            first.grow(2 * CHUNK)
            first.array("uint8", 2 * CHUNK)[:] = 0xAB
            first.shrink(CHUNK)
            first.grow(CHUNK)
            assert (first.array("uint8", 2 * CHUNK) == 0xAB).all()  # its own bytes: no work
        with vmm.GrowableRange(device, "8 MiB", supply=supply, access="r") as second:
            second.grow(2 * CHUNK)
            assert not second.array("uint8", 2 * CHUNK).any()
            assert second.mapping(0).access == vmm.Access.READ


def test_a_closed_range_is_refused_by_name(device):
    kv = vmm.GrowableRange(device, "8 MiB", name="kv")
    kv.grow(CHUNK)
    kv.close()
    kv.close()
    for use in (lambda: kv.grow(CHUNK), lambda: kv.commit([3]), lambda: kv.remap(0), lambda: kv.protect(0, CHUNK, "r")):
        with pytest.raises(vmm.ClosedError, match="kv is closed"):
            use()
    with pytest.raises(vmm.ClosedError, match="kv is closed"):
        kv.array("uint8", 0)
    assert (kv.committed, kv.size) == (0, 0)


def test_two_threads_at_once_are_told(kv):
    seen = []
    inside, go = threading.Event(), threading.Event()

    def chunks():
        inside.set()
        go.wait(5)
        yield 3

    thread = threading.Thread(target=lambda: kv.commit(chunks()))
    thread.start()
    inside.wait(5)
    try:
        kv.commit([5])
    except vmm.StateError as error:
        seen.append(str(error))
    go.set()
    thread.join()
    assert "one thread at a time" in seen[0]
    assert kv.committed_chunks() == [3]


def test_a_chunk_larger_than_the_granularity_is_one_allocation(device):
    with vmm.GrowableRange(device, "64 MiB", chunk="8 MiB") as kv:
        kv.grow(1)
        assert (kv.committed, device.driver.api.live().allocations) == (8 * MIB, 1)
        with pytest.raises(ValueError, match="one of chunk and supply"):
            vmm.GrowableRange(device, "64 MiB", chunk="8 MiB", supply=kv.supply)


def test_random_changes_agree_with_a_set_and_keep_every_byte(device):
    rng = random.Random(11)
    model: dict[int, int] = {}
    with vmm.GrowableRange(device, 40 * CHUNK) as kv:
        for step in range(1, 300):
            chunks = rng.sample(range(40), rng.randint(1, 8))
            if rng.random() < 0.5:
                new = [chunk for chunk in chunks if chunk not in model]
                kv.commit(new)
                for chunk in new:
                    kv.array("uint32", 4, offset=chunk * CHUNK)[:] = step
                    model[chunk] = step
            elif rng.random() < 0.5:
                old = [chunk for chunk in chunks if chunk in model]
                kv.decommit(old)
                for chunk in old:
                    del model[chunk]
            elif model:
                kv.remap(rng.choice(list(model)))
            assert kv.committed_chunks() == sorted(model)
            for chunk, value in model.items():
                assert (kv.array("uint32", 4, offset=chunk * CHUNK) == value).all()
        assert kv.device.driver.api.live().allocations == len(model)
