"""The report of all counts of a node, with RabbitMQ's names; the counters are in `broker.counts`.

A report is made in steps, and other clients have their turns between them: it is no picture of one moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any, Final

from harebell.broker.clients import Channel, Connection
from harebell.broker.counts import ChannelCounts
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.broker.queues.drops import Drops
from harebell.broker.vhost import VirtualHost
from harebell.routing.steps import Steps, complete

__all__ = ["counting", "statistics", "vhost_statistics"]

FEW: Final = 32  # channels counted in one step


def statistics(node: Node) -> dict[str, Any]:
    """All counts of the node, as `Broker.statistics` documents them."""
    return complete(_statistics(node))


def _statistics(node: Node) -> Steps[dict[str, Any]]:
    unacked = yield from counting(node)
    vhosts = {}
    for name, vhost in tuple(node.vhosts.items()):
        vhosts[name] = yield from _vhost(vhost, node.connections, unacked)
    totals = ChannelCounts()
    for vhost in node.vhosts.values():
        totals.add(_totals(vhost, node.connections))
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


def vhost_statistics(node: Node, vhost: VirtualHost) -> Steps[dict[str, Any]]:
    """The part of `statistics` for one virtual host, and its number of `connections`."""
    connections = sum(connection.vhost is vhost for connection in node.connections)
    unacked = yield from counting(node)
    counts = yield from _vhost(vhost, node.connections, unacked)
    return {"connections": connections, **counts}


def counting(node: Node) -> Steps[Counter[Queue]]:
    """Bring all counts up to date. Returns the number of unacknowledged messages of each queue."""
    unacked: Counter[Queue] = Counter()
    detached = tuple(session for session in node.sessions if not session.attached)
    connections = tuple(node.connections)
    parts = chain((tuple(each.channels.values()) for each in connections), (detached,))
    for number, channel in enumerate(chain.from_iterable(parts)):
        channel.flush_counts()
        found = yield from channel.counting_unacked()
        if found:
            unacked.update(found)
        if not number % FEW:
            yield
    return unacked


def _totals(vhost: VirtualHost, connections: Iterable[Connection]) -> ChannelCounts:
    """The counts of all channels of a virtual host, closed ones included."""
    totals = ChannelCounts()
    totals.add(vhost.counts)
    for connection in connections:
        if connection.vhost is vhost:
            for channel in connection.channels.values():
                totals.add(channel.counts)
    return totals


def _vhost(vhost: VirtualHost, connections: Collection[Connection], unacked: Counter[Queue]) -> Steps[dict[str, Any]]:
    exchanges, queues = {}, {}
    for exchange in tuple(vhost.router.exchanges):
        if vhost.router.has_exchange(exchange.name):
            exchanges[exchange.name] = {
                "type": exchange.type,
                "messages_delayed": len(vhost.delays.get(exchange.name, ())),
                "message_stats": vhost.exchange_counts(exchange.name).report(),
            }
            yield
    for name, queue in tuple(vhost.queues.items()):
        if not queue.deleted:
            queues[name] = _queue(queue, unacked[queue])
            yield
    return {
        "tracing": vhost.trace is not None,
        "message_stats": _totals(vhost, connections).report(),
        "exchanges": exchanges,
        "queues": queues,
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
    return {
        "number": channel.number,
        "confirm": channel.confirming,
        "transactional": channel.transactional,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": channel.unacked_count,
        "messages_unconfirmed": channel.unconfirmed,
        "messages_uncommitted": channel.uncommitted,
        "message_stats": channel.counts.report(),
    }
