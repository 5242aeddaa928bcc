"""Redirects log records and standard error into a file, away from the display; shows its end after a failure.

Java and Spark write warnings for their own developers to standard error, whatever their logging settings are.
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
    """Write the log records of Harebell and PySpark into a file, because they would disturb the display."""
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
    """Redirect standard error into a file: of this process in the block, of processes started in it for good."""
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
