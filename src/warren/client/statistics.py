"""Counters of a connection and its channels, at one moment: plain ints.

They are read from the tables of what is unsettled (`publishes`, `deliveries`), whose numbers go up by themselves; only
what is rare (a refusal, a return, a loss) is counted on its own. Nothing is counted per message for this.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self, cast

from warren.client.deliveries import Deliveries
from warren.client.publishes import Publishes

if TYPE_CHECKING:
    from warren.client.channel import Channel
    from warren.client.connection import Connection

__all__ = ["ChannelStatistics", "ConnectionStatistics", "Counters"]


@dataclass(frozen=True, slots=True)
class Counters:
    """What is counted of channels.

    published    messages written, those with confirms off too
    confirmed    of these: the broker has accepted
    nacked       it has refused
    orphaned     the connection was lost before its answer
    unanswered   the channel was closed before its answer
    unconfirmed  its answer is still to come
    returned     mandatory ones that came back
    delivered    messages that came, to consumers and by `get`; what a loss took from a buffer unseen is not counted
    settled      of these: acknowledged, refused, or delivered with no_ack
    lost         came on a wire channel that is gone, and can no longer be acknowledged
    unacked      wait for their acknowledgement
    buffered     of the unacked and the no_ack ones: lie in a consumer's buffer
    parked       orphaned publications in `channel.parked`
    reopened     wire channels after the first
    """

    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    orphaned: int = 0
    unanswered: int = 0
    unconfirmed: int = 0
    returned: int = 0
    delivered: int = 0
    settled: int = 0
    lost: int = 0
    unacked: int = 0
    buffered: int = 0
    parked: int = 0
    reopened: int = 0

    def plus(self, other: Counters) -> Self:
        """The sum, field by field."""
        return replace(
            self, **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Counters)}
        )


@dataclass(frozen=True, slots=True)
class ChannelStatistics(Counters):
    """One channel, over all its wire channels; `consumers` that it has now."""

    consumers: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionStatistics(Counters):
    """One connection, over all its transports and channels, closed ones too.

    channels      open now, or coming back
    reconnects    transports after the first
    parked_calls  calls that wait for the end of an outage now
    """

    channels: int = 0
    reconnects: int = 0
    parked_calls: int = 0


def of_publishes(table: Publishes) -> Counters:
    """What a table of publications tells. It knows nothing of publications without confirms."""
    unconfirmed = len(table.waiters)
    return Counters(
        published=table.last_tag,
        confirmed=table.last_tag - unconfirmed - table.nacked - table.orphaned - table.unanswered,
        nacked=table.nacked,
        orphaned=table.orphaned,
        unanswered=table.unanswered,
        unconfirmed=unconfirmed,
        returned=table.returns,
    )


def of_deliveries(table: Deliveries, last_tag: int) -> Counters:
    """What a table of deliveries tells; `last_tag` is the highest that came."""
    unacked = len(table.unacked)
    return Counters(
        delivered=last_tag, settled=last_tag - unacked - table.orphaned, lost=table.orphaned, unacked=unacked
    )


def of_channel(channel: Channel) -> ChannelStatistics:
    core = channel._core
    last_tag = core._last_tag if core.reason is None else core.deliveries.last_tag
    now = ChannelStatistics(
        published=channel._unnumbered + channel._unyielded,
        buffered=sum(len(subscription.buffer) for subscription in channel._subscriptions),
        parked=len(channel.parked),
        reopened=channel._wire_channels - 1,
        consumers=len(channel._subscriptions),
    )
    return now.plus(channel._before).plus(of_publishes(core.publishes)).plus(of_deliveries(core.deliveries, last_tag))


def of_ended(channel: Channel) -> Counters:
    """What remains of a channel that is closed: nothing is under way any more."""
    last = of_channel(channel)
    return replace(
        last,
        unanswered=last.unanswered + last.unconfirmed,
        unconfirmed=0,
        lost=last.lost + last.unacked,
        unacked=0,
        buffered=0,
        parked=0,
    )


def of_connection(connection: Connection) -> ConnectionStatistics:
    now = ConnectionStatistics(
        channels=len(connection._channels),
        reconnects=connection._transports - 1,
        parked_calls=len(connection._parked_calls),
    ).plus(connection._before)
    for channel in connection._channels:
        now = now.plus(of_channel(cast("Channel", channel)))
    return now
