"""The CRC-32 of many parts of the same bytes, which may overlap, in one pass over these.

The CRC of what follows a beginning is known from that of both and that of the beginning: CRC-32 is linear, and what the
beginning adds is its own CRC, moved on by the length of the rest. Moving it on by a power of two is a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias
from zlib import crc32

__all__ = ["Part", "has_checksum"]

Part: TypeAlias = "tuple[int, int, int]"
"""Where a part begins and ends, and a CRC-32 that it may have."""

_POLYNOMIAL: Final = 0xEDB8_8320


def has_checksum(data: bytes, parts: Sequence[Part]) -> bool:
    """Whether any of these parts of the data has its checksum."""
    places = sorted({place for begin, end, _ in parts for place in (begin, end)})
    known, at, crc = dict[int, int](), places[0] if places else 0, 0
    view = memoryview(data)
    for place in places:
        crc = known[place] = crc32(view[at:place], crc)
        at = place
    return any(known[end] ^ _moved(known[begin], end - begin) == told for begin, end, told in parts)


def _moved(crc: int, size: int) -> int:
    """What a CRC adds to that of so many bytes more."""
    power = 0
    while size:
        if size & 1:
            first, second, third, fourth = _tables(power)
            crc = first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24]
        size >>= 1
        power += 1
    return crc


@cache
def _tables(power: int) -> tuple[list[int], ...]:
    """What each value of each byte of a CRC becomes 2**power bytes later."""
    matrix, tables = _matrix(power), []
    for at in range(0, 32, 8):
        table = [0]
        for column in matrix[at : at + 8]:
            table += [each ^ column for each in table]
        tables.append(table)
    return tuple(tables)


@cache
def _matrix(power: int) -> tuple[int, ...]:
    """What each bit of a CRC becomes 2**power bytes later; -3 is one bit later."""
    if power == -3:
        return (_POLYNOMIAL, *(1 << bit for bit in range(31)))
    half = _matrix(power - 1)
    return tuple(_times(half, column) for column in half)


def _times(matrix: tuple[int, ...], vector: int) -> int:
    total = 0
    for bit, column in enumerate(matrix):
        if vector >> bit & 1:
            total ^= column
    return total
