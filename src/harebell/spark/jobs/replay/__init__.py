"""Publishes an archive's messages again.

A name is loaded with its module at the first use: a Spark worker that imports a part of the job loads only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.spark.jobs.archive.selection import Selection
    from harebell.spark.jobs.replay.run import Preview, Replayed, Route, preview, replay, resume, select
    from harebell.spark.jobs.replay.state import Pace, Target
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "harebell.spark.jobs.archive.selection": ("Selection",),
            "run": ("Preview", "Replayed", "Route", "preview", "replay", "resume", "select"),
            "state": ("Pace", "Target"),
        },
    )

__all__ = [
    "Pace",
    "Preview",
    "Replayed",
    "Route",
    "Selection",
    "Target",
    "preview",
    "replay",
    "resume",
    "select",
]
