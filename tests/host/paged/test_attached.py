"""Sequences of a pool whose memory another attaches to: the table that travels, and attention over it."""

import json

import numpy as np
import pytest

import paged
import vmm
from kernels_cu import launch, reference
from paged import attached_attention, attention

LENGTHS = (40, 3, 16)
HEADS, LAYER = 4, 1
CLOSE = {"float16": 2e-3, "float32": 1e-5}


def spec_of(dtype="float16", layers=2, window=None):
    return paged.KVSpec(layers, 2, 64, dtype, window=window)


class Prefilled:
    """A pool of exportable memory with a few sequences; NaN where none of their tokens is."""

    def __init__(self, device, layout, lengths=LENGTHS, seed=0):
        self.device, self.draw = device, np.random.default_rng(seed)
        self.supply = vmm.ChunkSupply(device, layout.chunk, exportable=True)
        self.pool = paged.KVPool(device, layout, blocks=64, supply=self.supply, prealloc=True, name="prefill")
        for run in self.pool.range.runs():
            elements = (run.stop - run.start) // layout.spec.element_bytes
            self.pool.range.array(layout.spec.dtype, elements, run.start)[:] = np.nan
        self.sequences = [self.pool.sequence() for _ in lengths]
        drawn = [self.draw.standard_normal((2, length, 2, 64)).astype(layout.spec.dtype) for length in lengths]
        self.keys, self.values = zip(*drawn, strict=True)
        for sequence, key, value in zip(self.sequences, self.keys, self.values, strict=True):
            attention.append(self.pool, LAYER, key, value, sequence.append(len(key)))
        self.handoff = paged.Handoff.of(self.pool, self.sequences)

    def query(self):
        return self.draw.standard_normal((len(self.keys), HEADS, 64)).astype(self.keys[0].dtype)

    def close(self):
        self.pool.close()
        self.supply.close()

    def export(self, **options):
        return vmm.sharing.Exporter(self.pool.range, self.handoff.chunks, **options)


@pytest.fixture
def prefilled(device, compiler):  # noqa: ARG001 - K and V are appended by a kernel
    made = []

    def make(layout=None, **options):
        made.append(Prefilled(device, layout or paged.KVLayout(spec_of()), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def attach(prefilled, handoff=None):
    """What another process would have: memory by the socket, and the table as text."""
    with prefilled.export() as exporter:
        memory = vmm.sharing.attach(prefilled.device, exporter.path)
    told = (handoff or prefilled.handoff).to_json()
    return memory, paged.Handoff.from_json(told)


# -- the table that travels ------------------------------------------------------------------------------------------


def test_a_handoff_travels_as_a_line_of_text_and_comes_back_the_same(prefilled):
    layout = paged.KVLayout(spec_of("float32", window=32), 8, "layer", "nhd")
    handoff = prefilled(layout).handoff
    text = handoff.to_json()
    assert "\n" not in text
    assert paged.Handoff.from_json(text) == paged.Handoff.from_json(text.encode()) == handoff
    assert handoff.lengths == LENGTHS
    assert [len(table) for table in handoff.tables] == [5, 1, 2]


@pytest.mark.parametrize("order", ["block", "layer"])
def test_the_chunks_of_a_handoff_are_those_that_hold_its_blocks(order):
    layout = paged.KVLayout(paged.KVSpec(4, 8, 120, "float32"), 64, order)  # blocks that straddle chunks
    places = ((block, layer, component) for block in (7, 0) for layer in range(4) for component in (0, 1))
    bounds = [
        layout.address(0, 10, block=block, layer=layer, component=component, head=head, slot=slot, d=d)
        for block, layer, component in places
        for head, slot, d in ((0, 0, 0), (7, 63, 119))
    ]
    handoff = paged.Handoff(layout, 10, ((7, 0),), (100,))
    assert handoff.chunks == sorted({address // layout.chunk for address in bounds})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"lengths": [40, 3]}, "3 tables and 2 lengths"),
        ({"lengths": [40, 3, 17 + 16]}, "33 tokens and a table of 1 blocks of 16"),
        ({"lengths": [40, 3, -1]}, "-1 tokens"),
        ({"lengths": [40, 3, 2.5]}, "a length must be a whole number, not 2.5"),
        ({"tables": [[1, 2, 3], [64], [5]]}, "sequence 1 names block 64; the pool has blocks 0 to 63"),
        ({"tables": [[1, -1, 3], [4], [5]]}, "sequence 0 names block -1"),
        ({"tables": [[1, 2, 3], ["4"], [5]]}, "a block must be a whole number, not '4'"),
        ({"tables": 7}, "tables must be a list, not 7"),
        ({"tables": [[1, 2, 3], 4, [5]]}, "the table of sequence 1 must be a list, not 4"),
        ({"lengths": {"0": 1}}, "lengths must be a list, not {'0': 1}"),
        ({"blocks": 0}, "blocks must be 1 to 2147483647, not 0"),
        ({"blocks": None}, "blocks must be a whole number"),
        ({"version": 2}, "version 1"),
        ({"more": 1}, "more"),
        ({"layout": {"spec": {"layers": 0}}}, "layout lacks block_size, order, layout, chunk"),
        ({"layout": []}, r"layout must be an object, not \[\]"),
        ({"spec": {"layers": 10**30}}, r"need more than 2\*\*57 bytes"),
        ({"spec": {"head_dim": 10**20}}, r"need more than 2\*\*57 bytes"),
        ({"spec": {"kv_heads": 10**4000}}, r"need more than 2\*\*57 bytes"),
        ({"spec": {"layers": True}}, "layers must be a whole number, not True"),
        ({"spec": {"dtype": []}}, r"dtype must be a word, not \[\]"),
        ({"spec": {"window": "all"}}, "window must be a whole number or null, not 'all'"),
        ({"spec": {"heads": 2}}, "layout.spec has 'heads', which version 1 does not know"),
        ({"of_layout": {"chunk": 3}}, "chunks of 3 bytes are no whole pages"),
    ],
)
def test_text_that_is_no_handoff_is_refused_in_one_line(prefilled, change, told):
    changed = json.loads(prefilled().handoff.to_json())
    changed["layout"]["spec"] |= change.pop("spec", {})
    changed["layout"] |= change.pop("of_layout", {})
    changed |= change
    with pytest.raises(ValueError, match=told) as error:
        paged.Handoff.from_json(json.dumps(changed))
    assert str(error.value).startswith("this is no handoff: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is no JSON"),
        ("7", "it must be an object with version, layout, blocks, tables, lengths, not 7"),
        ("null", "it must be an object .* not None"),
        ("[]", "it must be an object"),
        ("{}", "it lacks version, layout, blocks, tables, lengths"),
        ("\x00", r"'\\x00' is no JSON"),
        (b"\xff\xfe", r"b'\\xff\\xfe' is no JSON"),
        ("9" * 10_000, r"'9{56}\.\.\. is no JSON"),
        ("[" * 100_000, "its lists are nested too deeply"),
        (None, "None is no text"),
    ],
)
def test_nonsense_is_refused_in_one_line(text, told):
    with pytest.raises(ValueError, match=f"this is no handoff: {told}") as error:
        paged.Handoff.from_json(text)
    assert "\n" not in str(error.value)


