"""Recording: what a pool does, told event by event, leads to the pool's own state; in bounded memory, and in a file."""

import dataclasses
import gc
import json
import sys
from array import array

import numpy as np
import pytest

import paged
import vmm
from paged.recording import Recording, RecordingError, record
from paged.recording.event_ring import EventRing
from paged.recording.kinds import WIDTH, Kind
from paged.recording.state import State, split
from paged.recording.taps import Taps

SPEC = paged.KVSpec(8, 4, 64, "float16")  # 256 tokens are 2 MiB: a chunk


def make_pool(device, *, chunk=2 << 20, blocks=64, **options):
    return paged.KVPool(device, paged.KVLayout(SPEC, 256, chunk=chunk), blocks=blocks, **options)


def state_of(recording):
    state = State()
    state.apply_all(recording.rows, recording.ids)
    return state


def agrees(recording, pool):
    """Whether the events lead to what the pool is."""
    state = state_of(recording)
    tables = sorted(sequence.held for sequence in state.sequences.values())
    assert tables == sorted(sequence.held for sequence in pool.sequences)
    assert state.rows == set(pool.block_pool.committed)
    if pool.prefix:
        assert state.cached == {block for block in range(pool.block_pool.rows.blocks) if block in pool.prefix.cache}
    return state


def kinds(recording):
    return [Kind(event.kind).name for event, _ in split(recording.rows, recording.ids)]


