"""The CRC-32 of any part of the same bytes at a constant cost.

The CRC of a part is known from those of what is before it and of both together: CRC-32 is linear, and what is before
adds its own CRC, moved on by the length of the part. Moving it on by a power of two is a table.
"""

from __future__ import annotations

from functools import cache
from typing import Final
from zlib import crc32

__all__ = ["Checksums"]

_STEP: Final = 256  # bytes from one sum that is kept to the next
_POLYNOMIAL: Final = 0xEDB8_8320


class Checksums:
    """CRC-32 of any part of `data` at a constant cost: bytes that look like many long records must not slow a start."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._view = memoryview(data)
        self._sums = [0]  # of what is before each _STEP

    def of(self, start: int, end: int, seed: int = 0) -> int:
        if end - start <= 4 * _STEP:
            return crc32(self._view[start:end], seed)
        return self._until(end) ^ _moved(self._until(start) ^ seed, end - start)

    def _until(self, end: int) -> int:
        steps, sums = end // _STEP, self._sums
        while len(sums) <= steps:
            at = (len(sums) - 1) * _STEP
            sums.append(crc32(self._view[at : at + _STEP], sums[-1]))
        return crc32(self._view[steps * _STEP : end], sums[steps])


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
