"""Command ids: 32 bits on the wire, counted on without end inside.

A command's number on the wire is a serial number by RFC 1982: it wraps at 2**32, and of two numbers the one that is
less than 2**31 steps ahead comes later. Sessions count in plain integers, which have no such end; a number that comes
in is widened to the integer nearest to one that is known.
"""

from __future__ import annotations

from typing import Final

from harebell.protocol.v010.values import Ranges

__all__ = ["narrow", "narrow_ranges", "wide", "wide_ranges"]

_MODULUS: Final = 1 << 32
_HALF: Final = 1 << 31


def narrow(number: int) -> int:
    """The 32 bits of a command's number."""
    return number & 0xFFFF_FFFF


def wide(serial: int, near: int) -> int:
    """The number with these 32 bits that is nearest to `near`; of two equally near ones the lower."""
    return near + (serial - near + _HALF) % _MODULUS - _HALF


def wide_ranges(ranges: Ranges, near: int) -> list[tuple[int, int]]:
    """Pairs of numbers, sorted, without overlaps and not touching. Raises ValueError for a pair that runs backwards."""
    found = []
    for low, high in ranges:
        length = (high - low) % _MODULUS
        if length >= _HALF:
            raise ValueError(f"commands {low} to {high} run backwards")
        start = wide(low, near)
        found.append((start, start + length))
    if len(found) < 2:
        return found
    found.sort()
    merged = [found[0]]
    for start, end in found[1:]:
        last = merged[-1]
        if start > last[1] + 1:
            merged.append((start, end))
        elif end > last[1]:
            merged[-1] = (last[0], end)
    return merged


def narrow_ranges(pairs: list[tuple[int, int]]) -> Ranges:
    """The pairs as they are on the wire."""
    return tuple([(low & 0xFFFF_FFFF, high & 0xFFFF_FFFF) for low, high in pairs])
