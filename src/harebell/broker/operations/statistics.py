"""Counts of what passes, with RabbitMQ's names, and the report that puts them together.

Counting must not be felt, so hardly anything is counted per message. A publication adds one to its `Target`; a consumer
adds the size of each share it is fed, and of each acknowledgement. `settle` (of publishers and consumers) carries these
over to the counts kept here, when the target or the consumer goes and when somebody asks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from harebell.broker.queues.decorators import QueueDecorator
from harebell.broker.queues.settings import can_drop

if TYPE_CHECKING:
    from harebell.broker.message import Message
    from harebell.broker.node import Node
    from harebell.broker.queues.classic import Queue
    from harebell.broker.v091.channel import Channel
    from harebell.broker.v091.connection import Connection
    from harebell.broker.vhost import VirtualHost

__all__ = ["ChannelCounts", "Churn", "Drops", "ExchangeCounts", "QueueCounts", "statistics", "vhost_statistics"]


class ExchangeCounts:
    """`publish_in` messages came, and went on to `publish_out` queues, each queue counted."""

    __slots__ = ("publish_in", "publish_out")

    def __init__(self) -> None:
        self.publish_in = self.publish_out = 0

    def report(self) -> dict[str, int]:
        return {"publish_in": self.publish_in, "publish_out": self.publish_out}


class QueueCounts:
    """What came to one queue and left it. `redeliver` is of the deliveries and gets those that were not the first."""

    __slots__ = ("ack", "deliver", "deliver_no_ack", "get", "get_empty", "get_no_ack", "publish", "redeliver")

    def __init__(self) -> None:
        self.publish = self.ack = self.redeliver = 0
        self.deliver = self.deliver_no_ack = 0
        self.get = self.get_no_ack = self.get_empty = 0

    def report(self) -> dict[str, int]:
        return {
            "publish": self.publish,
            "ack": self.ack,
            "deliver": self.deliver,
            "deliver_no_ack": self.deliver_no_ack,
            "get": self.get,
            "get_no_ack": self.get_no_ack,
            "get_empty": self.get_empty,
            "deliver_get": self.deliver + self.deliver_no_ack + self.get + self.get_no_ack,
            "redeliver": self.redeliver,
        }


class ChannelCounts(QueueCounts):
    """The same of one channel or of many, with what becomes of its publications."""

    __slots__ = ("confirm", "drop_unroutable", "return_unroutable")

    def __init__(self) -> None:
        super().__init__()
        self.confirm = self.return_unroutable = self.drop_unroutable = 0

    def add(self, other: ChannelCounts) -> None:
        for name in (*QueueCounts.__slots__, *ChannelCounts.__slots__):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def report(self) -> dict[str, int]:
        return {
            **super().report(),
            "confirm": self.confirm,
            "return_unroutable": self.return_unroutable,
            "drop_unroutable": self.drop_unroutable,
        }


class Churn:
    """What came and went on the node since it started."""

    __slots__ = (
        "channel_closed", "channel_created", "connection_closed", "connection_created", "queue_created",
        "queue_declared", "queue_deleted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connection_created = self.connection_closed = 0
        self.channel_created = self.channel_closed = 0
        self.queue_declared = self.queue_created = self.queue_deleted = 0

    def report(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


class Drops(QueueDecorator):
    """How many messages a queue dropped, by reason: a decorator of queues whose settings make them drop any."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @classmethod
    def of(cls, queue: Queue) -> Drops | None:
        return cls() if can_drop(queue.settings) else None

    def dropped(self, message: Message, reason: str) -> None:
        self.counts[reason] += 1


