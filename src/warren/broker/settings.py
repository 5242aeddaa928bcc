"""What a queue's arguments ask for, as numbers and names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from warren.protocol.v091 import Table

__all__ = ["DEFAULT_DELIVERY_LIMIT", "QueueSettings", "settings_of"]

DEFAULT_DELIVERY_LIMIT: Final = 20  # of quorum queues, as RabbitMQ 4's


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """None means not set. Times are milliseconds, sizes bytes."""

    message_ttl: int | None = None
    expires: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    delivery_limit: int | None = None
    consumer_timeout: int | None = None
    deduplicated: bool = False
    cache_size: int | None = None
    cache_ttl: int | None = None
    retry_min: int | None = None
    retry_max: int | None = None

    @property
    def plain(self) -> bool:
        """Whether messages only ever leave from the head."""
        return (
            self.message_ttl is None
            and self.max_length is None
            and self.max_length_bytes is None
            and self.max_priority is None
            and not self.deduplicated
            and self.retry_min is None
        )

    def retry_delay(self, count: int) -> int:
        """How long a message that came back for the count-th time stays away; 0: not at all.

        The smallest delay times the count, at most the largest (RabbitMQ 4.3's delayed retry of quorum queues).
        """
        if self.retry_min is None:
            return 0
        delay = self.retry_min * count
        return delay if self.retry_max is None else min(delay, self.retry_max)

    @property
    def rejects_publish(self) -> bool:
        return self.overflow != "drop-head" and (self.max_length is not None or self.max_length_bytes is not None)


def settings_of(kind: str, arguments: Table) -> QueueSettings:
    """The settings that checked arguments mean."""

    def number(name: str) -> int | None:
        value = arguments.get(name)
        return value if isinstance(value, int) else None

    def text(name: str) -> str | None:
        value = arguments.get(name)
        return value if isinstance(value, str) else None

    limit = number("x-delivery-limit")
    if limit is None and kind == "quorum":
        limit = DEFAULT_DELIVERY_LIMIT
    return QueueSettings(
        message_ttl=number("x-message-ttl"),
        expires=number("x-expires"),
        max_length=number("x-max-length"),
        max_length_bytes=number("x-max-length-bytes"),
        overflow=text("x-overflow") or "drop-head",
        dead_letter_exchange=text("x-dead-letter-exchange"),
        dead_letter_routing_key=text("x-dead-letter-routing-key"),
        max_priority=number("x-max-priority"),
        single_active_consumer=arguments.get("x-single-active-consumer") is True,
        delivery_limit=None if limit is not None and limit < 0 else limit,
        consumer_timeout=number("x-consumer-timeout"),
        deduplicated=arguments.get("x-message-deduplication") is True,
        cache_size=number("x-cache-size"),
        cache_ttl=number("x-cache-ttl"),
        retry_min=number("x-delayed-retry-min") if text("x-delayed-retry-type") not in (None, "disabled") else None,
        retry_max=number("x-delayed-retry-max"),
    )