def test_a_handoff_is_of_open_sequences_of_the_pool(prefilled, device):
    first = prefilled()
    with pytest.raises(ValueError, match="a handoff is of Sequences of its pool; a int was given"):
        paged.Handoff.of(first.pool, [3])
    with pytest.raises(ValueError, match="a handoff is of a list of sequences; a Sequence was given"):
        paged.Handoff.of(first.pool, first.sequences[0])
    with pytest.raises(ValueError, match="a handoff is of a KVPool; a int was given"):
        paged.Handoff.of(3, [])
    with pytest.raises(ValueError, match="layout must be a KVLayout, as a pool has it, not None"):
        paged.Handoff(None, 1, (), ())
    with paged.KVPool(device, paged.KVLayout(spec_of()), blocks=4, name="elsewhere") as elsewhere:
        foreign = elsewhere.sequence()
        with pytest.raises(ValueError, match="'elsewhere' was given to 'prefill'"):
            paged.Handoff.of(first.pool, [foreign])
    freed = first.sequences.pop()
    freed.free()
    with pytest.raises(vmm.ClosedError):
        paged.Handoff.of(first.pool, [freed])


# -- attention over what is attached ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["simple", "fast"])
@pytest.mark.parametrize(("order", "inner"), [("block", "hnd"), ("layer", "nhd")])
def test_decode_over_attached_chunks_is_attention_over_all_their_tokens(prefilled, order, inner, kernel):
    there = prefilled(paged.KVLayout(spec_of(), 16, order, inner))
    memory, handoff = attach(there)
    query = there.query()
    expected = reference.paged_attention(query, there.keys, there.values)
    there.close()  # the memory is the attacher's alone now
    with memory:
        kv = paged.AttachedKV(memory, handoff)
        out = attached_attention.decode(kv, LAYER, query, kernel=kernel)
        assert np.abs(out - expected).max() < CLOSE["float16"]
        some = attached_attention.decode(kv, LAYER, query[[2, 0]], [2, 0], kernel=kernel)
        assert np.abs(some - expected[[2, 0]]).max() < CLOSE["float16"]
        none = attached_attention.decode(kv, LAYER, query[:0], [], kernel=kernel)
        assert none.shape == (0, HEADS, 64)


def test_what_is_attached_and_what_is_new_join_into_attention_over_both(prefilled, device):
    there, own = prefilled(), prefilled(lengths=(5, 20, 1), seed=1)
    memory, handoff = attach(there)
    with memory:
        kv, query = paged.AttachedKV(memory, handoff), there.query()
        sums = [np.empty((3, HEADS), np.float32) for _ in "ab"]
        parts = (
            attached_attention.decode(kv, LAYER, query, lse=sums[0]),
            attention.decode(own.pool, LAYER, query, own.sequences, lse=sums[1]),
        )
        out = np.empty_like(query)
        launch.merge_states(device, parts[0], sums[0], parts[1], sums[1], out, np.empty_like(sums[0]))
    keys, values = (
        [np.concatenate(both) for both in zip(*two, strict=True)]
        for two in ((there.keys, own.keys), (there.values, own.values))
    )
    assert np.abs(out - reference.paged_attention(query, keys, values)).max() < CLOSE["float16"]


