"""What is wrong on the node now: a row for each problem, with what it is about, how much, and since when.

Rules:

- A problem is found by a look at what is there: nothing is counted for it on the way of a message. Whatever needs two
  looks to be seen (a queue that grows) is remembered from the last look, and forgotten when nobody listens.
- A problem that comes and goes with normal work is told only once it has lasted (HELD, OLD). One that is an event
  (a message that reached no queue) stays for KEPT.
- The words for people are the listener's; here are kinds, names and figures.

The kinds:

    no_consumers        a queue gets messages, grows, and has no consumer
    slow_consumers      a queue with consumers grew in each of the last looks
    length, bytes       a queue has NEAR of its limit of messages or bytes
    dead_letter_exchange, alternate_exchange    the one that is named does not exist: what goes there is dropped
    prefetch            a consumer has had its prefetch for a while, and its queue has more
    unacked             the oldest delivery of a channel was not acknowledged for a while
    blocked             a publisher is blocked by an alarm
    unsent              a client does not take what it is sent
    unroutable          messages reached no queue: they were dropped, or returned
    connections, queues a virtual host has NEAR of its limit of these
    shovel              a shovel does not run
    alarm, memory, disk, descriptors, draining  of the node, for those that monitor
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from harebell.admin.history.counts import Counts
from harebell.admin.live.board import Entry
from harebell.broker.clients import Channel, Connection
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.broker.queues.classic import ClassicQueue
from harebell.broker.vhost import VirtualHost

__all__ = ["FACTS", "FIGURES", "OF_NODE", "Problems"]

FACTS: Final = ("id", "kind", "vhost", "of", "name", "more")
FIGURES: Final = ("figure", "limit", "since")
OF_NODE: Final = ""
"""The group of problems of the node: no virtual host has this name, so that only those who see all groups have it."""

NEAR: Final = 0.9  # of a limit
NEAR_RESOURCE: Final = 0.8  # of the node's memory and descriptors
GREW: Final = 5  # looks in which a queue with consumers grew
HELD: Final = 5_000  # milliseconds for which a consumer has had its prefetch, or a client has not read
OLD: Final = 60_000  # milliseconds without the acknowledgement of a channel's oldest delivery
KEPT: Final = 60_000  # milliseconds for which an event is told
UNSENT: Final = 1 << 20  # bytes


class _Length(NamedTuple):
    """A queue at the last look: how many messages had come, how many were ready, and in how many looks it grew."""

    came: int
    ready: int
    grew: int


class _Losses(NamedTuple):
    """A virtual host at the last look: messages without a queue, how many before the problem, and when the last one."""

    total: int
    before: int
    at: int


class Problems:
    """The problems of one node, as the entries of a board. `now` gives milliseconds since 1970."""

    def __init__(
        self, node: Node, counts: Counts, gauges: Callable[[], Mapping[str, Any]], now: Callable[[], int]
    ) -> None:
        self._node, self._counts, self._gauges, self._now = node, counts, gauges, now
        self.forget()

    def forget(self) -> None:
        """Forget the last look: nobody listens."""
        self._lengths: dict[Queue, _Length] = {}
        self._losses: dict[str, _Losses] = {}
        self._since: dict[object, int] = {}
        self._lasting: dict[object, int] = {}

    def look(self) -> Iterator[Entry | None]:
        """The problems; None for each object that has none, so that a look can be cut into steps."""
        last, self._lasting = self._lasting, {}
        since, self._since = self._since, {}
        lengths, self._lengths = self._lengths, {}
        losses, self._losses = self._losses, {}
        look = _Look(self._now(), last, since, self._lasting, self._since)
        for vhost in tuple(self._node.vhosts.values()):
            for queue in tuple(vhost.queues.values()):
                if not queue.deleted:
                    yield from self._queue(look, vhost, queue, lengths.get(queue))
                    yield None
            for exchange in tuple(vhost.router.exchanges):
                alternate = exchange.alternate
                if alternate is not None and not vhost.router.has_exchange(alternate):
                    yield look.entry(
                        "alternate_exchange", vhost.name, "exchange", exchange.name, {"missing": alternate}
                    )
                yield None
            yield from self._vhost(look, vhost, losses.get(vhost.name))
        for connection in tuple(self._node.connections):
            if connection.user:
                yield from self._connection(look, connection)
                for channel in tuple(connection.channels.values()):
                    yield from self._channel(look, connection, channel)
                    yield None
                yield None
        actor = self._node.parameters.components.get("shovel")
        for each in () if actor is None else actor.status():
            if each["state"] not in ("running", "starting"):
                more = {"reason": str(each.get("reason", ""))}
                yield look.entry("shovel", str(each["vhost"]), "shovel", str(each["name"]), more)
        yield from self._of_node(look)

    def _queue(self, look: _Look, vhost: VirtualHost, it: Queue, last: _Length | None) -> Iterator[Entry]:
        ready, came, settings = it.message_count, it.counts.publish, it.settings
        grew = 0
        if last is not None and ready >= last.ready and ready:
            grew = last.grew + (ready > last.ready and came > last.came)
        self._lengths[it] = _Length(came, ready, grew)
        name = it.name
        if grew and it.type != "stream":
            if not len(it.consumers):
                yield look.entry("no_consumers", vhost.name, "queue", name, figure=ready)
            elif grew >= GREW:
                yield look.entry("slow_consumers", vhost.name, "queue", name, figure=ready)
        if settings.max_length and ready >= NEAR * settings.max_length:
            more = {"overflow": settings.overflow or "drop-head"}
            yield look.entry("length", vhost.name, "queue", name, more, ready, settings.max_length)
        backlog = it.backlog if isinstance(it, ClassicQueue) else None
        if settings.max_length_bytes and backlog is not None and backlog.bytes >= NEAR * settings.max_length_bytes:
            more = {"overflow": settings.overflow or "drop-head"}
            yield look.entry("bytes", vhost.name, "queue", name, more, backlog.bytes, settings.max_length_bytes)
        letters = settings.dead_letter_exchange
        if letters is not None and not vhost.router.has_exchange(letters):
            yield look.entry("dead_letter_exchange", vhost.name, "queue", name, {"missing": letters})

    def _vhost(self, look: _Look, it: VirtualHost, last: _Losses | None) -> Iterator[Entry]:
        sums = self._counts.totals.get(it)
        if sums is None:
            return
        count = sums.counts.return_unroutable + sums.counts.drop_unroutable
        if last is None:
            self._losses[it.name] = _Losses(count, count, 0)
        else:
            again = last.at and look.now - last.at < KEPT
            at, before = (look.now if count > last.total else last.at), last.before if again else last.total
            self._losses[it.name] = _Losses(count, before, at)
            if at and look.now - at < KEPT:
                yield look.entry("unroutable", it.name, "vhost", it.name, figure=count - before)
        for kind, now in (("connections", sums.connections), ("queues", sums.queues)):
            limit = it.limits.get(f"max-{kind}")
            if isinstance(limit, int) and limit > 0 and now >= NEAR * limit:
                yield look.entry(kind, it.name, "vhost", it.name, figure=now, limit=limit)

    def _connection(self, look: _Look, it: Connection) -> Iterator[Entry]:
        more = {"user": it.user}
        if it.state == "blocked":
            yield look.entry("blocked", it.vhost.name, "connection", it.name, more)
        if it.unsent >= UNSENT and look.lasted(("unsent", it)) >= HELD:
            yield look.entry("unsent", it.vhost.name, "connection", it.name, more, it.unsent)

    def _channel(self, look: _Look, connection: Connection, it: Channel) -> Iterator[Entry]:
        name, vhost = f"{connection.name} ({it.number})", connection.vhost.name
        more: dict[str, object] = {"connection": connection.name, "channel": name, "user": connection.user}
        oldest = it.oldest_unacked
        if oldest is not None:
            age = look.lasted(("unacked", it, oldest))
            if age >= OLD:
                queues = sorted({each.queue.name for each in it.consumers.values()})[:3]
                told = {**more, "queues": queues}
                yield look.entry("unacked", vhost, "channel", name, told, it.unacked_count, since=look.now - age)
        for each in tuple(it.consumers.values()):
            room = getattr(each, "room", None)
            waiting = each.queue.message_count
            if not waiting or each.no_ack or not callable(room) or room() > 0:
                continue
            age = look.lasted(("prefetch", each))
            if age >= HELD:
                told = {**more, "queue": each.queue.name}
                yield look.entry(
                    "prefetch", vhost, "consumer", each.tag, told, each.prefetch, waiting, since=look.now - age
                )

    def _of_node(self, look: _Look) -> Iterator[Entry]:
        node, gauges = self._node, self._gauges()
        for alarm in sorted(node.alarms):
            yield look.entry("alarm", OF_NODE, "node", str(alarm))
        memory, limit = int(gauges["mem_used"]), int(gauges["mem_limit"])
        if limit and memory >= NEAR_RESOURCE * limit:
            yield look.entry("memory", OF_NODE, "node", node.name, figure=memory, limit=limit)
        free, least = int(gauges["disk_free"]), node.limits.disk_free_limit
        if 0 < free < 2 * least:
            yield look.entry("disk", OF_NODE, "node", node.name, figure=free, limit=least)
        used, most = int(gauges["fd_used"]), int(gauges["fd_total"])
        if most and used >= NEAR_RESOURCE * most:
            yield look.entry("descriptors", OF_NODE, "node", node.name, figure=used, limit=most)
        if node.draining:
            yield look.entry("draining", OF_NODE, "node", node.name)


class _Look:
    """One look: its time, and since when what it finds has lasted, by what was so at the last one."""

    def __init__(
        self,
        now: int,
        last: Mapping[object, int],
        since: Mapping[object, int],
        lasting: dict[object, int],
        told: dict[object, int],
    ) -> None:
        self.now = now
        self._last, self._since, self._lasting, self._told = last, since, lasting, told

    def lasted(self, key: object) -> int:
        """The milliseconds for which this has been so in every look."""
        began = self._lasting[key] = self._last.get(key, self.now)
        return self.now - began

    def entry(
        self,
        kind: str,
        vhost: str,
        of: str,
        name: str,
        more: Mapping[str, object] | None = None,
        figure: int = 0,
        limit: int = 0,
        *,
        since: int | None = None,
    ) -> Entry:
        told = dict(more or {})
        key = (kind, vhost, name, told.get("channel"))
        began = self._told[key] = self._since.get(key, self.now if since is None else since)
        id_ = "\0".join(str(part) for part in key)
        return Entry(key, vhost, (id_, kind, vhost, of, name, told), (figure, limit, began))
