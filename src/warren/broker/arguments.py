"""The arguments of queue.declare and basic.consume: which mean something here, and what their values must be.

Rules: an argument that means something to RabbitMQ either works here or is refused with 540, so that nothing is
accepted and ignored; one that RabbitMQ does not know is kept and ignored, as there. The texts are RabbitMQ's.
"""

from __future__ import annotations

from typing import Final

from warren.errors import NotImplemented as NotImplemented540, PreconditionFailed
from warren.protocol.v091 import Table
from warren.protocol.v091.splice import OFFSET_HEADER
from warren.routing.values import type_name

__all__ = ["COMPARED_QUEUE_ARGUMENTS", "check_consume_arguments", "check_queue_arguments", "queue_type"]

NOT_YET: Final = (
    "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-max-priority",
    "x-single-active-consumer", "x-delivery-limit", "x-dead-letter-strategy", "x-consumer-timeout", "x-queue-mode",
    "x-queue-version", "x-queue-master-locator", "x-max-age", "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes", "x-message-deduplication",
    "x-queue-leader-locator", "x-initial-cluster-size", "x-quorum-initial-group-size",
    "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max",
)  # fmt: skip
CONSUME_NOT_YET: Final = ("x-priority", "x-stream-filter", "x-stream-match-unfiltered", "x-cancel-on-ha-failover")

COMPARED_QUEUE_ARGUMENTS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key")
"""Those that a second declaration must repeat; the type, which has a default, is compared apart."""


def queue_type(arguments: Table, where: str) -> str:
    """"classic" or "stream". PreconditionFailed for an unknown type, 540 for quorum."""
    kind = arguments.get("x-queue-type", "classic")
    if not isinstance(kind, str):
        raise PreconditionFailed(f"invalid arg 'x-queue-type' for {where}: {{unacceptable_type,{type_name(kind)}}}")
    if kind == "quorum":
        raise NotImplemented540(f"x-queue-type quorum of {where}: declare it without, or as a stream")
    if kind not in ("classic", "stream"):
        raise PreconditionFailed(f"invalid arg 'x-queue-type' for {where}: \"unsupported queue type '{kind}'\"")
    return kind


def check_queue_arguments(kind: str, arguments: Table, where: str) -> None:
    """Raise for a declaration that cannot be honoured. `where` is "queue 'q' in vhost '/'"."""
    for name in NOT_YET:
        if name in arguments:
            raise NotImplemented540(f"argument '{name}' of {where}")
    for name in COMPARED_QUEUE_ARGUMENTS:
        if name in arguments and kind == "stream":
            raise PreconditionFailed(f"invalid arg '{name}' for {where} of queue type rabbit_stream_queue")
    exchange, key = (arguments.get(name, "") for name in COMPARED_QUEUE_ARGUMENTS)
    if not isinstance(exchange, str):
        raise PreconditionFailed(f"invalid type '{type_name(exchange)}' for arg 'x-dead-letter-exchange' in {where}")
    if not isinstance(key, str):
        raise PreconditionFailed(
            f"invalid arg 'x-dead-letter-routing-key' for {where}: {{unacceptable_type,{type_name(key)}}}"
        )
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise PreconditionFailed(f"invalid arg 'x-dead-letter-routing-key' for {where}: routing_key_but_no_dlx_defined")


def check_consume_arguments(arguments: Table, kind: str, where: str) -> None:
    for name in CONSUME_NOT_YET:
        if name in arguments:
            raise NotImplemented540(f"argument '{name}' of a consumer of {where}")
    if OFFSET_HEADER in arguments and kind != "stream":
        raise PreconditionFailed(f"invalid arg '{OFFSET_HEADER}' for {where} of queue type rabbit_{kind}_queue")
