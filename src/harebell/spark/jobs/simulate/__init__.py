"""Traffic through a topology, before there is a broker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.spark.jobs.simulate.job import (
        BindingLoad,
        KeyLoad,
        QueueLoad,
        Simulation,
        simulate,
        span,
        sums,
        topology_of,
        traffic,
    )

__all__ = ["BindingLoad", "KeyLoad", "QueueLoad", "Simulation", "simulate", "span", "sums", "topology_of", "traffic"]


def __getattr__(name: str) -> object:
    """A worker that imports a part of the job loads no more than that part."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("harebell.spark.jobs.simulate.job"), name)
