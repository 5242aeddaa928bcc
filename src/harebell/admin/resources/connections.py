"""Connections, channels and consumers: lists, one of them, close, and the prefetch of a consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

from harebell.admin.answers import Answer, Refused, bad_request, not_found
from harebell.admin.history.ranges import ranges_of
from harebell.admin.http.endpoint import NOT_AUTHORISED
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.admin.resources.objects import NO_CONTENT, alone, gathered, number
from harebell.admin.shapes.connections import channel, channel_alone, connection, connection_alone
from harebell.admin.shapes.consumers import consumer
from harebell.admin.shapes.names import channel_name
from harebell.broker.clients import Channel, Connection, Subscription
from harebell.errors import ConnectionForced
from harebell.printable import printable
from harebell.routing.steps import Steps

__all__ = [
    "channels", "channels_of_connection", "channels_of_vhost", "close", "close_of_user", "connections",
    "connections_of_user", "connections_of_vhost", "consumers", "consumers_of_vhost", "set_prefetch", "show_channel",
    "show_connection",
]  # fmt: skip

LONGEST_REASON: Final = 200  # characters

CONNECTIONS: Final[Mapping[str, Callable[[Connection], Any]]] = {
    "name": lambda it: it.name,
    "vhost": lambda it: it.vhost.name,
    "user": lambda it: it.user,
    "state": lambda it: it.state,
    "channels": lambda it: len(it.channels),
    "connected_at": lambda it: it.connected_at,
    "recv_oct": lambda it: it.recv_oct,
    "send_oct": lambda it: it.send_oct,
}
CHANNELS: Final[Mapping[str, Callable[[Channel], Any]]] = {
    "number": lambda it: it.number,
    "user": lambda it: it.connection.user,
    "vhost": lambda it: it.connection.vhost.name,
    "consumer_count": lambda it: len(it.consumers),
    "prefetch_count": lambda it: it.prefetch_count,
    "messages_unacknowledged": lambda it: it.unacked_count,
    "messages_unconfirmed": lambda it: it.unconfirmed,
    "messages_uncommitted": lambda it: it.uncommitted,
}


def _seen(request: Request) -> list[Connection]:
    """The connections that the user sees: all of them, or its own. Those that have not logged in are in no list."""
    user = request.user
    open_ = [each for each in request.node.connections if each.user]
    return open_ if user.monitors else [each for each in open_ if each.user == user.name]


def connections(request: Request) -> Steps[Answer]:
    return (yield from _connections(request, lambda it: True))


def connections_of_vhost(request: Request) -> Steps[Answer]:
    vhost = request.vhost()
    return (yield from _connections(request, lambda it: it.vhost is vhost))


def connections_of_user(request: Request) -> Steps[Answer]:
    return (yield from _connections(request, lambda it: it.user == request.names["user"]))


def _connections(request: Request, wanted: Callable[[Connection], bool]) -> Steps[Answer]:
    context, ranges = request.context, ranges_of(request.query)
    listing: Listing[Connection] = Listing(
        shape=lambda it: connection(context, it, ranges),
        order=lambda it: (it.vhost.name, it.name),
        name=lambda it: it.name,
        quick=CONNECTIONS,
    )
    return (yield from listing.answer(request, [each for each in _seen(request) if wanted(each)]))


def _connection(request: Request) -> Connection:
    """The connection in the path. Raises Refused, also when it is another user's."""
    name = request.names["connection"]
    for each in request.node.connections:
        if each.name == name and each.user:
            if not (request.user.monitors or each.user == request.user.name):
                raise Refused(401, NOT_AUTHORISED, "User not authorised to access object")
            return each
    raise not_found()


def show_connection(request: Request) -> Answer:
    return alone(request, connection_alone(request.context, _connection(request), ranges_of(request.query)))


def close(request: Request) -> Answer:
    """Close a connection; the header X-Reason is told to its client, and logged."""
    it = _connection(request)
    if not (request.user.administers or it.user == request.user.name):
        raise Refused(401, NOT_AUTHORISED, "Not administrator user")
    it.close(_reason(request))
    return NO_CONTENT


