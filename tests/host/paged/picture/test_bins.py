"""Aggregation: every byte of memory and every entry of a block table is counted once, whatever the bins."""

import itertools

import numpy as np
import pytest

from paged.picture import BlockKind, ChunkState, picture_of
from paged.picture.memory_bins import Part, memory_bins
from paged.picture.overview_cells import range_cells
from paged.picture.row_kinds import RowKind, chunk_kinds
from paged.picture.shelf import pieces_of, shelve
from paged.picture.table_bands import table_bands

STEP = 64 << 10


def spent_step_by_step(picture, rows, per_band):
    """(what, row) of each 64 KiB of the first plane, one at a time; every size here is a multiple of that."""
    first = picture.holders().first()
    for kib in range(0, rows * picture.chunk // 1024, STEP // 1024):
        row, block = kib * 1024 // picture.chunk, kib * 1024 // picture.block_stride
        kind = BlockKind(picture.kinds[block]) if block < len(picture.kinds) else BlockKind.FREE
        state = picture.states[0, row]
        plain = {ChunkState.RETIRING: Part.RETIRING, ChunkState.RESERVED: Part.RESERVED}
        by_kind = {BlockKind.SHARED: Part.SHARED, BlockKind.BY_ID: Part.BY_ID, BlockKind.IDLE: Part.IDLE}
        if state in plain:
            yield plain[state], row
        elif kind == BlockKind.OWN:
            yield ("band", int(first[block]) // per_band), row
        else:
            yield by_kind.get(kind, Part.EMPTY), row


@pytest.mark.parametrize("block_kib", [192, 2048, 5376])
@pytest.mark.parametrize(("most", "per_band"), [(3, 2), (100, 1)])
def test_every_byte_is_in_one_bin_and_one_part(device, scenes, block_kib, most, per_band):
    with scenes["full"](device, "layer", block_kib) as pool:
        found = picture_of(pool)
        bins = memory_bins(found, most, per_band)
        rows = int(np.flatnonzero(found.states[0])[-1]) + 1
        assert len(bins.sizes) <= most
        assert bins.sizes.sum() == rows * found.chunk
        assert np.array_equal(bins.parts.sum(0) + bins.bands.sum(0), bins.sizes)
        expected_parts, expected_bands = np.zeros_like(bins.parts), np.zeros_like(bins.bands)
        for what, row in spent_step_by_step(found, rows, per_band):
            at = row // bins.rows_per_bin
            if isinstance(what, tuple):
                expected_bands[what[1], at] += STEP
            else:
                expected_parts[what, at] += STEP
        assert np.array_equal(bins.parts, expected_parts)
        assert np.array_equal(bins.bands, expected_bands)


@pytest.mark.parametrize(("most", "columns"), [(1, 1), (2, 3), (7, 100), (40, 4)])
def test_every_entry_is_in_one_band_and_one_column(device, scenes, most, columns):
    with scenes["made_up"](device, 30) as pool:
        found = picture_of(pool)
        bands = table_bands(found, most, columns)
        assert len(bands) <= most
        assert bands.entries.shape[1] <= columns
        expected = np.zeros_like(bands.entries)
        shared = np.zeros_like(bands.entries)
        ordered = sorted(pool.sequences, key=lambda sequence: sequence.row)
        for place, sequence in enumerate(ordered):
            for at, block in enumerate(sequence.held):
                column = at + sequence.dropped // found.block_size
                expected[place // bands.per_band, column // bands.columns_per_bin] += 1
                shared[place // bands.per_band, column // bands.columns_per_bin] += pool.count(block) > 1
        assert np.array_equal(bands.entries, expected)
        assert np.array_equal(bands.shared_entries, shared)
        assert shared.any()
        assert bands.sequences.sum() == len(ordered)
        assert bands.tokens.sum() == sum(sequence.length for sequence in ordered)
        assert bands.blocks.sum() == sum(len(sequence.held) for sequence in ordered)
        assert bands.dropped.sum() * found.block_size == sum(sequence.dropped for sequence in ordered)
        assert (bands.first[0], bands.last[-1]) == (ordered[0].row, ordered[-1].row)


@pytest.mark.parametrize("per_cell", [1, 3, 1000])
def test_every_chunk_is_in_one_cell(device, scenes, per_cell):
    with scenes["full"](device, "layer", 192) as pool:
        found = picture_of(pool)
        counts, edges = range_cells(found, per_cell)
        kinds = chunk_kinds(found)
        assert edges[-1] == counts.sum() == found.states.size
        assert [counts[kind].sum() for kind in RowKind] == [np.count_nonzero(kinds == kind) for kind in RowKind]
        flat = kinds.ravel()
        for cell, (start, stop) in enumerate(itertools.pairwise(edges)):
            assert 1 <= stop - start <= per_cell
            assert counts[:, cell].tolist() == [np.count_nonzero(flat[start:stop] == kind) for kind in RowKind]


def test_nothing_has_no_bins(device, scenes):
    with scenes["many"](device, 1) as pool:
        pool.sequences[0].free()
        pool.trim()
        pool.collect(wait=True)
        found = picture_of(pool)
        bands, bins = table_bands(found, 20, 20), memory_bins(found, 20, 1)
        assert (len(bands), bins.parts[Part.RESERVED].tolist()) == (0, [found.chunk])


@pytest.mark.parametrize("block_kib", [192, 1536, 5376])
def test_rows_and_blocks_are_laid_out_whole(device, scenes, block_kib):
    with scenes["full"](device, "block", block_kib) as pool:
        found = picture_of(pool)
        places = shelve(found, 0.9, 5.0)
        assert [row for place in places for row in range(place.start, place.stop)] == list(range(found.rows.count))
        for one, other in itertools.pairwise(places):
            assert (one.line, one.x + one.width) == (other.line, other.x) or (one.line + 1, 0) == (other.line, other.x)
        assert max(place.x + place.width for place in places) <= 5.0
        parts = {}
        for row in range(found.rows.count):
            for block, start, stop, first, last in pieces_of(found, row):
                assert 0 <= start < stop <= 1
                assert (stop - start) * found.chunk == pytest.approx((last - first) * found.block_stride)
                assert first == parts.get(block, 0)
                parts[block] = last
        assert parts == dict.fromkeys(range(len(found.counts)), 1)
