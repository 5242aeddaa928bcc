"""Why messages died, and sending them back."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harebell.spark.jobs.deadletters.tables import (
        Triage,
        ages,
        cycles,
        dead_letters,
        hops,
        origins,
        patterns,
        reasons,
        sizes,
        summary,
        timeline,
        triage,
        with_a_death,
    )

__all__ = [
    "Triage",
    "ages",
    "cycles",
    "dead_letters",
    "hops",
    "origins",
    "patterns",
    "reasons",
    "sizes",
    "summary",
    "timeline",
    "triage",
    "with_a_death",
]


def __getattr__(name: str) -> object:
    """A worker that imports a part of the job loads no more than that part."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("harebell.spark.jobs.deadletters.tables"), name)
