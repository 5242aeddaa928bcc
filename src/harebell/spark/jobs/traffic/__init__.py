"""Reports the traffic of a broker: rates, sizes, silences.

A name is loaded with its module at the first use: a Spark worker that imports a part of the job loads only that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harebell.lazy import lazy_names

if TYPE_CHECKING:
    from harebell.spark.jobs.traffic.arrivals import backlog, busy_seconds, daily, per_second
    from harebell.spark.jobs.traffic.event_tables import (
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
    from harebell.spark.jobs.traffic.firehose import firehose_schema, watch
    from harebell.spark.jobs.traffic.report import Questions, Survey, survey
    from harebell.spark.jobs.traffic.unusual_hours import anomalies, hourly
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "arrivals": ("backlog", "busy_seconds", "daily", "per_second"),
            "event_tables": (
                "OTHER",
                "By",
                "counted",
                "events",
                "gaps",
                "latency",
                "talkers",
                "windows",
                "with_pattern",
            ),
            "firehose": ("firehose_schema", "watch"),
            "report": ("Questions", "Survey", "survey"),
            "unusual_hours": ("anomalies", "hourly"),
        },
    )

__all__ = [
    "OTHER",
    "By",
    "Questions",
    "Survey",
    "anomalies",
    "backlog",
    "busy_seconds",
    "counted",
    "daily",
    "events",
    "firehose_schema",
    "gaps",
    "hourly",
    "latency",
    "per_second",
    "survey",
    "talkers",
    "watch",
    "windows",
    "with_pattern",
]
