"""`harebell consumers`: who consumes from which queue."""

from __future__ import annotations

from typing import Final

from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_rows
from harebell.cli.objects.lookup import InVhost, known_from, listed_in

__all__ = ["listed"]

COLUMNS: Final = (
    "queue.vhost", "queue.name", "consumer_tag", "channel_details.name", "prefetch_count", "ack_required", "active",
)  # fmt: skip


def listed(*, vhost: InVhost = None, view: View | None = None, target: HttpTarget | None = None) -> int:
    """List consumers: their queues, channels and prefetch."""
    with connect_to(target) as api:
        return show_rows(lambda: listed_in(api, "consumers", vhost), COLUMNS, view, without=known_from(vhost))