def statistics(node: Node) -> dict[str, Any]:
    """Everything that the node counts, as `Broker.statistics` documents it."""
    unacked = _settle(node)
    vhosts = {name: _vhost(vhost, unacked) for name, vhost in node.vhosts.items()}
    totals = ChannelCounts()
    for vhost in node.vhosts.values():
        totals.add(_totals(vhost))
    queues = [queue for vhost in vhosts.values() for queue in vhost["queues"].values()]
    connections = [_connection(connection) for connection in node.connections]
    return {
        "node": node.name,
        "alarms": sorted(node.alarms),
        "message_stats": totals.report(),
        "churn": node.churn.report(),
        "object_totals": {
            "connections": len(connections),
            "channels": sum(len(connection["channels"]) for connection in connections),
            "consumers": sum(queue["consumers"] for queue in queues),
            "exchanges": sum(len(vhost["exchanges"]) for vhost in vhosts.values()),
            "queues": len(queues),
        },
        "queue_totals": {
            name: sum(queue[name] for queue in queues)
            for name in ("messages", "messages_ready", "messages_unacknowledged")
        },
        "vhosts": vhosts,
        "connections": connections,
    }


def vhost_statistics(vhost: VirtualHost) -> dict[str, Any]:
    """What `statistics` says of one virtual host, and its number of `connections`."""
    connections = sum(connection.vhost is vhost for connection in vhost.node.connections)
    return {"connections": connections, **_vhost(vhost, _settle(vhost.node))}


def _settle(node: Node) -> Counter[Queue]:
    """Bring all counts up to date; how many messages of each queue are unacknowledged."""
    unacked: Counter[Queue] = Counter()
    for connection in node.connections:
        for channel in connection.channels.values():
            channel.settle()
            unacked.update(entry[0] for entry in channel.unacked.entries.values())
    return unacked


def _totals(vhost: VirtualHost) -> ChannelCounts:
    """Of the channels that were, and those that are."""
    totals = ChannelCounts()
    totals.add(vhost.counts)
    for connection in vhost.node.connections:
        if connection.vhost is vhost:
            for channel in connection.channels.values():
                totals.add(channel.counts)
    return totals


def _vhost(vhost: VirtualHost, unacked: Counter[Queue]) -> dict[str, Any]:
    return {
        "tracing": vhost.trace is not None,
        "message_stats": _totals(vhost).report(),
        "exchanges": {
            exchange.name: {
                "type": exchange.type,
                "messages_delayed": len(vhost.delays.get(exchange.name, ())),
                "message_stats": vhost.exchange_counts(exchange.name).report(),
            }
            for exchange in vhost.router.exchanges
        },
        "queues": {name: _queue(queue, unacked[queue]) for name, queue in vhost.queues.items()},
    }


def _queue(queue: Queue, unacknowledged: int) -> dict[str, Any]:
    drops = next((decorator for decorator in queue.decorators if isinstance(decorator, Drops)), None)
    return {
        "type": queue.type,
        "messages": queue.message_count + unacknowledged,
        "messages_ready": queue.message_count,
        "messages_unacknowledged": unacknowledged,
        "messages_delayed": queue.delayed_count,
        "messages_dlx": queue.dead_letter_count,
        "consumers": len(queue.consumers),
        "message_stats": queue.counts.report(),
        "dropped": {} if drops is None else dict(drops.counts),
    }


def _connection(connection: Connection) -> dict[str, Any]:
    return {
        "name": connection.name,
        "user": connection.user,
        "vhost": connection.vhost.name,
        "state": connection.state,
        "recv_oct": connection.recv_oct,
        "recv_cnt": connection.recv_cnt,
        "send_oct": connection.send_oct,
        "send_cnt": connection.send_cnt,
        "channels": [_channel(channel) for channel in connection.channels.values()],
    }


def _channel(channel: Channel) -> dict[str, Any]:
    publisher = channel.publisher
    return {
        "number": channel.number,
        "confirm": publisher.confirms is not None,
        "transactional": publisher.transaction is not None,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": len(channel.unacked),
        "messages_unconfirmed": 0 if publisher.confirms is None else publisher.confirms.outstanding,
        "messages_uncommitted": len(publisher.transaction or ()),
        "message_stats": channel.counts.report(),
    }
