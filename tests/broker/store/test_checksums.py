"""Checksums of parts, against those that are computed for each part alone."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given, strategies as st

from harebell.broker.store.checksums import has_checksum

PLACES = st.integers(0, 5000)


@given(st.binary(max_size=5000), st.lists(st.tuples(PLACES, PLACES), max_size=20), st.integers(0, 19))
def test_a_part_is_found_by_its_checksum(data: bytes, places: list[tuple[int, int]], which: int) -> None:
    ends = [sorted(min(place, len(data)) for place in pair) for pair in places]
    wrong = [(begin, end, crc32(data[begin:end]) ^ 1) for begin, end in ends]
    assert not has_checksum(data, wrong)
    if which < len(wrong):
        begin, end, crc = wrong[which]
        wrong[which] = (begin, end, crc ^ 1)
        assert has_checksum(data, wrong)


def test_long_parts() -> None:
    data = bytes(range(256)) * 20_000
    for begin in (0, 1, 4095, 1 << 20):
        for end in (begin, begin + 1, begin + (1 << 20) + 3, len(data)):
            assert has_checksum(data, [(begin, end, crc32(data[begin:end]))])