def test_a_life_is_told_in_order(device):
    with make_pool(device) as pool, record(pool) as recorder:
        sequence = pool.sequence()
        sequence.append(3000)
        sequence.append(10)  # in the last block still
        sequence.free()
        assert kinds(recorder.recording()) == ["START", "COMMIT", "PUT", "DECOMMIT", "END"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before Python 3.11 every object has a dictionary")
def test_what_is_tapped_keeps_its_attributes_in_itself():
    """CPython makes the dictionary of an object when somebody asks for it, and reads every attribute slower then."""

    class Owner:
        def __init__(self):
            self.part = object()

        def method(self):
            return 1

    def dictionaries():
        return [made for made in gc.get_referents(owner) if isinstance(made, dict)]

    owner, taps = Owner(), Taps()
    taps.tap(owner, "method", lambda inner: lambda: inner() + 1)
    taps.replace(owner, "part", 5)
    assert (owner.method(), owner.part, dictionaries()) == (2, 5, [])
    taps.close()
    assert (owner.method(), type(owner.part), dictionaries()) == (1, object, [])
    assert vars(owner).keys() == {"part"}


def test_live_is_the_pools_own_after_each_event(device):
    """An append, a copied tail, a batch's step, a known prefix and an end each tell what lives once they are done."""
    random = np.random.default_rng(3)

    def told():
        (live,) = recorder.recording().columns()["live"][-1:]
        return int(live)

    with make_pool(device, prefix_cache=True) as pool, record(pool) as recorder:
        alive, seen = [], set()
        for step in range(120):
            ids, before = np.arange(int(random.integers(257, 3000))), len(recorder.recording())
            if step % 5 == 4 and len(alive) > 1:
                alive.pop(int(random.integers(len(alive)))).free()
            elif step % 7 == 3 and alive:
                alive.append(alive[-1].fork())
                alive[-1].append(300)
            elif step % 11 == 6 and alive:
                paged.Batch(pool, alive).append()
            elif pool.can_allocate(16):
                alive.append(pool.sequence(ids))
                alive[-1].append(ids[alive[-1].length :])
            else:
                alive.pop(0).free()
            changes = {"PUT", "PUT_EACH", "END"} & set(kinds(recorder.recording())[before:])
            if changes:  # tokens that fill a block are no event
                assert told() == pool.tokens
            seen |= changes
        assert seen == {"PUT", "PUT_EACH", "END"}


def test_append_fork_copy_on_write_drop_and_batch_lead_to_the_pools_own_tables(device):
    with make_pool(device) as pool, record(pool) as recorder:
        first = pool.sequence()
        first.append(5000)
        second = first.fork()
        agrees(recorder.recording(), pool)
        second.append(100)  # the shared tail is copied
        state = agrees(recorder.recording(), pool)
        assert sorted(len(holders) for holders in state.holders().values()) == [1, 1, *[2] * 19]
        batch = paged.Batch(pool, [first, second])
        for _ in range(1500):
            batch.append()
        agrees(recorder.recording(), pool)
        first.drop_before(4100)
        agrees(recorder.recording(), pool)
        second.free()
        agrees(recorder.recording(), pool)
        assert len(state_of(recorder.recording()).sequences) == 1


@pytest.mark.parametrize("seed", range(6))
def test_random_operations_lead_to_the_pools_own_state_whatever_the_ring_has_dropped(device, seed):
    random = np.random.default_rng(seed)
    layout = paged.KVLayout(paged.KVSpec(2, 2, 16, "float16"), 256, chunk=2 << 20)
    with (
        paged.KVPool(device, layout, budget="16 MiB", prefix_cache=seed % 2 == 1) as pool,
        record(pool, capacity=64) as recorder,
    ):
        alive = []
        for _ in range(300):
            choice = random.integers(6)
            if choice < 2 and len(alive) < 12:
                if pool.prefix and random.integers(2):
                    sequence = pool.sequence(np.arange(random.integers(1, 900)))
                    ids = np.arange(sequence.length, 900)[: random.integers(1, 300)]
                    alive.append(sequence)
                    if sequence.can_append(len(ids)):
                        sequence.append(ids)
                    continue
                alive.append(pool.sequence())
            elif choice == 2 and alive:
                sequence = alive[random.integers(len(alive))]
                count = int(random.integers(1, 700))
                if sequence.can_append(count):
                    sequence.append(count)
            elif choice == 3 and alive and len(alive) < 12:
                alive.append(alive[random.integers(len(alive))].fork())
            elif choice == 4 and alive:
                alive.pop(random.integers(len(alive))).free()
            else:
                pool.compact()
        recording = recorder.recording()
        assert recording.about["dropped"] > 0
        assert len(recorder.ring) <= 64
        agrees(recording, pool)


def test_compaction_moves_blocks_in_tables_and_in_the_cache(device):
    layout = paged.KVLayout(paged.KVSpec(2, 2, 16, "float16"), 256, chunk=2 << 20)  # 32 blocks a row
    with (
        paged.KVPool(device, layout, budget="16 MiB", prefix_cache=True) as pool,
        record(pool) as recorder,
    ):
        sequences = [pool.sequence(np.arange(n * 100_000, n * 100_000 + 4096)) for n in range(8)]
        for n, sequence in enumerate(sequences):
            sequence.append(np.arange(n * 100_000, n * 100_000 + 4096))
        sequences[0].publish()
        for sequence in sequences[1::2]:
            sequence.free()
        pool.trim(cache=True)
        before = state_of(recorder.recording())
        assert pool.compact().moved
        after = agrees(recorder.recording(), pool)
        assert kinds(recorder.recording()).count("MOVE") == 1
        assert after.cached != before.cached


def test_what_is_evicted_is_known_no_more(device):
    layout = paged.KVLayout(paged.KVSpec(2, 2, 16, "float16"), 256, chunk=2 << 20)
    with (
        paged.KVPool(device, layout, budget="4 MiB", prefix_cache=True) as pool,
        record(pool) as recorder,
    ):
        for n in range(5):
            sequence = pool.sequence(np.arange(n * 100_000, n * 100_000 + 8000))
            sequence.append(np.arange(n * 100_000, n * 100_000 + 8000))
            sequence.free()
        agrees(recorder.recording(), pool)
        assert "EVICT" in kinds(recorder.recording())


def test_what_was_dropped_before_the_ring_began_stays_dropped(device):
    with make_pool(device) as pool, record(pool, capacity=8) as recorder:
        sequence = pool.sequence()
        sequence.append(3000)
        sequence.drop_before(1000)
        for _ in range(20):
            pool.sequence().free()
        assert recorder.recording().about["dropped"]
        agrees(recorder.recording(), pool)


def test_what_a_pool_has_before_it_is_recorded_is_told_first(device):
    with make_pool(device, prealloc=True) as pool:
        pool.sequence().append(3000)
        with record(pool) as recorder:
            agrees(recorder.recording(), pool)


def test_nothing_is_wrapped_before_and_after(device):
    with make_pool(device) as pool:
        before = {name: set(vars(part)) for name, part in vars(pool).items() if hasattr(part, "__dict__")}
        own = set(vars(pool))
        with record(pool):
            assert set(vars(pool)) != own
            pool.sequence().append(1)
        assert set(vars(pool)) == own
        assert {name: set(vars(part)) for name, part in vars(pool).items() if hasattr(part, "__dict__")} == before


def test_other_pools_are_not_recorded(device):
    with make_pool(device) as pool, make_pool(device) as other, record(pool) as recorder:
        other.sequence().append(5000)
        assert len(recorder.recording()) == 0


def test_a_refused_append_is_no_event(device):
    with make_pool(device, budget="4 MiB") as pool, record(pool) as recorder:
        sequence = pool.sequence()
        before = kinds(recorder.recording())
        with pytest.raises(vmm.OutOfMemoryError):
            sequence.append(10_000)
        assert kinds(recorder.recording()) == before


def test_driver_calls_are_beside_the_events_with_their_durations(tmp_path):
    calls = vmm.Recorder()
    with vmm.Device(driver=vmm.HostDriver(memory="64 MiB"), recorder=calls) as device, make_pool(device) as pool:
        calls.clear()
        with record(pool, calls=calls) as recorder:
            pool.sequence().append(5000)
            recording = recorder.recording()
    (commit,) = (event for event, _ in split(recording.rows, recording.ids) if event.kind == Kind.COMMIT)
    created = [call for call in recording.calls if call.call == "cuMemCreate"]
    assert created
    assert all(commit.time <= call.time_ns <= commit.time + commit.duration for call in created)
    assert recording.marks[-1].counts["cuMemCreate"] == len(created)
    assert recording.marks[-1].durations["cuMemCreate"] == sum(call.duration_ns for call in created)
    moments = recording.call_moments()
    assert (np.diff(moments) >= 0).all()
    assert recording.starts()[1] <= moments[[call.call for call in recording.calls].index("cuMemCreate")]
    recording.save(tmp_path / "a.pagewalk")
    assert Recording.load(tmp_path / "a.pagewalk") == recording


def test_a_file_keeps_everything(device, tmp_path):
    with (
        make_pool(device, blocks=120, prefix_cache=True) as pool,
        record(pool, capacity=4, source="test") as recorder,
    ):
        for _ in range(4):
            prompt = np.arange(5000)
            sequence = pool.sequence(prompt)
            sequence.append(prompt[sequence.length :])
        recording = recorder.recording()
    path = tmp_path / "a.pagewalk"
    recording.save(path)
    found = Recording.load(path)
    assert found == recording
    assert found.about["source"] == "test"


@pytest.mark.parametrize("content", [b"", b"no recording", b"PK\x03\x04" + bytes(40)])
def test_a_file_that_is_no_recording_is_one_line(tmp_path, content):
    path = tmp_path / "a.pagewalk"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"a\.pagewalk is no recording; make one with paged replay --record$"):
        Recording.load(path)


