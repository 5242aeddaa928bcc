"""The arguments of queue.declare and basic.consume: which mean something here, and what their values must be.

Rules: an argument that means something to RabbitMQ either works here or is refused with 540, so that nothing is
accepted and ignored; one that RabbitMQ does not know is kept and ignored, as there. The texts are RabbitMQ's, probed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warren.errors import NotImplemented as NotImplemented540, PreconditionFailed
from warren.protocol.v091 import FieldValue, Table
from warren.protocol.v091.splice import STREAM_OFFSET
from warren.routing.values import type_name

__all__ = ["COMPARED_QUEUE_ARGUMENTS", "check_consume_arguments", "check_queue_arguments", "queue_type"]

NOT_YET: Final = (
    "x-dead-letter-strategy", "x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes",
)  # fmt: skip
CONSUME_NOT_YET: Final = ("x-stream-filter", "x-stream-match-unfiltered")

TEN_YEARS_MS: Final = 315_360_000_000  # the longest time RabbitMQ takes

Problem = str | None


def _integer(value: FieldValue) -> Problem:
    if isinstance(value, bool) or not isinstance(value, int):
        return f'"expected integer, got {type_name(value)}"'
    return None


def _natural(value: FieldValue) -> Problem:
    problem = _integer(value)
    if problem is None and isinstance(value, int) and value < 0:
        return f"{{value_negative,{value}}}"
    return problem


def _time(value: FieldValue) -> Problem:
    problem = _natural(value)
    if problem is None and isinstance(value, int) and value > TEN_YEARS_MS:
        return f"{{value_too_large,{value}}}"
    return problem


def _positive_time(value: FieldValue) -> Problem:
    return "{value_zero,0}" if not isinstance(value, bool) and value == 0 else _time(value)


def _priority(value: FieldValue) -> Problem:
    problem = _natural(value)
    if problem is None and isinstance(value, int) and value > 255:
        return f"{{max_value_exceeded,{value}}}"
    return problem


def _boolean(value: FieldValue) -> Problem:
    return None if isinstance(value, bool) else f'"expected boolean, got {type_name(value)}"'


def _one_of(what: str, *choices: str) -> Callable[[FieldValue], Problem]:
    def check(value: FieldValue) -> Problem:
        if not isinstance(value, str):
            return f"{{unacceptable_type,{type_name(value)}}}"
        return None if value in choices else what

    return check


CHECKS: Final[dict[str, Callable[[FieldValue], Problem]]] = {
    "x-message-ttl": _time,
    "x-expires": _positive_time,
    "x-max-length": _natural,
    "x-max-length-bytes": _natural,
    "x-overflow": _one_of("invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx"),
    "x-max-priority": _priority,
    "x-single-active-consumer": _boolean,
    "x-delivery-limit": _integer,
    "x-consumer-timeout": _positive_time,
    "x-message-deduplication": _boolean,
    "x-cache-size": _natural,
    "x-cache-ttl": _positive_time,
    "x-delayed-retry-type": _one_of("invalid_delayed_retry_type", "disabled", "all"),
    "x-delayed-retry-min": _positive_time,
    "x-delayed-retry-max": _positive_time,
    "x-queue-mode": _one_of("invalid_queue_mode", "default", "lazy"),
    "x-queue-version": _natural,
}
ACCEPTED: Final = (
    "x-queue-mode", "x-queue-version", "x-queue-master-locator", "x-queue-leader-locator", "x-initial-cluster-size",
    "x-quorum-initial-group-size",
)  # fmt: skip
"""They place queues in a cluster or on disk: hints that one machine has nothing to do for, accepted as RabbitMQ 4's."""

REFUSED: Final[dict[str, tuple[str, ...]]] = {
    "quorum": ("x-max-priority", "x-queue-mode", "x-queue-master-locator"),
    "stream": (
        "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-message-ttl", "x-expires", "x-max-length",
        "x-overflow", "x-max-priority", "x-single-active-consumer", "x-delivery-limit", "x-queue-mode",
        "x-consumer-timeout", "x-message-deduplication", "x-delayed-retry-type",
    ),
}  # fmt: skip

COMPARED_QUEUE_ARGUMENTS: Final = (
    "x-queue-type", "x-dead-letter-exchange", "x-dead-letter-routing-key", *CHECKS, *NOT_YET
)  # fmt: skip


def queue_type(arguments: Table, where: str) -> str:
    """classic, quorum or stream. PreconditionFailed for an unknown type."""
    kind = arguments.get("x-queue-type", "classic")
    if not isinstance(kind, str):
        raise PreconditionFailed(f"invalid type '{type_name(kind)}' for arg 'x-queue-type' in {where}")
    if kind not in ("classic", "quorum", "stream"):
        raise PreconditionFailed(f"invalid arg 'x-queue-type' for {where}: \"unsupported queue type '{kind}'\"")
    return kind


def check_queue_arguments(kind: str, arguments: Table, where: str) -> None:
    """Raise for a declaration that cannot be honoured. `where` is "queue 'q' in vhost '/'"."""
    for name in NOT_YET:
        if name in arguments:
            raise NotImplemented540(f"argument '{name}' of {where}")
    for name in REFUSED.get(kind, ()):
        if name in arguments:
            raise PreconditionFailed(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")
    if kind == "stream" and "x-max-length-bytes" in arguments:
        raise NotImplemented540(f"argument 'x-max-length-bytes' of {where}")
    for name in ("x-dead-letter-exchange", "x-dead-letter-routing-key"):
        if name in arguments and not isinstance(arguments[name], str):
            raise PreconditionFailed(f"invalid type '{type_name(arguments[name])}' for arg '{name}' in {where}")
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise PreconditionFailed(
            f"invalid arg 'x-dead-letter-routing-key' for {where}: routing_key_but_no_dlx_defined"
        )
    if arguments.get("x-delayed-retry-type", "disabled") != "disabled" and "x-delayed-retry-min" not in arguments:
        raise PreconditionFailed(f"invalid arg 'x-delayed-retry-type' for {where}: x-delayed-retry-min is not set")
    for name, check in CHECKS.items():
        if name in arguments and (problem := check(arguments[name])) is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {where}: {problem}")


def check_consume_arguments(arguments: Table, kind: str, where: str) -> None:
    """Raise for a consumer that cannot be served as it asks."""
    for name in CONSUME_NOT_YET:
        if name in arguments:
            raise NotImplemented540(f"argument '{name}' of a consumer of {where}")
    if "x-priority" in arguments and (problem := _integer(arguments["x-priority"])) is not None:
        raise PreconditionFailed(f"invalid arg 'x-priority' for {where}: {problem}")
    if "x-priority" in arguments and kind == "stream":
        raise PreconditionFailed(f"invalid arg 'x-priority' for {where} of queue type rabbit_stream_queue")
    if STREAM_OFFSET.name in arguments and kind != "stream":
        raise PreconditionFailed(f"invalid arg '{STREAM_OFFSET.name}' for {where} of queue type {kind}")