def test_dropped_tokens_are_not_seen_and_a_window_that_would_is_refused(prefilled):
    there = prefilled(paged.KVLayout(spec_of(window=20)), lengths=(100,))
    there.sequences[0].drop_before(80)
    handoff = paged.Handoff.of(there.pool, there.sequences)
    assert handoff.tables[0][:5] == (-1,) * 5
    assert handoff.dropped(0) == 80
    memory, handoff = attach(there, handoff)
    with memory:
        kv, query = paged.AttachedKV(memory, handoff), there.query()
        assert kv.tables[0].tolist() == [0] * 5 + there.sequences[0].held  # ids that a kernel may load, not -1
        out = attached_attention.decode(kv, LAYER, query)
        last = [there.keys[0][-20:]], [there.values[0][-20:]]
        assert np.abs(out - reference.paged_attention(query, *last)).max() < CLOSE["float16"]
        with pytest.raises(ValueError, match="has dropped its first 80 of 100 tokens"):
            attached_attention.decode(kv, LAYER, query, window=21)


# -- refusals --------------------------------------------------------------------------------------------------------


def test_a_block_whose_chunk_is_not_shared_is_refused_before_a_kernel_could_read_it(device):
    layout = paged.KVLayout(paged.KVSpec(2, 8, 128, "float32"), 64)  # two blocks a chunk
    with (
        vmm.ChunkSupply(device, exportable=True) as supply,
        paged.KVPool(device, layout, blocks=16, supply=supply) as pool,
    ):
        sequence = pool.sequence()
        sequence.append(64 * 6)
        handoff = paged.Handoff.of(pool, [sequence])
        assert len(handoff.chunks) == 3
        with vmm.sharing.Exporter(pool.range, handoff.chunks[:-1]) as exporter:
            memory = vmm.sharing.attach(device, exporter.path)
    with memory, pytest.raises(vmm.StateError, match=rf"lies in chunk {handoff.chunks[-1]}, which is not shared"):
        paged.AttachedKV(memory, handoff)


def test_memory_of_another_chunk_size_is_refused(prefilled):
    there = prefilled()
    memory, handoff = attach(there)
    layout = paged.KVLayout(spec_of(), chunk=4 << 20)
    with memory, pytest.raises(ValueError, match="chunks of 2097152 bytes, the handoff of 4194304"):
        paged.AttachedKV(memory, paged.Handoff(layout, handoff.blocks, handoff.tables, handoff.lengths))


@pytest.mark.parametrize("order", ["block", "layer"])
def test_a_layout_that_is_not_the_ranges_is_refused_at_once(prefilled, order):
    there = prefilled()
    memory, handoff = attach(there)

    def told(layers):
        layout = paged.KVLayout(paged.KVSpec(layers, 2, 64, "float16"), 16, order)
        return paged.Handoff(layout, 64, handoff.tables, handoff.lengths)

    with memory:
        with pytest.raises(
            ValueError, match=r"one block of the handoff has \d{13} bytes, all that .* shares has 2097152"
        ):
            paged.AttachedKV(memory, told(1 << 27))  # to count the chunks of one block would take minutes
        with pytest.raises(vmm.StateError, match="which is not shared"):
            paged.AttachedKV(memory, told(200))


def test_text_is_no_handoff_yet(prefilled):
    there = prefilled()
    memory, handoff = attach(there)
    with memory:
        with pytest.raises(ValueError, match=r"a Handoff \(from_json makes it\), not SharedRange and str"):
            paged.AttachedKV(memory, handoff.to_json())
        with pytest.raises(ValueError, match="not KVPool and Handoff"):
            paged.AttachedKV(there.pool, handoff)


def test_wrong_rows_layers_and_closed_memory_are_refused(prefilled):
    there = prefilled()
    memory, handoff = attach(there)
    query = there.query()
    with memory:
        kv = paged.AttachedKV(memory, handoff)
        assert repr(kv).startswith("AttachedKV(3 sequences, 59 tokens of 'shared range")
        for row in (3, -1):
            with pytest.raises(vmm.RangeError, match=f"row {row} is not there"):
                attached_attention.decode(kv, LAYER, query[:1], [row])
        with pytest.raises(ValueError, match="query has 3 rows for 2 sequences"):
            attached_attention.decode(kv, LAYER, query, [0, 1])
        with pytest.raises(vmm.RangeError, match="layer 2"):
            attached_attention.decode(kv, 2, query)
    with pytest.raises(vmm.ClosedError, match="attach again"):
        attached_attention.decode(kv, LAYER, query)
