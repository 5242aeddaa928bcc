"""An archive's messages published again."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.spark.jobs.replay.job import (
        Pace,
        Preview,
        Replayed,
        Route,
        Selection,
        Target,
        preview,
        replay,
        resume,
        select,
    )

__all__ = ["Pace", "Preview", "Replayed", "Route", "Selection", "Target", "preview", "replay", "resume", "select"]


def __getattr__(name: str) -> object:
    """A worker that imports a part of the job loads no more than that part."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("harebell.spark.jobs.replay.job"), name)
