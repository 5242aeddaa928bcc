"""Queues and streams into an archive of Parquet or Delta files, and the archive read back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.spark.jobs.archive.job import Archived, ArchivedQueue, Verified, archive, read, verify

__all__ = ["Archived", "ArchivedQueue", "Verified", "archive", "read", "verify"]


def __getattr__(name: str) -> object:
    """A worker that imports a part of the job loads no more than that part."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("harebell.spark.jobs.archive.job"), name)