def test_a_recording_that_is_not_there_or_is_no_file_is_one_line(tmp_path):
    with pytest.raises(RecordingError, match=r"none\.pagewalk: there is no such file; make one with paged replay"):
        Recording.load(tmp_path / "none.pagewalk")
    with pytest.raises(RecordingError, match="is no regular file; make one with"):
        Recording.load(tmp_path)


def test_a_recording_whose_bytes_are_damaged_anywhere_is_one_line(device, tmp_path):
    with make_pool(device) as pool, record(pool) as recorder:
        pool.sequence().append(5000)
        recording = recorder.recording()
    path = tmp_path / "a.pagewalk"
    recording.save(path)
    whole, refused = path.read_bytes(), 0
    for at in range(0, len(whole), 31):
        for found in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
            path.write_bytes(found)
            try:
                Recording.load(path)
            except RecordingError as error:
                refused += 1
                assert str(error).startswith(str(path)) and len(str(error).splitlines()) == 1
    assert refused > len(whole) // 31


def test_a_later_version_and_a_damaged_file_are_refused(device, tmp_path, monkeypatch):
    with make_pool(device) as pool, record(pool) as recorder:
        pool.sequence().append(5000)
        recording = recorder.recording()
    path = tmp_path / "a.pagewalk"
    dataclasses.replace(recording, ids=recording.ids[:-1]).save(path)
    with pytest.raises(RecordingError, match="damaged"):
        Recording.load(path)
    monkeypatch.setattr("paged.recording.recording.VERSION", 2)
    recording.save(path)
    monkeypatch.undo()
    with pytest.raises(RecordingError, match="version 2"):
        Recording.load(path)


