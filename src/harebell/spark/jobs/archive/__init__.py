"""Queues and streams into an archive of Parquet files, plain or as a Delta or Iceberg table, and the archive read back.

A name is loaded with its module at the first use: a Spark worker that imports a part of the job loads only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.spark.jobs.archive.compaction import Compacted, compact
    from harebell.spark.jobs.archive.reading import Verified, read, verify
    from harebell.spark.jobs.archive.run import Archived, ArchivedQueue, Prepared, archive, prepare
    from harebell.spark.jobs.archive.selection import Selection, chosen
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "compaction": ("Compacted", "compact"),
            "reading": ("Verified", "read", "verify"),
            "run": ("Archived", "ArchivedQueue", "Prepared", "archive", "prepare"),
            "selection": ("Selection", "chosen"),
        },
    )

__all__ = [
    "Archived",
    "ArchivedQueue",
    "Compacted",
    "Prepared",
    "Selection",
    "Verified",
    "archive",
    "chosen",
    "compact",
    "prepare",
    "read",
    "verify",
]
