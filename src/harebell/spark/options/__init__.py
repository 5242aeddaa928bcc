"""The options of format("amqp"): names, defaults, checks. One frozen record per role (`source`, `sink`).

Rules: Spark hands options over with lower-cased names and text values. A name that is not known is refused with the
list of those that are, one that has no meaning in the role it was given for with the role that it is for. What only
says how another kind of queue is read is unused, and that is logged; nothing else is accepted and ignored.
`names` has the names of all roles, `address` says where the broker is, `streams` and `positions` what to read of stream
queues, `payload` what to make of bodies, `values` how a value is checked. This package opens no connection and imports
nothing third-party.
"""

from __future__ import annotations

from harebell.spark.options.payload import PayloadOptions, payload_options
from harebell.spark.options.sink import SinkOptions, sink_options
from harebell.spark.options.source import (
    SourceOptions,
    check_read,
    check_ticket,
    default_spool,
    queue_option,
    refuse,
    source_options,
)

__all__ = [
    "PayloadOptions",
    "SinkOptions",
    "SourceOptions",
    "check_read",
    "check_ticket",
    "default_spool",
    "payload_options",
    "queue_option",
    "refuse",
    "sink_options",
    "source_options",
]
