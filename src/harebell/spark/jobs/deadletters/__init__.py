"""Tables of why messages died, and the job that sends them back.

A name is loaded with its module at the first use: a Spark worker that imports a part of the job loads only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.spark.jobs.deadletters.ledger import Ledger
    from harebell.spark.jobs.deadletters.redriving import (
        Plan,
        Redriven,
        Target,
        default_ledger,
        plan_of,
        redrive,
        selection,
    )
    from harebell.spark.jobs.deadletters.triage_tables import (
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
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "ledger": ("Ledger",),
            "redriving": ("Plan", "Redriven", "Target", "default_ledger", "plan_of", "redrive", "selection"),
            "triage_tables": (
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
            ),
        },
    )

__all__ = [
    "Ledger",
    "Plan",
    "Redriven",
    "Target",
    "Triage",
    "ages",
    "cycles",
    "dead_letters",
    "default_ledger",
    "hops",
    "origins",
    "patterns",
    "plan_of",
    "reasons",
    "redrive",
    "selection",
    "sizes",
    "summary",
    "timeline",
    "triage",
    "with_a_death",
]
