"""Publishing for users without an AMQP connection, such as those of the HTTP API.

A message is checked and routed as one from a channel: the user's permissions, the keys of CC and BCC, user-id,
expiration and size. It is published to the queues in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Final, NamedTuple, cast

from harebell.broker.auth import Access
from harebell.broker.clients import Channel
from harebell.broker.counts import AMQP091
from harebell.broker.expiration import milliseconds_of
from harebell.broker.fan_out import publish_in_steps
from harebell.broker.forwarding import route_message
from harebell.broker.message import Address, MarkedMessage, Message
from harebell.broker.vhost import VirtualHost
from harebell.defaults import FRAME_MAX
from harebell.errors import LocalProtocolError, PreconditionFailed
from harebell.protocol.v091 import Content, Properties, encode_content
from harebell.routing import bcc_keys, cc_bcc
from harebell.routing.steps import Steps

__all__ = ["Published", "check_publication", "publishing"]

LONGEST: Final = 255  # characters of an expiration: a shortstr's; Python refuses to read thousands of digits


class Published(NamedTuple):
    """Whether a message reached a queue, whether every queue took it, and whether one has to write it to the disk."""

    routed: bool
    accepted: bool
    stored: bool


def publishing(
    vhost: VirtualHost, access: Access, exchange: str, routing_key: str, properties: Properties, body: bytes,
    *, max_size: int, origin: str,
) -> Steps[Published]:  # fmt: skip
    """Publish a message in the name of the user whose permissions `access` checks.

    `max_size` is the largest body, `origin` what the firehose calls the connection. Raises AccessRefused, NotFound, and
    PreconditionFailed for properties that a channel would be closed for.
    """
    headers = dict(properties.headers or {})
    ttl, copies = check_publication(access, exchange, routing_key, properties, len(body), max_size=max_size)
    keys = (routing_key, *copies)
    route = route_message(vhost.router, exchange, keys, lambda: properties, lambda: body)
    hidden = bcc_keys(headers)
    if "BCC" in headers:
        properties.headers = {name: value for name, value in headers.items() if name != "BCC"}
    try:
        content = Content(1, b"", encode_content(1, properties, body, FRAME_MAX), len(body))
        address = Address(exchange, routing_key)
    except LocalProtocolError as error:
        raise PreconditionFailed(str(error)) from error
    message: Message = Message(address, content)
    if copies or ttl is not None:
        message = MarkedMessage(address, content, keys if copies else None, hidden, ttl=ttl)
    queues = vhost.receivers(route.queues)
    if vhost.trace is not None:
        vhost.trace.published(_channel(origin, access.user), message, keys, properties, route.queues)
    held = vhost.exchange_sinks(route, keys)
    for counts in (vhost.counts, vhost.lasting.publications[AMQP091]):
        counts.publish += 1
        counts.confirm += 1  # the caller is told what became of it, as a client is who publishes with "mandatory"
        counts.return_unroutable += not queues and not held
    vhost.lasting.confirmable[AMQP091] += 1
    vhost.count_publications(exchange, queues, 1)
    if ttl is not None:
        for queue in queues:
            queue.enrich()
    accepted = yield from publish_in_steps(vhost.batch, message, (*queues, *held))
    return Published(bool(queues or held), accepted, any(queue.stored for queue in queues) or bool(held))


def check_publication(
    access: Access, exchange: str, routing_key: str, properties: Properties, size: int, *, max_size: int
) -> tuple[int | None, Sequence[str]]:
    """The time to live (milliseconds) and the keys in CC and BCC of a message that the user may publish.

    Raises AccessRefused, NotFound, and PreconditionFailed for properties that a channel would be closed for.
    """
    access.publish(exchange, routing_key)
    if size > max_size:
        raise PreconditionFailed(f"message size {size} is larger than configured max size {max_size}")
    if properties.user_id not in (None, access.user) and not access.impersonates:
        raise PreconditionFailed(
            f"user_id property set to '{properties.user_id}' but authenticated user was '{access.user}'"
        )
    ttl = _milliseconds(properties.expiration)
    copies = cc_bcc(dict(properties.headers or {}))
    if copies:
        access.publish_copies(exchange, copies)
    return ttl, copies


def _milliseconds(expiration: str | None) -> int | None:
    """As `milliseconds_of`, for a text of any length: a client of AMQP has no longer ones than a short string."""
    if expiration is not None and len(expiration) > LONGEST:
        raise PreconditionFailed(
            f"expiration is {len(expiration)} characters long; a short string holds at most {LONGEST}"
        )
    return None if expiration is None else milliseconds_of(expiration)


def _channel(origin: str, user: str) -> Channel:
    """The parts of a channel that the firehose reports."""
    connection = SimpleNamespace(name=origin, user=user)
    return cast("Channel", SimpleNamespace(connection=connection, number=0))
