"""Reserving addresses and giving them back."""

import itertools

import pytest

PAGE = 4096


@pytest.mark.row("3.2 addresses cost no physical memory")
def test_a_reservation_takes_no_memory(lab):
    before = lab.free()
    base = lab.reserve(1024)
    assert base % lab.unit == 0
    assert before - lab.free() < lab.unit


@pytest.mark.row("3.2 reservations never overlap")
def test_reservations_never_overlap(lab):
    spans = sorted((lab.reserve(units), units * lab.unit) for units in (3, 1, 2, 5))
    for (base, size), (following, _) in itertools.pairwise(spans):
        assert base + size <= following


@pytest.mark.row("3.2 alignment")
@pytest.mark.parametrize("alignment", [0, 2, 64, 4096])
def test_small_alignments_are_accepted(lab, alignment):
    base = int(lab.ok(lab.api.cuMemAddressReserve(lab.unit, alignment, 0, 0)))
    lab.reservations[base] = lab.unit
    assert base % lab.unit == 0


@pytest.mark.row("3.2 alignment above the granularity")
def test_a_large_alignment_is_kept(lab):
    wanted = 64 * lab.unit
    base = int(lab.ok(lab.api.cuMemAddressReserve(lab.unit, wanted, 0, 0)))
    lab.reservations[base] = lab.unit
    assert base % wanted == 0


@pytest.mark.row("3.2 hint already in use")
def test_a_taken_hint_gives_another_address(lab):
    taken = lab.reserve(4)
    other = lab.reserve(1, hint=taken + lab.unit)
    assert not taken <= other < taken + 4 * lab.unit


@pytest.mark.row("3.2 a free hint")
@pytest.mark.unknown("a hint is only a hint")
def test_a_free_hint_is_taken(lab):
    base = lab.reserve(4)
    lab.give_back(base)
    assert lab.reserve(2, hint=base) == base


@pytest.mark.row("3.2 misaligned hint")
@pytest.mark.unknown("3.2 misaligned hint")
def test_a_misaligned_hint_is_refused(lab):
    base = lab.reserve(4)
    lab.assert_refused(1, lab.api.cuMemAddressReserve, lab.unit, 0, base + PAGE, 0)


@pytest.mark.row("3.2 size 0")
@pytest.mark.unknown("3.2 size 0")
def test_no_size_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemAddressReserve, 0, 0, 0, 0)


@pytest.mark.row("3.2 alignment 3")
@pytest.mark.unknown("3.2 alignment 3")
@pytest.mark.parametrize("alignment", [3, 3 * PAGE])
def test_an_alignment_that_is_no_power_of_two_is_refused(lab, alignment):
    lab.assert_refused(1, lab.api.cuMemAddressReserve, lab.unit, alignment, 0, 0)


@pytest.mark.row("3.2 size not a multiple of the page")
@pytest.mark.unknown("3.2 size not a multiple of the page")
def test_a_size_in_parts_of_a_page_is_refused(lab):
    lab.assert_refused(1, lab.api.cuMemAddressReserve, lab.unit - 1, 0, 0, 0)


@pytest.mark.row("3.2 size a page multiple but no granule multiple")
@pytest.mark.unknown("3.2 size 4096")
def test_a_reservation_of_one_page_is_accepted(lab):
    base = int(lab.ok(lab.api.cuMemAddressReserve(PAGE, 0, 0, 0)))
    lab.reservations[base] = PAGE
    assert int(lab.attribute("RANGE_SIZE", base)) == PAGE
    lab.assert_refused(1, lab.api.cuMemMap, base, lab.unit, 0, lab.create(), 0)


@pytest.mark.row("3.2 flags other than 0")
@pytest.mark.unknown("3.2 flags")
def test_reserve_takes_no_flags(lab):
    lab.assert_refused(1, lab.api.cuMemAddressReserve, lab.unit, 0, 0, 1)


@pytest.mark.row("3.2 virtual addresses exhausted")
def test_addresses_run_out(lab):
    lab.assert_refused(2, lab.api.cuMemAddressReserve, 1 << 56, 0, 0, 0)


@pytest.mark.row("2 negative size")
def test_a_negative_size_never_reaches_the_driver(lab):
    with pytest.raises(OverflowError):
        lab.api.cuMemAddressReserve(-lab.unit, 0, 0, 0)


@pytest.mark.row("3.3 the exact pair")
def test_free_takes_the_exact_pair(lab):
    base = lab.reserve(4)
    for start, units in ((base, 2), (base, 8), (base + lab.unit, 3), (base + lab.unit, 4)):
        lab.assert_refused(1, lab.api.cuMemAddressFree, start, units * lab.unit)
    lab.give_back(base)


@pytest.mark.row("3.3 two adjacent reservations at once")
def test_adjacent_reservations_are_freed_one_by_one(lab):
    first, second = lab.reserve_adjacent()
    lab.assert_refused(1, lab.api.cuMemAddressFree, first, 4 * lab.unit)
    lab.give_back(second)
    lab.give_back(first)


@pytest.mark.row("3.3 ptr 0, size 0")
def test_freeing_nothing_is_refused(lab):
    base = lab.reserve(1)
    lab.assert_refused(1, lab.api.cuMemAddressFree, 0, 0)
    lab.assert_refused(1, lab.api.cuMemAddressFree, 0, lab.unit)
    lab.assert_refused(1, lab.api.cuMemAddressFree, base, 0)


@pytest.mark.row("3.3 double free")
def test_a_reservation_is_freed_once(lab):
    base = lab.reserve(2)
    lab.give_back(base)
    lab.assert_refused(1, lab.api.cuMemAddressFree, base, 2 * lab.unit)


@pytest.mark.row("3.3 freeing the value of a failed reserve")
@pytest.mark.host_only("a null address")
def test_a_failed_reserve_gives_none(lab):
    status, address = lab.api.cuMemAddressReserve(1 << 56, 0, 0, 0)
    assert int(status) == 2
    assert address is None
    lab.assert_refused(1, lab.api.cuMemAddressFree, address, 1 << 56)


@pytest.mark.row("3.3 still mapped")
@pytest.mark.unknown("3.3 still mapped")
def test_a_mapped_reservation_is_not_freed(lab):
    base = lab.mapped(1, spare=1)
    lab.assert_refused(1, lab.api.cuMemAddressFree, base, 2 * lab.unit)
    assert lab.access(base) == 3
