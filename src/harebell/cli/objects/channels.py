"""`harebell channels list` and `show`: the channels of a broker, and sessions of AMQP 0-10."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter

from harebell.cli.http_api.target import HttpTarget, connect_to
from harebell.cli.listing import View, show_one, show_rows
from harebell.cli.objects.lookup import AsJson, find

__all__ = ["listed", "shown"]

COLUMNS: Final = (
    "name", "user", "vhost", "consumer_count", "messages_unacknowledged", "prefetch_count",
    "message_stats.publish_details.rate", "message_stats.deliver_get_details.rate",
)  # fmt: skip


def listed(*, view: View | None = None, target: HttpTarget | None = None) -> int:
    """List channels: the user's own, or all for a user with the tag monitoring."""
    with connect_to(target) as api:
        return show_rows(lambda: api.get("channels"), COLUMNS, view)


def shown(
    name: Annotated[str, Parameter(help="The channel, as `list` names it: HOST:PORT -> HOST:PORT (NUMBER).")],
    *,
    json: AsJson = False,
    target: HttpTarget | None = None,
) -> int:
    """Show a channel: its modes, counts and consumers."""
    with connect_to(target) as api:
        return show_one(find(api, "channel", name), as_json=json)