def test_a_ring_keeps_the_latest_events_and_folds_the_others():
    ring = EventRing(10)
    for number in range(23):
        ring.add((number, Kind.START, number, -1, 0, 0, 0, 0, 0), ())
    rows, _ids = ring.events()
    kept = rows[2::WIDTH].tolist()
    assert kept == list(range(23 - len(kept), 23))
    assert 5 <= len(kept) == len(ring) <= 10
    assert ring.dropped == 23 - len(kept)
    assert sorted(ring.base.sequences) == list(range(23 - len(kept)))
    with pytest.raises(ValueError, match="at least 2"):
        EventRing(1)


def test_ids_are_bounded_too():
    ring = EventRing(4)
    for _ in range(100):
        ring.add((0, Kind.COMMIT, -1, 0, 0, 0, 0, 0, 50), range(50))
    assert len(ring.events()[1]) <= 2 * 2 * 50
    assert ring.dropped >= 96


def test_sleep_and_wake_are_told(device):
    with make_pool(device) as pool, record(pool) as recorder:
        pool.sequence().append(5000)
        residency = vmm.Residency(device)
        residency.add(pool.range, "kv")
        residency.sleep("kv", backup=True)
        assert state_of(recorder.recording()).asleep
        residency.wake("kv")
        assert not state_of(recorder.recording()).asleep


def test_many_events_that_wait_are_packed_whole():
    """More numbers than go into one call of the struct module, and a rest."""
    ring, rows, ids = EventRing(1 << 14), [], []
    for number in range(3000):
        row = (number << 40, Kind.CACHE, -1, number, -number, number, 0, 7, number % 5)
        ring.add(row, range(number % 5))
        rows += row
        ids += range(number % 5)
    packed = ring.events()
    assert (packed[0].tolist(), packed[1].tolist()) == (rows, ids)


# -- damage that no checksum shows -----------------------------------------------------------------------------------


@pytest.fixture
def told(device, tmp_path):
    """The arrays of a file, and its ``about``; ``tell`` writes them back and reads that."""
    with make_pool(device, prefix_cache=True) as pool, record(pool) as recorder:
        sequences = [pool.sequence(), pool.sequence()]
        batch = paged.Batch(pool, sequences)
        batch.append([600, 512])
        batch.append([1, 1])
        sequences[0].fork().free()
        sequences[0].append(300)
        recorder.recording().save(tmp_path / "whole.pagewalk")
    with np.load(tmp_path / "whole.pagewalk") as file:
        arrays = dict(file)
    about = json.loads(bytes(arrays["about"]))

    def tell():
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        with (tmp_path / "told.pagewalk").open("wb") as out:
            np.savez(out, **arrays)
        return Recording.load(tmp_path / "told.pagewalk")

    assert tell() == Recording.load(tmp_path / "whole.pagewalk")
    return arrays, about, tell


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("clock", None, "'clock' is None, not one of simulated, perf_counter"),
        ("clock", [], r"'clock' is \[\], not one of"),
        ("reserved", {}, r"'reserved' is \{\}, not a whole number of at least 1"),
        ("blocks", 2**50, "blocks, 64 rows and chunks of 2097152 bytes do not fit together"),
        ("row_bytes", 7, "do not fit together"),
        ("blocks", 0, "'blocks' is 0, not a whole number of at least 1"),
        ("row_bytes", True, "'row_bytes' is True"),
        ("base", 2**70, "'base' is 11805"),
        ("origin", 1.5, "'origin' is 1.5"),
        ("range", 7, "'range' is 7, not a word"),
        ("base_events", 1000, "events 1000 stand for others"),
        ("call_names", {"a": 1}, r"'call_names' is \{'a': 1\}, not a list of words"),
    ],
)
def test_a_geometry_that_no_pool_has_is_one_line(told, name, value, said):
    _, about, tell = told
    about[name] = value
    with pytest.raises(RecordingError, match=rf"told\.pagewalk is damaged: .*{said}"):
        tell()
    del about[name]
    with pytest.raises(RecordingError, match=r"told\.pagewalk is (damaged|no recording)"):
        tell()


