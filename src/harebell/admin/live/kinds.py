"""The kinds of boards: which columns the rows of each have, and where their objects are found.

The names of the columns are those of RabbitMQ's JSON where it has the figure. Rates are named by what they count:
`publish` is messages in a second. Counts are those of `history.counts`, which is brought up to date before a look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from harebell.admin.history.counts import Counts, Totals
from harebell.admin.live.board import Entry, Kind
from harebell.admin.live.policies import PolicyNames
from harebell.admin.live.problems import FACTS, FIGURES, Problems
from harebell.broker.clients import Channel, Connection
from harebell.broker.counts import ChannelCounts, QueueCounts
from harebell.broker.node import Node
from harebell.broker.operations.definitions import json_table

__all__ = ["BY_USER", "NODE", "kinds"]

NODE: Final = "node"
"""The topic whose one row is for those that monitor."""
BY_USER: Final = frozenset({"connections", "channels"})
"""The topics whose groups are users; those of all others but NODE are virtual hosts."""

DIALECTS: Final = {"{0,9,1}": "AMQP 0-9-1", "{0,10}": "AMQP 0-10"}
CHURN: Final = ("connection_created", "connection_closed", "channel_created", "channel_closed", "queue_declared")
MESSAGES: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable", "deliver_get", "redeliver", "ack")


def kinds(
    node: Node, counts: Counts, gauges: Callable[[], Mapping[str, Any]], now: Callable[[], int]
) -> tuple[Kind, ...]:
    """All kinds. `gauges` are the figures of the process, `now` gives milliseconds since 1970."""
    problems = Problems(node, counts, gauges, now)
    return (
        Kind(
            NODE,
            ("name", "mem_limit", "mem_total", "disk_free_limit", "fd_total"),
            ("mem_used", "disk_free", "fd_used", "sockets_used", "run_queue", "alarms", "being_drained"),
            CHURN,
            lambda: _node(node, gauges()),
        ),
        Kind(
            "vhosts",
            ("name", "description", "tags", "default_queue_type", "tracing"),
            (
                "messages_ready", "messages_unacknowledged", "queues", "exchanges", "connections", "channels",
                "consumers",
            ),
            (*MESSAGES, "recv_oct", "send_oct"),
            lambda: _vhosts(node, counts),
        ),
        Kind(
            "queues",
            (
                "vhost", "name", "type", "durable", "auto_delete", "exclusive", "arguments", "policy",
                "operator_policy", "created_at",
            ),
            ("messages_ready", "messages_unacknowledged", "consumers", "capacity", "messages_delayed"),
            ("publish", "deliver_get", "redeliver", "ack"),
            _Queues(node, counts).look,
            lambda facts: [*facts[:6], json_table(facts[6]), *facts[7:]],
        ),
        Kind(
            "exchanges",
            ("vhost", "name", "type", "durable", "auto_delete", "internal", "arguments", "policy", "alternate"),
            ("messages_delayed",),
            ("publish_in", "publish_out"),
            _Exchanges(node).look,
            lambda facts: [*facts[:6], json_table(facts[6]), *facts[7:]],
        ),
        Kind(
            "connections",
            (
                "user", "name", "vhost", "protocol", "peer", "tls", "client_properties", "connected_at", "heartbeat",
                "auth_mechanism",
            ),
            ("state", "channels", "send_pend"),
            ("recv_oct", "send_oct"),
            lambda: _connections(node),
            lambda facts: [*facts[:6], json_table(facts[6]), *facts[7:]],
        ),
        Kind(
            "channels",
            ("user", "name", "vhost", "connection", "number", "confirm", "transactional"),
            (
                "consumers", "prefetch_count", "global_prefetch_count", "messages_unacknowledged",
                "messages_unconfirmed", "messages_uncommitted",
            ),
            MESSAGES,
            lambda: _channels(node),
        ),
        Kind(
            "consumers",
            (
                "vhost", "queue", "consumer_tag", "channel", "connection", "user", "ack_required", "exclusive",
                "arguments",
            ),
            ("prefetch_count", "active", "room"),
            (),
            lambda: _consumers(node),
            lambda facts: [*facts[:8], json_table(facts[8])],
        ),
        Kind("shovels", ("vhost", "name", "status"), (), (), lambda: _shovels(node)),
        Kind("problems", FACTS, FIGURES, (), problems.look, forget=problems.forget),
    )  # fmt: skip


def _delivered(counts: QueueCounts) -> int:
    return counts.deliver + counts.deliver_no_ack + counts.get + counts.get_no_ack


def _messages(counts: ChannelCounts) -> tuple[int, ...]:
    return (
        counts.publish, counts.confirm, counts.return_unroutable, counts.drop_unroutable, _delivered(counts),
        counts.redeliver, counts.ack,
    )  # fmt: skip


def _node(node: Node, gauges: Mapping[str, Any]) -> Iterator[Entry]:
    churn = tuple(getattr(node.churn, name) for name in CHURN)
    facts = (node.name, gauges["mem_limit"], gauges["mem_total"], node.limits.disk_free_limit, gauges["fd_total"])
    yield Entry(
        node.name,
        NODE,
        facts,
        (
            gauges["mem_used"], gauges["disk_free"], gauges["fd_used"], len(node.connections),
            node.batch.slices.waiting, sorted(node.alarms), node.draining,
        ),
        churn,
    )  # fmt: skip


def _vhosts(node: Node, counts: Counts) -> Iterator[Entry]:
    for it in tuple(node.vhosts.values()):
        sums, about = counts.totals.get(it) or Totals(), it.definition
        yield Entry(
            it,
            it.name,
            (
                it.name, about.description or "", list(about.tags or ()), about.default_queue_type or "classic",
                it.trace is not None,
            ),
            (
                sums.ready, sums.unacked, len(it.queues), len(it.router.exchanges), sums.connections, sums.channels,
                sums.consumers,
            ),
            (*_messages(sums.counts), sums.recv_oct, sums.send_oct),
        )  # fmt: skip


class _Queues:
    """The queues, with the names of their policies, which are found again when policies change."""

    def __init__(self, node: Node, counts: Counts) -> None:
        self._node, self._counts = node, counts
        self._policies = PolicyNames()

    def look(self) -> Iterator[Entry]:
        unacked = self._counts.unacked
        for vhost in tuple(self._node.vhosts.values()):
            names = self._policies.of(vhost)
            for it in tuple(vhost.queues.values()):
                if it.deleted:
                    continue
                counts = it.counts
                yield Entry(
                    it,
                    vhost.name,
                    (
                        vhost.name, it.name, it.type, it.durable, it.auto_delete, it.exclusive, it.arguments,
                        *names(it.name, it.type), it.created_at,
                    ),
                    (
                        it.message_count, unacked[it], len(it.consumers),
                        any(each.room() > 0 for each in it.consumers), it.delayed_count,
                    ),
                    (counts.publish, _delivered(counts), counts.redeliver, counts.ack),
                )  # fmt: skip
            self._policies.keep(vhost)
        self._policies.forget_gone(self._node.vhosts.values())


class _Exchanges:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._policies = PolicyNames()

    def look(self) -> Iterator[Entry]:
        for vhost in tuple(self._node.vhosts.values()):
            names = self._policies.of(vhost)
            for it in tuple(vhost.router.exchanges):
                counts = vhost.exchange_counts(it.name)
                policy = names(it.name, "exchange")[0] if it.name else None
                yield Entry(
                    it,
                    vhost.name,
                    (
                        vhost.name, it.name, it.type, it.durable, it.auto_delete, it.internal, it.arguments, policy,
                        it.alternate,
                    ),
                    (len(vhost.delays.get(it.name, ())),),
                    (counts.publish_in, counts.publish_out),
                )  # fmt: skip
            self._policies.keep(vhost)
        self._policies.forget_gone(self._node.vhosts.values())


def _open(node: Node) -> Iterator[Connection]:
    """The connections that have logged in."""
    for each in tuple(node.connections):
        if each.user:
            yield each


def _connections(node: Node) -> Iterator[Entry]:
    for it in _open(node):
        yield Entry(
            it,
            it.user,
            (
                it.user, it.name, it.vhost.name, DIALECTS[it.protocol], it.peer, it.tls is not None,
                it.client_properties, it.connected_at, it.heartbeat, it.mechanism,
            ),
            (it.state, len(it.channels), it.unsent),
            (it.recv_oct, it.send_oct),
        )  # fmt: skip


def _open_channels(node: Node) -> Iterator[tuple[Connection, Channel]]:
    for connection in _open(node):
        for channel in tuple(connection.channels.values()):
            yield connection, channel


def _channels(node: Node) -> Iterator[Entry]:
    for connection, it in _open_channels(node):
        yield Entry(
            it,
            connection.user,
            (
                connection.user, f"{connection.name} ({it.number})", connection.vhost.name, connection.name,
                it.number, it.confirming, it.transactional,
            ),
            (
                len(it.consumers), it.prefetch_count, it.global_prefetch_count, it.unacked_count, it.unconfirmed,
                it.uncommitted,
            ),
            _messages(it.counts),
        )  # fmt: skip


def _consumers(node: Node) -> Iterator[Entry]:
    for connection, channel in _open_channels(node):
        for it in tuple(channel.consumers.values()):
            found, own = it.queue.consumers, cast("object", it)
            yield Entry(
                it,
                connection.vhost.name,
                (
                    connection.vhost.name, it.queue.name, it.tag, f"{connection.name} ({channel.number})",
                    connection.name, connection.user, not it.no_ack, it.exclusive, it.arguments,
                ),
                (it.prefetch, not found.single or found.active is own, _room(own)),
            )  # fmt: skip


def _room(it: object) -> int:
    """How many more deliveries the consumer takes now; at most a million is told."""
    room = getattr(it, "room", None)
    return min(1_000_000, max(0, room())) if callable(room) else 0


def _shovels(node: Node) -> Iterator[Entry]:
    actor = node.parameters.components.get("shovel")
    for it in () if actor is None else actor.status():
        yield Entry((it["vhost"], it["name"]), str(it["vhost"]), (it["vhost"], it["name"], dict(it)), ())
