"""The check of basic.consume's arguments; those of queues are in `harebell.routing.settings`.

An argument that RabbitMQ knows either works here or is refused. The texts are RabbitMQ's.
"""

from __future__ import annotations

from typing import Final

from harebell.broker.queues.browse import BROWSE
from harebell.broker.queues.stream_filter import FILTER, MATCH_UNFILTERED
from harebell.errors import PreconditionFailed
from harebell.protocol.v091 import Table
from harebell.protocol.v091.splice import STREAM_OFFSET
from harebell.routing.table_values import type_name

__all__ = ["check_consume_arguments"]

_OF_STREAMS: Final = (STREAM_OFFSET.name, FILTER, MATCH_UNFILTERED)


def check_consume_arguments(arguments: Table, kind: str, where: str, *, exclusive: bool = False) -> None:
    """Raise for arguments that the broker cannot serve. `where` is "queue 'q' in vhost '/'"."""
    if "x-priority" in arguments:
        priority = arguments["x-priority"]
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise PreconditionFailed(
                f"invalid arg 'x-priority' for {where}: \"expected integer, got {type_name(priority)}\""
            )
        if kind == "stream":
            raise PreconditionFailed(f"invalid arg 'x-priority' for {where} of queue type rabbit_stream_queue")
    for name in _OF_STREAMS:
        if name in arguments and kind != "stream":
            raise PreconditionFailed(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")
    browse = arguments.get(BROWSE, False)
    if not isinstance(browse, bool) and (browse != "once" or kind == "stream"):
        raise PreconditionFailed(f"invalid arg '{BROWSE}' for {where}: expected a boolean" + (
            "" if kind == "stream" else " or 'once'"
        ))  # fmt: skip
    if browse and kind != "stream":  # a stream's consumer removes no messages anyway
        if exclusive:
            raise PreconditionFailed(f"a consumer that browses {where} cannot be exclusive: it takes nothing")
        if "x-priority" in arguments:
            raise PreconditionFailed(f"a consumer that browses {where} cannot have an 'x-priority': it takes nothing")
