"""The publishing side of a channel: from the bytes of basic.publish to queues, returns and confirms.

A publisher sends the same few method frames again and again, so the bytes of the frame are the key of a cache of routes
(`Target`): nothing is decoded per message. The cache is emptied when the vhost's topology changes. Properties are read
only where they matter: headers for CC, BCC and headers exchanges, user-id, expiration, reply-to. Properties that repeat
are read once.

In a transaction (`transaction`) a routed message waits there for the commit.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Final, Protocol

from harebell.broker.clients import Channel
from harebell.broker.expiration import milliseconds_of
from harebell.broker.fan_out import UNTIMED_QUEUES, is_wide, publish_in_steps
from harebell.broker.forwarding import Sink, route_message
from harebell.broker.message import Address, MarkedMessage, Message
from harebell.broker.operations.system_services import Service, has_service
from harebell.broker.queues.base import Queue
from harebell.broker.slices import CHECK, Work
from harebell.broker.v091.confirms import Confirms
from harebell.broker.v091.direct_reply_to import PSEUDO_QUEUE, WIRE_NAME, ReplyQueue
from harebell.broker.v091.link import Link
from harebell.broker.vhost import VirtualHost
from harebell.defaults import MAX_TIME
from harebell.errors import AmqpError, CommandInvalid, LocalProtocolError, NoConsumers, NoRoute, PreconditionFailed
from harebell.protocol.v091 import BaseContent, Content, OversizedContent, Properties, Table
from harebell.protocol.v091.content import DELIVERY_MODE_ONLY, FLAGS_AT, NO_PROPERTIES, SIZE_AND_FLAGS
from harebell.protocol.v091.fields import write_shortstr
from harebell.protocol.v091.methods import BasicPublish, BasicReturn
from harebell.protocol.v091.property_flags import (
    CORRELATION_ID,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    REPLY_TO,
    TIMESTAMP,
    USER_ID,
)
from harebell.protocol.v091.runs import ContentRun
from harebell.protocol.v091.splice import header_frame_size, replace_properties, replace_reply_to
from harebell.routing import SYSTEM_EXCHANGE, Route, bcc_keys, cc_bcc
from harebell.routing.exchanges.exchange import Dependence

__all__ = ["Publisher", "Target"]


_COPIES: Final = b"CC"  # in CC and BCC, in headers
_PER_MESSAGE: Final = CORRELATION_ID | MESSAGE_ID | TIMESTAMP  # these differ in every message
_UNKNOWN: Final = -1
MAX_KNOWN: Final = 32  # different harmless properties that a channel remembers
MAX_KNOWN_SIZE: Final = 512  # bytes of each
LONG: Final = 1024  # bytes of properties whose decoding counts as operations,
BYTES: Final = 4  # one for so many


_PUBLISH: Final = BasicPublish()


class PublisherChannel(Channel, Protocol):
    """The channel of a publisher; `replies` is its address for direct replies, once it has one."""

    replies: ReplyQueue | None

    @property
    def connection(self) -> Link: ...


class Target:
    """The route of a basic.publish frame, valid until the topology changes.

    `direct` is the `service`, where it is for one; the rest of `queues` was routed. `count` is the number of messages
    that went to exactly these queues since `flush_counts`. Where headers decide, `narrowed` has the targets of messages
    by the bytes of their headers; None: something else decides too.
    """

    __slots__ = (
        "address", "apart", "count", "direct", "immediate", "mandatory", "method", "narrowed", "particular",
        "per_message", "queues", "service", "stored",
    )  # fmt: skip

    def __init__(
        self,
        method: bytes,
        publish: BasicPublish,
        queues: tuple[Sink, ...],
        *,
        cacheable: bool = True,
        service: Service | None = None,
    ) -> None:
        self.method = method
        self.address = Address(publish.exchange, publish.routing_key)
        self.service = service
        self.direct: tuple[Sink, ...] = () if service is None else (service,)
        self.queues = (*self.direct, *queues)
        self.mandatory = publish.mandatory
        self.immediate = publish.immediate
        self.per_message = not cacheable  # headers, properties or chance decide, or an exchange holds it
        self.particular = publish.immediate or not self.queues
        self.apart = self.particular or service is not None or len(self.queues) > UNTIMED_QUEUES
        self.stored = any(queue.stored for queue in queues)
        self.narrowed: dict[bytes, Target] | None = {} if self.per_message and service is None else None
        self.count = 0

    def is_stored(self, queues: tuple[Sink, ...]) -> bool:
        """Whether the disk may have to have a message to these queues, which are its own where it has copies."""
        if self.stored or self.per_message:
            return True
        return queues is not self.queues and any(queue.stored for queue in queues)

    def flush_counts(self, vhost: VirtualHost) -> int:
        """Add `count` to the counts of the exchange and the queues. Returns it."""
        count, self.count = self.count, 0
        if count:
            vhost.count_publications(self.address.exchange, self.queues, count)
        if self.narrowed:
            count += sum(target.flush_counts(vhost) for target in self.narrowed.values())
        return count


class Publisher:
    """The publisher of one channel. `confirms` is set by confirm.select, `transaction` by tx.select."""

    __slots__ = ("_channel", "_connection", "_effort", "_known", "_targets", "confirms", "transaction")

    def __init__(self, channel: PublisherChannel) -> None:
        self._channel = channel
        self._connection = channel.connection
        self._targets: dict[bytes, Target] = {}
        self._effort = 0  # of routes, not counted yet
        self._known: dict[bytes, int | None] = {}  # properties without effect but an expiration -> that expiration
        self.confirms: Confirms | None = None
        self.transaction: list[tuple[Target, Message, tuple[Sink, ...]]] | None = None

    def publish(self, content: Content) -> None:
        """Route one message to its queues. AmqpError when it is refused."""
        target = self._targets.get(content.method)
        if target is None:
            target = self._resolve(content)
            self.spend_effort()
        if target.per_message and target.narrowed is not None:
            target = self._narrow(target, target.narrowed, content)
        content.method = target.method  # the same bytes, but one copy of them
        queues = target.queues
        if target.per_message:
            message, queues = self._read_properties(target, content)
        else:
            found = SIZE_AND_FLAGS.unpack_from(content.frames)
            if found == NO_PROPERTIES or found == DELIVERY_MODE_ONLY:
                message = Message(target.address, content)
            elif (
                not found[1] & _PER_MESSAGE
                and (ttl := self._known.get(content.frames[FLAGS_AT : 7 + found[0]], _UNKNOWN)) != _UNKNOWN
            ):
                message = Message(target.address, content) if ttl is None else _expiring(target, content, ttl)
            else:
                message, queues = self._check(target, content)
        if self.transaction is not None:
            self.transaction.append((target, message, queues))
            return
        if target.apart or queues is not target.queues:
            self._publish_apart(target, message, queues)
            return
        target.count += 1
        accepted = True
        for queue in queues:
            if not queue.publish(message):
                accepted = False
        confirms = self.confirms
        if confirms is not None:
            confirms.add(accepted, target.stored or target.per_message)

    def publish_run(self, run: ContentRun) -> bool:
        """Publish messages that are alike, together. False: nothing is done, because each needs a look of its own.

        AmqpError when they are refused.
        """
        contents, frames = run.contents, run.contents[0].frames
        target = self._targets.get(run.method)
        if target is None:
            target = self._resolve(contents[0])
        if target.per_message or target.apart or self.transaction is not None:
            return False
        self.spend_effort()
        found, ttl = SIZE_AND_FLAGS.unpack_from(frames), None
        if found != NO_PROPERTIES and found != DELIVERY_MODE_ONLY:
            ttl = self._known.get(frames[FLAGS_AT : 7 + found[0]], _UNKNOWN)
            if ttl == _UNKNOWN or ttl == 0:
                return False
        address, method, queues = target.address, target.method, target.queues
        if any(isinstance(queue, Queue) and queue.asks_all for queue in queues):
            return False
        for content in contents:
            content.method = method
        if ttl is None:
            messages = [Message(address, content) for content in contents]
        else:
            messages = [_expiring(target, content, ttl) for content in contents]
        refused: Collection[int]
        if len(queues) == 1 and isinstance(queues[0], Queue):
            refused = queues[0].publish_all(messages)
        elif independent := _independent(queues):
            refused = sorted({place for queue in independent for place in queue.publish_all(messages)})
        else:
            outcomes = [[queue.publish(message) for queue in queues] for message in messages]
            refused = [place for place, taken in enumerate(outcomes) if not all(taken)]
        target.count += len(messages)
        if self.confirms is not None:
            self.confirms.add_run(len(messages), refused, target.stored)
        return True

    def spend_effort(self) -> None:
        """Count what it took to find the routes since the last time, where that was much."""
        if self._effort:
            effort, self._effort = self._effort, 0
            self._connection.spend(effort)

    def _publish_apart(self, target: Target, message: Message, queues: tuple[Sink, ...]) -> None:
        """Publish a message that must not wait, or that has many queues, none, or queues of its own."""
        if target.service is not None or self._is_wide(target, queues):
            self._connection.work(self._channel.number, _PUBLISH, self._fan_out(target, message, queues))
            self._connection.spend(CHECK)
            return
        accepted = self.deliver(target, message, queues)
        if self.confirms is not None:
            self.confirms.add(accepted, target.is_stored(queues))
        if len(queues) > UNTIMED_QUEUES:
            self._connection.spend(len(queues))

    def _fan_out(self, target: Target, message: Message, queues: tuple[Sink, ...]) -> Work:
        accepted = yield from self.deliver_in_steps(target, message, queues)
        if self.confirms is not None:
            self.confirms.add(accepted, True)

    def deliver_in_steps(
        self, target: Target, message: Message, queues: tuple[Sink, ...]
    ) -> Generator[None, None, bool]:
        """As `deliver`; many queues get the message in steps, and a service works in steps."""
        service = target.service
        if service is None and not self._is_wide(target, queues):
            return self.deliver(target, message, queues)
        self._channel.counts.publish += 1
        self._connection.vhost.count_publications(target.address.exchange, queues, 1)
        if service is not None:
            yield from service.serve(message)
            queues = tuple(queue for queue in queues if queue is not service)
        return (yield from publish_in_steps(self._connection.batch, message, queues))

    def _is_wide(self, target: Target, queues: tuple[Sink, ...]) -> bool:
        """Whether the queues get the message in steps; one that must not wait goes to all at once."""
        return not target.immediate and is_wide(self._connection.batch, len(queues), stored=target.stored)

    def deliver(self, target: Target, message: Message, queues: tuple[Sink, ...]) -> bool:
        """Publish a routed message to its queues, or return it. Returns whether every queue took it."""
        if target.particular or queues is not target.queues:
            return self._deliver_apart(target, message, queues)
        target.count += 1
        accepted = True
        for queue in queues:
            if not queue.publish(message):
                accepted = False
        return accepted

    def _deliver_apart(self, target: Target, message: Message, queues: tuple[Sink, ...]) -> bool:
        """As `deliver`, for a message that has queues of its own, reaches none, or must not wait."""
        counts = self._channel.counts
        if target.immediate:
            queues = tuple(queue for queue in queues if queue.can_deliver(message))
        counts.publish += 1
        self._connection.vhost.count_publications(target.address.exchange, queues, 1)
        if not queues:
            if target.immediate and target.queues:
                self._return(target, message.content, NoConsumers)
            elif target.mandatory:
                counts.return_unroutable += 1
                self._return(target, message.content, NoRoute)
            else:
                counts.drop_unroutable += 1
        accepted = [queue.publish(message) for queue in queues]
        return all(accepted)

    def refuse(self, oversized: OversizedContent) -> None:
        raise PreconditionFailed(
            f"message size {oversized.body_size} is larger than configured max size "
            f"{self._connection.engine.max_message_size}"
        )

    def flush_counts(self) -> None:
        """Add the counts of the targets to the channel, its exchanges and its queues."""
        vhost = self._connection.vhost
        self._channel.counts.publish += sum(target.flush_counts(vhost) for target in self._targets.values())

    def forget_targets(self) -> None:
        """Drop the cached routes: the topology has changed."""
        self.flush_counts()
        self._targets.clear()

    # -- routing -------------------------------------------------------------------------------------------------

    def _resolve(self, content: Content) -> Target:
        publish = content.decode_method()
        if not isinstance(publish, BasicPublish):
            raise CommandInvalid(f"{publish.NAME} from a client")
        vhost = self._connection.vhost
        self._connection.access.publish(publish.exchange, publish.routing_key)
        if publish.exchange == SYSTEM_EXCHANGE and has_service(self._connection.node, publish.routing_key):
            target = Target(content.method, publish, (), service=Service(self._connection, publish.routing_key))
        else:
            route = vhost.router.route(publish.exchange, publish.routing_key)
            self._effort += route.effort
            target = Target(content.method, publish, vhost.receivers(route.queues), cacheable=route.cacheable)
            if vhost.router.exchange(publish.exchange).depends_on is Dependence.MESSAGE:
                target.narrowed = None
        if vhost.trace is not None:
            target.per_message, target.narrowed = True, None
        self._connection.remember_target()
        self._targets[content.method] = target
        return target

    def _narrow(self, target: Target, narrowed: dict[bytes, Target], content: Content) -> Target:
        """The target of messages with these headers; the same target where the headers alone do not decide."""
        headers = content.raw_headers
        known = narrowed.get(headers)
        if known is not None:
            return known
        if len(narrowed) >= MAX_KNOWN or len(headers) > MAX_KNOWN_SIZE:
            return target
        self._connection.remember_target()
        if self._targets.get(content.method) is not target:
            return target  # the cache was full and has been emptied
        route = self._route(target, (target.address.routing_key,), content.decode_properties(), content)
        self.spend_effort()
        publish = content.decode_method()
        if not route.by_headers or not isinstance(publish, BasicPublish):
            target.narrowed = None
            return target
        queues = self._connection.vhost.receivers(route.queues)
        known = narrowed[headers] = Target(target.method, publish, queues)
        return known

    def _check(self, target: Target, content: Content) -> tuple[Message, tuple[Sink, ...]]:
        """As `_read_properties`, decoding only the properties that matter: nearly always none."""
        raw = content.checked_properties()
        flags, ttl = raw[0] << 8 | raw[1], None
        if flags & REPLY_TO and self._channel.replies is not None:
            frames = replace_reply_to(content.frames, WIRE_NAME, self._channel.replies.wire_name)
            if frames is not None:
                if len(frames) > self._connection.engine.frame_max:
                    self._check_fits(target, frames)
                content = Content(content.channel, content.method, frames, content.body_size)
                raw = content.raw_properties
        if flags & USER_ID or (flags & HEADERS and _COPIES in raw) or (flags & REPLY_TO and WIRE_NAME in raw):
            return self._read_properties(target, content)
        if flags & EXPIRATION:
            expiration = content.expiration
            if expiration is None or not expiration.isdigit() or int(expiration) > MAX_TIME:
                return self._read_properties(target, content)
            ttl = int(expiration)
        if not flags & _PER_MESSAGE and len(raw) <= MAX_KNOWN_SIZE:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[raw] = ttl
        if ttl is None:
            return Message(target.address, content), target.queues
        return _expiring(target, content, ttl), target.queues

    def _read_properties(self, target: Target, content: Content) -> tuple[Message, tuple[Sink, ...]]:
        """The message and its queues where properties decide. Raises for invalid properties."""
        size = header_frame_size(content.frames)
        if size > LONG:
            self._connection.spend(size // BYTES)
        properties = content.decode_properties()
        self._check_user(properties)
        ttl = None if properties.expiration is None else milliseconds_of(properties.expiration)
        rewritten = self._set_reply_to(properties)
        headers: Table = properties.headers or {}
        copies = cc_bcc(headers)
        keys: tuple[str, ...] | None = None
        queues: tuple[Sink, ...] = target.queues
        route: Route | None = None
        if copies:
            self._connection.access.publish_copies(target.address.exchange, copies)
        if copies or target.per_message:
            keys = (target.address.routing_key, *copies)
            route = self._route(target, keys, properties, content)
            self.spend_effort()
            queues = (*target.direct, *self._connection.vhost.receivers(route.queues))
        if "BCC" in headers:
            properties.headers = {name: value for name, value in headers.items() if name != "BCC"}
            rewritten = True
        if rewritten:
            frames = replace_properties(content.frames, properties)
            self._check_fits(target, frames)
            content = Content(content.channel, content.method, frames, content.body_size)
        if ttl is not None:
            for queue in queues:
                queue.enrich()
        message: Message = Message(target.address, content)
        if ttl is not None or "BCC" in headers:
            message = MarkedMessage(target.address, content, keys, bcc_keys(headers), ttl=ttl)
        trace = self._connection.vhost.trace
        if trace is not None and route is not None and keys is not None:
            trace.published(self._channel, message, keys, properties, route.queues)
        if route is not None and (route.delayed or route.remembered):
            queues = (*queues, *self._connection.vhost.exchange_sinks(route, keys or ()))
        return message, queues

    def _check_user(self, properties: Properties) -> None:
        user_id, connection = properties.user_id, self._connection
        if user_id is not None and user_id != connection.user and not connection.access.impersonates:
            raise PreconditionFailed(
                f"user_id property set to '{user_id}' but authenticated user was '{connection.user}'"
            )

    def _check_fits(self, target: Target, frames: bytes) -> None:
        """Refuse a message that consumers could not get: with the address for replies it is longer than a frame."""
        size, frame_max = header_frame_size(frames), self._connection.engine.frame_max
        if size > frame_max and (target.queues or target.per_message):
            raise PreconditionFailed(
                f"with the address for direct replies the properties take a frame of {size} bytes, the negotiated "
                f"frame_max is {frame_max}: shorten the headers"
            )

    def _set_reply_to(self, properties: Properties) -> bool:
        """Direct reply-to: replace the pseudo-queue's name by the channel's own address."""
        if properties.reply_to != PSEUDO_QUEUE:
            return False
        if self._channel.replies is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        properties.reply_to = self._channel.replies.name
        return True

    def _route(self, target: Target, keys: tuple[str, ...], properties: Properties, content: Content) -> Route:
        router = self._connection.vhost.router
        route = route_message(router, target.address.exchange, keys, lambda: properties, lambda: content.body)
        self._effort += route.effort
        return route

    def _return(self, target: Target, content: BaseContent, why: type[AmqpError]) -> None:
        """Return a message that reached no queue, before its confirm, as RabbitMQ does."""
        method = BasicReturn(why.reply_code, why.reply_name, target.address.exchange, target.address.routing_key)
        number, frame_max = self._channel.number, self._connection.engine.frame_max
        try:
            frames = content.frames_for(number, frame_max)
        except LocalProtocolError:
            frames = _with_short_reply_to(content).frames_for(number, frame_max)
        self._connection.send(number, method, frames)


def _independent(queues: tuple[Sink, ...]) -> list[Queue]:
    """These queues, if none of them may dead-letter to another: then each can take many messages before the next."""
    found = [queue for queue in queues if isinstance(queue, Queue) and queue.settings.dead_letter_exchange is None]
    return found if len(found) == len(queues) else []


def _with_short_reply_to(content: BaseContent) -> Content:
    """The message as the client sent it: the broker's address for direct reply-to made it longer."""
    given = write_shortstr(content.decode_properties().reply_to or "", "reply_to")
    frames = replace_reply_to(content.frames, given, WIRE_NAME) or content.frames
    return Content(content.channel, content.method, frames, content.body_size)


def _expiring(target: Target, content: Content, ttl: int) -> MarkedMessage:
    """The message with an expiration, which is its only property with an effect."""
    for queue in target.queues:
        queue.enrich()
    return MarkedMessage(target.address, content, ttl=ttl)
