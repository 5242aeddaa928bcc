"""Checksums of parts, against those that are computed for each part alone."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given, strategies as st

from harebell.broker.store.checksums import Checksums

PLACES = st.integers(0, 5000)


@given(st.binary(max_size=5000), st.lists(st.tuples(PLACES, PLACES), max_size=20), st.integers(0, 2**32 - 1))
def test_the_checksum_of_each_part(data: bytes, places: list[tuple[int, int]], seed: int) -> None:
    sums = Checksums(data)
    for pair in places:
        begin, end = sorted(min(place, len(data)) for place in pair)
        assert sums.of(begin, end, seed) == crc32(data[begin:end], seed)


def test_long_parts() -> None:
    data = bytes(range(256)) * 20_000
    sums = Checksums(data)
    for begin in (0, 1, 4095, 1 << 20):
        for end in (begin, begin + 1, begin + (1 << 20) + 3, len(data)):
            assert sums.of(begin, end) == crc32(data[begin:end])
