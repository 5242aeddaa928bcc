"""The arguments of basic.consume; those of queues are `warren.routing.settings`'.

An argument that means something to RabbitMQ either works here or is refused with 540. The texts are RabbitMQ's.
"""

from __future__ import annotations

from typing import Final

from warren.errors import NotImplemented as NotImplemented540, PreconditionFailed
from warren.protocol.v091 import Table
from warren.protocol.v091.splice import STREAM_OFFSET
from warren.routing.values import type_name

__all__ = ["check_consume_arguments"]

NOT_YET: Final = ("x-stream-filter", "x-stream-match-unfiltered")


def check_consume_arguments(arguments: Table, kind: str, where: str) -> None:
    """Raise for a consumer that cannot be served as it asks. `where` is "queue 'q' in vhost '/'"."""
    for name in NOT_YET:
        if name in arguments:
            raise NotImplemented540(f"argument '{name}' of a consumer of {where}")
    if "x-priority" in arguments:
        priority = arguments["x-priority"]
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise PreconditionFailed(
                f"invalid arg 'x-priority' for {where}: \"expected integer, got {type_name(priority)}\""
            )
        if kind == "stream":
            raise PreconditionFailed(f"invalid arg 'x-priority' for {where} of queue type rabbit_stream_queue")
    if STREAM_OFFSET.name in arguments and kind != "stream":
        raise PreconditionFailed(f"invalid arg '{STREAM_OFFSET.name}' for {where} of queue type rabbit_{kind}_queue")