def ids_of(arrays, kind):
    """Where the ids of the first event of a kind are."""
    at = int(np.flatnonzero(arrays["event_kind"] == kind)[0])
    return int(arrays["event_named"][:at].astype(int).sum())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("event_kind", 99, "event 0 is of kind 99, which there is not"),
        ("event_kind", -1, "event 0 is of kind -1"),
        ("event_time", np.nan, r"event_time is float64 \[\d+\], not whole numbers"),
        ("event_time", -5, "event 0 has a time of -5"),
        ("event_moment", 1 << 62, "event 0 has a moment of"),
        ("event_duration", -1, "event 0 has a duration of -1"),
        ("event_live", -1, "event 0 has a live of -1"),
        ("event_named", 7, "its events name another number of ids than it has"),
        ("ids", -7, "its events name -7"),
        ("ids", 30_000, "its events name row 30000 of"),
    ],
)
def test_an_event_that_no_pool_has_is_one_line(told, name, value, said):
    arrays, _, tell = told
    arrays[name] = arrays[name].astype(float if value is np.nan else np.int64)
    arrays[name][0] = value
    with pytest.raises(RecordingError, match=rf"told\.pagewalk is damaged: {said}"):
        tell()


def test_a_block_that_the_pool_has_not_is_one_line(told):
    arrays, about, tell = told
    for kind, place in ((Kind.PUT_EACH, 2), (Kind.PUT, 0)):
        arrays["ids"] = arrays["ids"].astype(np.int32)
        arrays["ids"][ids_of(arrays, kind) + place] = about["blocks"]
        with pytest.raises(RecordingError, match=f"its events name block {about['blocks']} of {about['blocks']}"):
            tell()


def test_ids_that_come_several_at_a_time_are_all_there(told):
    arrays, _, tell = told
    at = int(np.flatnonzero((arrays["event_kind"] == Kind.PUT) & (arrays["event_named"] == 1))[0])
    for kind, many in ((Kind.MOVE, 2), (Kind.PUT_EACH, 3)):
        arrays["event_kind"][at] = kind
        with pytest.raises(RecordingError, match=f"ids, which come {many} at a time"):
            tell()


def test_a_block_that_leaves_a_table_twice_is_told():
    state = State()
    state.apply_all(_event(Kind.START), [])
    state.apply_all(_event(Kind.PUT, named=1), [4])
    state.apply_all(_event(Kind.DROP, a=1), [])
    state.apply_all(_event(Kind.DROP, a=0), [])
    with pytest.raises(RecordingError, match="block 4 leaves a table that does not name it"):
        state.apply_all(_event(Kind.END), [])


def _event(kind, a=0, named=0):
    return [0, kind, 0, a, 0, 0, 0, 0, named]


def test_events_that_last_longer_than_time_is_counted_are_told():
    rows = [[moment, Kind.WAKE, -1, 0, 0, 0, (1 << 61) - 1, 0, 0] for moment in range(5)]
    flat = array("q", [int(number) for row in rows for number in row])
    recording = Recording({"clock": "simulated"}, flat, array("i"), (), ())
    with pytest.raises(RecordingError, match="its events last longer than time is counted"):
        recording.starts()
