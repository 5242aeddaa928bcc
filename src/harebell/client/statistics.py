"""Counters of a connection and its channels, at one moment: plain ints.

They are read from the tables of what is unsettled (`core.unconfirmed`, `core.unacked`), which number messages anyway;
only what is rare (a refusal, a return, a loss) is counted on its own. Nothing is counted per message for this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from harebell.client.core.unacked import Deliveries
from harebell.client.core.unconfirmed import Publishes

__all__ = ["ChannelStatistics", "ConnectionStatistics", "Tally", "of_deliveries", "of_ended", "of_publishes"]


@dataclass(frozen=True, slots=True)
class Counters:
    """What is counted of channels.

    published    messages written, those with confirms off too
    confirmed    of these: the broker has accepted
    nacked       it has refused
    refused      it has refused, and has closed the channel because of that
    orphaned     the connection was lost, or the channel closed, before its answer
    unconfirmed  its answer is still to come
    returned     mandatory ones that came back
    delivered    messages that came, to consumers and by `get`; what a loss took from a buffer unseen is not counted
    settled      of these: acknowledged, refused, or delivered with no_ack
    lost         came on a wire channel that is gone, and can no longer be acknowledged
    unacked      wait for their acknowledgement
    buffered     of the unacked and the no_ack ones: lie in a consumer's buffer
    parked       publications in `channel.parked`
    reopened     wire channels after the first
    """

    published: int = 0
    confirmed: int = 0
    nacked: int = 0
    refused: int = 0
    orphaned: int = 0
    unconfirmed: int = 0
    returned: int = 0
    delivered: int = 0
    settled: int = 0
    lost: int = 0
    unacked: int = 0
    buffered: int = 0
    parked: int = 0
    reopened: int = 0


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


Tally = Counter[str]  # by the names of `Counters`


def of_publishes(table: Publishes) -> Tally:
    """What a table of publications tells. It knows nothing of publications without confirms."""
    unconfirmed = len(table.waiters)
    return Tally(
        published=table.last_tag,
        confirmed=table.last_tag - unconfirmed - table.nacked - table.refused - table.orphaned,
        nacked=table.nacked,
        refused=table.refused,
        orphaned=table.orphaned,
        unconfirmed=unconfirmed,
        returned=table.returns,
    )


def of_deliveries(table: Deliveries, last_tag: int, unseen: Iterable[int] = ()) -> Tally:
    """What a table of deliveries tells; `last_tag` is the highest that came, `unseen` are the tags in buffers."""
    unacked = len(table.unacked) + sum(tag not in table.unacked for tag in unseen)
    return Tally(delivered=last_tag, settled=last_tag - unacked - table.orphaned, lost=table.orphaned, unacked=unacked)


def of_ended(tally: Tally) -> Tally:
    """What remains of a channel's numbers once it is closed: nothing is under way any more."""
    tally = tally.copy()
    tally["orphaned"] += tally.pop("unconfirmed")
    tally["lost"] += tally.pop("unacked")
    del tally["buffered"], tally["parked"]
    return tally
