"""What goes through a broker: rates, sizes, silences."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.spark.jobs.traffic.tables import (
        OTHER,
        By,
        counted,
        events,
        gaps,
        latency,
        talkers,
        windows,
        with_pattern,
    )

__all__ = ["By", "OTHER", "counted", "events", "gaps", "latency", "talkers", "windows", "with_pattern"]


def __getattr__(name: str) -> object:
    """A worker that imports a part of the job loads no more than that part."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("harebell.spark.jobs.traffic.tables"), name)
