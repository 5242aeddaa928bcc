"""Work in steps: an iterator, whose caller decides when the next step is done."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["Steps", "complete"]

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A work with a result."""


def complete(steps: Steps[T]) -> T:
    """Do all steps of a work now. Returns its result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