def close_of_user(request: Request) -> Steps[Answer]:
    """Close all connections of a user."""
    name = request.names["user"]
    if not (request.user.administers or name == request.user.name):
        raise Refused(401, NOT_AUTHORISED, "Not administrator user")
    for each in tuple(request.node.connections):
        if each.user == name:
            each.close(_reason(request))
            yield
    return NO_CONTENT


def _reason(request: Request) -> ConnectionForced:
    given = request.headers.get("x-reason", "").encode("latin-1", "replace").decode("utf-8", "replace")
    reason = printable(given, LONGEST_REASON) or "Closed via management plugin"
    return ConnectionForced(f"CLOSED - {reason}")


def channels(request: Request) -> Steps[Answer]:
    return (yield from _channels(request, _seen(request)))


def channels_of_vhost(request: Request) -> Steps[Answer]:
    vhost = request.vhost()
    return (yield from _channels(request, [each for each in _seen(request) if each.vhost is vhost]))


def channels_of_connection(request: Request) -> Steps[Answer]:
    return (yield from _channels(request, [_connection(request)]))


def _channels(request: Request, connections: list[Connection]) -> Steps[Answer]:
    context, ranges = request.context, ranges_of(request.query)
    yield from context.counts.refreshing()
    found = yield from gathered(it for each in connections for it in tuple(each.channels.values()))
    listing: Listing[Channel] = Listing(
        shape=lambda it: channel(context, it, ranges),
        order=lambda it: (it.connection.vhost.name, it.connection.name, it.number),
        name=lambda it: channel_name(it.connection.name, it.number),
        quick=CHANNELS,
    )
    return (yield from listing.answer(request, found))


def show_channel(request: Request) -> Steps[Answer]:
    yield from request.context.counts.refreshing()
    name = request.names["channel"]
    for each in _seen(request):
        if name.startswith(each.name):
            for it in each.channels.values():
                if channel_name(each.name, it.number) == name:
                    return alone(request, channel_alone(request.context, it, ranges_of(request.query)))
    raise not_found()


def consumers(request: Request) -> Steps[Answer]:
    names = {vhost.name for vhost in request.user.seen()}
    return (yield from _consumers(request, names))


def consumers_of_vhost(request: Request) -> Steps[Answer]:
    return (yield from _consumers(request, {request.vhost().name}))


def _consumers(request: Request, vhosts: set[str]) -> Steps[Answer]:
    """The consumers in these virtual hosts. As with RabbitMQ, those of other users are among them."""
    context, found = request.context, list[Subscription]()
    for number_, each in enumerate(tuple(request.node.connections)):
        if each.vhost.name in vhosts:
            for it in each.channels.values():
                found += it.consumers.values()
        if not number_ % 64:
            yield
    listing: Listing[Subscription] = Listing(
        shape=lambda it: consumer(context, it),
        order=lambda it: (it.channel.connection.vhost.name, it.queue.name, it.tag),
        name=lambda it: it.tag,
    )
    return (yield from listing.answer(request, found))


@runtime_checkable
class _Adjustable(Protocol):
    """A consumer whose prefetch can be changed: one of AMQP 0-9-1."""

    def set_prefetch(self, prefetch: int) -> None: ...


def set_prefetch(request: Request) -> Answer:
    """Change the prefetch of a consumer that consumes; 0 is none."""
    prefetch = number(request.object(), "prefetch_count", least=0)
    name, tag, vhost = request.names["channel"], request.names["consumer"], request.vhost()
    for each in _seen(request):
        if each.vhost is not vhost or not name.startswith(each.name):
            continue
        if not (request.user.administers or each.user == request.user.name):
            raise Refused(401, NOT_AUTHORISED, "Not administrator user")
        for it in each.channels.values():
            found = it.consumers.get(tag) if channel_name(each.name, it.number) == name else None
            if found is not None:
                _adjust(found, prefetch)
                return alone(request, consumer(request.context, found))
    raise not_found()


def _adjust(it: Any, prefetch: int) -> None:
    if not isinstance(it, _Adjustable):
        raise bad_request("a subscription of AMQP 0-10 has credit, which its client gives")
    if it.no_ack:  # type: ignore[attr-defined]  # every subscription has it
        raise bad_request("a consumer without acknowledgements has no prefetch")
    if it.queue.type == "stream" and not prefetch:  # type: ignore[attr-defined]
        raise bad_request("a consumer of a stream needs a prefetch")
    it.set_prefetch(prefetch)
