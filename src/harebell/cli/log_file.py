"""Sends what others log and write on standard error into a file, away from the display; shows its end after a failure.

Java and Spark write warnings there for their own developers, through every setting of their logging.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["logging_into", "stderr_into", "tail"]

LOG_TAIL: Final = 20  # lines


@contextmanager
def logging_into(path: Path) -> Iterator[None]:
    """What our own packages and PySpark log goes into a file: it would break up the display."""
    handler = logging.FileHandler(path)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Standard error of this process, and for good that of the processes started meanwhile, goes into a file."""
    sys.stderr.flush()
    standard_error = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(standard_error, 2)
        os.close(standard_error)


def tail(path: Path) -> str:
    """The end of the file, to show when something failed."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return "\n".join(["the log ends with:", *lines[-LOG_TAIL:]])
