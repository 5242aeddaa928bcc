"""How long the deliveries of a consumer have not been acknowledged, as JSON. RabbitMQ has no such object.

Ages are milliseconds; those of a consumer without unacknowledged deliveries are null.
"""

from __future__ import annotations

from typing import Any, Final

from harebell.admin.context import Context
from harebell.admin.history.ack_ages import Ages
from harebell.admin.shapes.consumers import consumer
from harebell.broker.clients import Subscription

__all__ = ["LIMITS", "ack_ages", "deliveries_by_age"]

LIMITS: Final = {
    "10s": 10_000,
    "30s": 30_000,
    "1m": 60_000,
    "5m": 300_000,
    "10m": 600_000,
    "30m": 1_800_000,  # the consumer timeout of RabbitMQ is about here
    "1h": 3_600_000,
}
"""The ranges of ages: what each is called, and the age in milliseconds that is not in it any more."""
MORE: Final = "more"

OF_CONSUMER: Final = ("ack_required", "channel_details", "consumer_tag", "prefetch_count", "queue")


def deliveries_by_age(ages: Ages) -> dict[str, int]:
    """The number of deliveries in each range, youngest first; those of the last one have no limit."""
    return dict(zip((*LIMITS, MORE), ages.counts(tuple(LIMITS.values())), strict=True))


def ack_ages(context: Context, it: Subscription, ages: Ages) -> dict[str, Any]:
    """A consumer with the ages of its unacknowledged deliveries."""
    about = consumer(context, it)
    return {
        **{name: about[name] for name in OF_CONSUMER},
        "global_prefetch_count": it.channel.global_prefetch_count,
        "messages_unacknowledged": ages.count,
        "oldest_age": ages.oldest,
        "median_age": ages.percentile(50),
        "p90_age": ages.percentile(90),
        "p99_age": ages.percentile(99),
        "deliveries_by_age": deliveries_by_age(ages),
    }
