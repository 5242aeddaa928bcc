"""The effects of a queue's settings: which of them this broker does not have yet, and what follows from the others."""

from __future__ import annotations

from functools import cache
from typing import Final

from harebell.errors import NotImplemented as NotImplemented540
from harebell.routing.settings import MAX_PRIORITY, QueueSettings

__all__ = [
    "can_drop",
    "check_implemented",
    "delivery_limit",
    "is_plain",
    "is_at_least_once",
    "levels",
    "retries_later",
    "retry_delay",
]

DEFAULT_DELIVERY_LIMIT: Final = 20  # of quorum queues, as RabbitMQ 4's


def check_implemented(settings: QueueSettings, where: str) -> None:
    """Raise 540 for settings that this broker knows but does not have, so that none is silently ignored."""
    if settings.message_group is not None and retries_later(settings):
        raise NotImplemented540(f"x-message-group with delayed retry: {where}")


def is_plain(settings: QueueSettings) -> bool:
    """Whether messages leave only from the head of the queue."""
    return (
        settings.message_ttl is None
        and settings.max_length is None
        and settings.max_length_bytes is None
        and settings.max_priority is None
        and not settings.message_deduplication
        and not retries_later(settings)
        and settings.message_group is None
        and settings.last_value_key is None
        and settings.sequence_header is None
        and settings.alert_length_bytes is None
    )


def levels(settings: QueueSettings) -> tuple[int, ...] | None:
    """The level in the queue of a message of each priority from 0 to 255; None where all are on one level."""
    if settings.max_priority is None:
        return None
    return _levels(settings.priority_base or 0, settings.max_priority)


@cache
def _levels(base: int, top: int) -> tuple[int, ...]:
    return tuple(min(max(priority - base, 0), top) for priority in range(MAX_PRIORITY + 1))


def can_drop(settings: QueueSettings) -> bool:
    """Whether the settings make the queue drop messages."""
    return not is_plain(settings) or settings.dead_letter_exchange is not None or delivery_limit(settings) is not None


def delivery_limit(settings: QueueSettings) -> int | None:
    """The number of times that a message may come back; None: without limit."""
    limit = settings.delivery_limit
    if limit is None and settings.queue_type == "quorum":
        return DEFAULT_DELIVERY_LIMIT
    return None if limit is None or limit < 0 else limit


def is_at_least_once(settings: QueueSettings) -> bool:
    """Whether a dead letter stays with its queue until it is safe elsewhere (`dead_letters.DeadLetters`).

    RabbitMQ's rule for quorum queues: at-least-once falls back to at-most-once unless the queue refuses new messages
    when it is full, because waiting letters count towards its limits.
    """
    return (
        settings.dead_letter_strategy == "at-least-once"
        and settings.dead_letter_exchange is not None
        and settings.overflow == "reject-publish"
    )


def retries_later(settings: QueueSettings) -> bool:
    """Whether a message that comes back may have to wait."""
    return settings.delayed_retry_type not in (None, "disabled") and settings.delayed_retry_min is not None


def retry_delay(settings: QueueSettings, count: int, *, failed: bool) -> int:
    """The milliseconds that a message waits when it came back for the `count`-th time; 0: it does not wait.

    It is the smallest delay times the count, at most the largest. `failed`: its consumer rejected it, timed out or is
    gone; otherwise it gave the message back (basic.nack, basic.recover). RabbitMQ 4.3's delayed retry of quorum queues.
    """
    if settings.delayed_retry_min is None:
        return 0
    if settings.delayed_retry_type != "all" and settings.delayed_retry_type != ("failed" if failed else "returned"):
        return 0
    delay = settings.delayed_retry_min * count
    return delay if settings.delayed_retry_max is None else min(delay, settings.delayed_retry_max)
