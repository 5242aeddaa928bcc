"""Simulates the traffic of a topology without a broker.

A name is loaded with its module at the first use: a Spark worker that imports a part of the job loads only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.spark.jobs.simulate.capacity import Limits, parse_consumers
    from harebell.spark.jobs.simulate.planning import Consumers, Plan, QueuePlan, plan
    from harebell.spark.jobs.simulate.profiles import PROFILES, Profile, profile
    from harebell.spark.jobs.simulate.simulation import (
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
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "capacity": ("Limits", "parse_consumers"),
            "planning": ("Consumers", "Plan", "QueuePlan", "plan"),
            "profiles": ("PROFILES", "Profile", "profile"),
            "simulation": (
                "BindingLoad",
                "KeyLoad",
                "QueueLoad",
                "Simulation",
                "simulate",
                "span",
                "sums",
                "topology_of",
                "traffic",
            ),
        },
    )

__all__ = [
    "PROFILES",
    "BindingLoad",
    "Consumers",
    "KeyLoad",
    "Limits",
    "Plan",
    "Profile",
    "QueueLoad",
    "QueuePlan",
    "Simulation",
    "parse_consumers",
    "plan",
    "profile",
    "simulate",
    "span",
    "sums",
    "topology_of",
    "traffic",
]
