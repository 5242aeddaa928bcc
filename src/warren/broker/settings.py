"""What a queue's settings come to: which of them this broker does not do yet, and what follows from the rest."""

from __future__ import annotations

from typing import Final

from warren.errors import NotImplemented as NotImplemented540
from warren.routing.settings import QueueSettings

__all__ = ["can_drop", "check_implemented", "delivery_limit", "is_plain", "retry_delay"]

DEFAULT_DELIVERY_LIMIT: Final = 20  # of quorum queues, as RabbitMQ 4's


def check_implemented(settings: QueueSettings, where: str) -> None:
    """540 for what is understood and not done, so that nothing is accepted and ignored."""
    problems = {
        "x-max-age": settings.max_age is not None,
        "x-stream-max-segment-size-bytes": settings.stream_max_segment_size_bytes is not None,
        "x-stream-filter-size-bytes": settings.stream_filter_size_bytes is not None,
        "x-max-length-bytes of a stream": settings.queue_type == "stream" and settings.max_length_bytes is not None,
        "x-dead-letter-strategy at-least-once": settings.dead_letter_strategy == "at-least-once",
        "x-delayed-retry-type failed or returned": settings.delayed_retry_type in ("failed", "returned"),
    }
    for what, asked in problems.items():
        if asked:
            raise NotImplemented540(f"{what}: {where}")


def is_plain(settings: QueueSettings) -> bool:
    """Whether messages only ever leave from the head of the queue."""
    return (
        settings.message_ttl is None
        and settings.max_length is None
        and settings.max_length_bytes is None
        and settings.max_priority is None
        and not settings.message_deduplication
        and not retry_delay(settings, 1)
    )


def can_drop(settings: QueueSettings) -> bool:
    """Whether the queue drops messages for a reason of its own."""
    return not is_plain(settings) or settings.dead_letter_exchange is not None or delivery_limit(settings) is not None


def delivery_limit(settings: QueueSettings) -> int | None:
    """How often a message may come back; None: without limit."""
    limit = settings.delivery_limit
    if limit is None and settings.queue_type == "quorum":
        return DEFAULT_DELIVERY_LIMIT
    return None if limit is None or limit < 0 else limit


def retry_delay(settings: QueueSettings, count: int) -> int:
    """How many milliseconds a message that came back for the count-th time stays away; 0: not at all.

    The smallest delay times the count, at most the largest (RabbitMQ 4.3's delayed retry of quorum queues).
    """
    if settings.delayed_retry_type != "all" or settings.delayed_retry_min is None:
        return 0
    delay = settings.delayed_retry_min * count
    return delay if settings.delayed_retry_max is None else min(delay, settings.delayed_retry_max)
