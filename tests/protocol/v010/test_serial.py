"""Command ids wrap at 2**32: they are compared as RFC 1982 says."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from harebell.protocol.v010.serial import narrow, narrow_ranges, wide, wide_ranges

MODULUS = 1 << 32


@given(st.integers(0, 1 << 60), st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_number_is_found_again_near_another(near: int, distance: int) -> None:
    assert wide(narrow(near + distance), near) == near + distance


def test_rfc_1982() -> None:
    assert wide(0, 0xFFFF_FFFF) == MODULUS  # 0 comes after 2**32 - 1
    assert wide(0xFFFF_FFFF, MODULUS) == 0xFFFF_FFFF
    assert wide(100, 44) > 44
    assert wide(44, 100) < 100
    assert wide(1 << 31, 0) == -(1 << 31)


@given(st.integers(1 << 40, 1 << 50), st.sets(st.integers(-50, 50)), st.randoms())
def test_ranges_are_sorted_and_merged(near: int, offsets: set[int], random: object) -> None:
    numbers = {near + offset for offset in offsets}
    pairs = [(number, number + length) for number in numbers for length in (0, 2)]
    random.shuffle(pairs)  # type: ignore[attr-defined]
    found = wide_ranges(narrow_ranges(pairs), near)
    assert {n for low, high in found for n in range(low, high + 1)} == {n + i for n in numbers for i in range(3)}
    assert all(first[1] + 1 < second[0] for first, second in pairwise(found))


def test_ranges_across_the_wrap() -> None:
    assert wide_ranges(((0xFFFF_FFFE, 1),), MODULUS) == [(MODULUS - 2, MODULUS + 1)]
    assert wide_ranges((), 5) == []
    with pytest.raises(ValueError, match="commands 1 to 0 run backwards"):
        wide_ranges(((1, 0),), 0)
