import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmm


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("512B", 512),
        ("2 MiB", 2 * 1024 * 1024),
        ("64 gib", 64 * 1024**3),
        ("80GiB", 80 * 1024**3),
        ("0.5 KiB", 512),
        ("1.5 TiB", 3 * 1024**4 // 2),
        ("1 PiB", 1024**5),
        (7, 7),
        (np.int32(9), 9),
    ],
)
def test_sizes_that_are_read(text, size):
    assert vmm.parse_size(text) == size


@pytest.mark.parametrize(
    "wrong", ["", "MiB", "2 MB", "2 GB", "-1", "1e9", "two", "0", "0.3 B", "nan", 0, -5, 1.5, None, True, [], 1 << 63]
)
def test_what_is_no_size_is_refused_with_the_value(wrong):
    with pytest.raises(vmm.SizeError) as caught:
        vmm.parse_size(wrong, name="reserve")
    assert repr(wrong) in str(caught.value)
    assert "reserve" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_sizes_are_written_with_the_largest_binary_unit():
    assert vmm.format_size(0) == "0 B"
    assert vmm.format_size(1023) == "1023 B"
    assert vmm.format_size(2 * 1024 * 1024) == "2 MiB"
    assert vmm.format_size(1536 * 1024 * 1024) == "1.50 GiB"


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 30))
def test_rounding_is_to_the_nearest_multiple_on_its_side(size, multiple):
    up, down = vmm.round_up(size, multiple), vmm.round_down(size, multiple)
    assert down <= size <= up
    assert down % multiple == 0
    assert up % multiple == 0
    assert up - down == (0 if size % multiple == 0 else multiple)


def test_a_number_of_thousands_of_digits_is_a_short_error():
    with pytest.raises(vmm.SizeError, match="is not a size") as caught:
        vmm.parse_size("9" * 5000)
    assert len(str(caught.value)) < 200
