"""Locks of files: one holder at a time, among all processes of a machine, and of a network's file system that has them.

The kernel frees the lock of a process that dies. Windows has none of these locks: there nothing is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harebell.errors import InvalidArgument

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

__all__ = ["held_if_free", "held_or_refused", "held_when_free"]


@contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Holds the file, made if missing, in the block. False, and it is not held, when another has it."""
    with path.open("w") as file:
        free = True
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free = False
        yield free


@contextmanager
def held_or_refused(path: Path, refusal: str) -> Iterator[None]:
    """Holds the file, made if missing, in the block. Raises InvalidArgument, with this text, when another has it."""
    with held_if_free(path) as free:
        if not free:
            raise InvalidArgument(refusal)
        yield


@contextmanager
def held_when_free(path: Path) -> Iterator[None]:
    """Holds the file, made if missing, in the block; waits until no other has it."""
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
