"""The publishing side of a channel: from the bytes of basic.publish to queues, returns and confirms.

A publisher sends the same few method frames again and again, so the bytes of the frame are the key of a table that
says what they lead to (`Target`): nothing is decoded per message. The table is the connection's and is emptied when
the vhost's topology changes. Only what the properties ask for is looked at: headers for CC, BCC and headers exchanges,
user-id, and what is refused.

Confirms leave in order, one `multiple` per batch. A batch that reached a stored queue waits for the sync that covers
it; what was published after it waits behind it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from warren.broker.message import Address, MarkedMessage, Message
from warren.broker.queue import Queue
from warren.errors import NoRoute, NotImplemented as NotImplemented540, PreconditionFailed
from warren.protocol.v091 import Content, OversizedContent, Table, encode_content
from warren.protocol.v091.codec import decode_method
from warren.protocol.v091.methods import BasicAck, BasicPublish, BasicReturn
from warren.routing import bcc_keys, cc_bcc

if TYPE_CHECKING:
    from warren.broker.channel import Channel

__all__ = ["Publisher", "Target"]

MAX_TARGETS: Final = 16_384  # distinct publish frames remembered per connection: a few MB at most

_LOOKED_AT: Final = 0x2000 | 0x0010 | 0x0100 | 0x0200  # headers, user-id, expiration, reply-to
REPLY_TO: Final = "amq.rabbitmq.reply-to"


class Target:
    """What the bytes of a basic.publish lead to, as long as the topology stays."""

    __slots__ = ("address", "mandatory", "method", "queues", "reads_headers", "stored")

    def __init__(
        self, method: bytes, address: Address, queues: tuple[Queue, ...], *, mandatory: bool, reads_headers: bool
    ) -> None:
        self.method = method
        self.address = address
        self.queues = queues
        self.mandatory = mandatory
        self.reads_headers = reads_headers
        self.stored = any(queue.stored for queue in queues)


class Publisher:
    """Publishing and confirms of one channel."""

    __slots__ = (
        "_channel", "_confirmed", "_connection", "_in_batch", "_pending", "_stored", "confirming", "published",
    )  # fmt: skip

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._connection = channel.connection
        self.confirming = False
        self.published = 0
        self._confirmed = 0
        self._stored = self._in_batch = False
        self._pending: deque[tuple[int, int]] = deque()  # (last publication of a batch, the sync it waits for)

    def publish(self, content: Content) -> None:
        """Route one message to its queues. AmqpError when it is refused."""
        target = self._connection.targets.get(content.method)
        if target is None:
            target = self._resolve(content.method)
        content.method = target.method  # the same bytes, but one copy of them
        queues, message = target.queues, None
        if content.flags & _LOOKED_AT or target.reads_headers:
            message, queues = self._look(target, content)
        else:
            content.check_properties()
        if queues:
            if message is None:
                message = Message(target.address, content)
            for queue in queues:
                queue.publish(message)
        elif target.mandatory:
            self._return(target, content if message is None else message.content)
        if self.confirming:
            self.published += 1
            if not self._in_batch:
                self._in_batch = True
                self._connection.node.publishing.append(self)
            if target.stored or target.reads_headers:
                self._stored = True

    def refuse(self, oversized: OversizedContent) -> None:
        raise PreconditionFailed(
            f"message size {oversized.body_size} is larger than configured max size "
            f"{self._connection.engine.max_message_size}"
        )

    # -- routing -------------------------------------------------------------------------------------------------

    def _resolve(self, method: bytes) -> Target:
        publish = decode_method(method, self._channel.number)
        if not isinstance(publish, BasicPublish):
            raise TypeError(f"{publish!r} where the engine lets only basic.publish through")
        if publish.immediate:
            raise NotImplemented540("immediate=true")
        vhost = self._connection.vhost
        vhost.router.check_publish(publish.exchange)
        route = vhost.router.route(publish.exchange, publish.routing_key)
        target = Target(
            method,
            Address(publish.exchange, publish.routing_key),
            tuple(vhost.queues[name] for name in route.queues),
            mandatory=publish.mandatory,
            reads_headers=not route.cacheable,
        )
        targets = self._connection.targets
        if len(targets) >= MAX_TARGETS:
            targets.clear()
        targets[method] = target
        return target

    def _look(self, target: Target, content: Content) -> tuple[Message, tuple[Queue, ...]]:
        """The message and its queues where properties have a say; a refusal where they may not be as they are."""
        properties = content.decode_properties()
        if properties.user_id is not None and properties.user_id != self._connection.user:
            raise PreconditionFailed(
                f"user_id property set to '{properties.user_id}' but authenticated user was "
                f"'{self._connection.user}'"
            )
        if properties.expiration is not None:
            raise NotImplemented540("expiration of messages")
        if properties.reply_to is not None and properties.reply_to.startswith(REPLY_TO):
            raise NotImplemented540("direct reply-to")
        headers: Table = properties.headers or {}
        copies = cc_bcc(headers)
        if not copies and not target.reads_headers:
            return Message(target.address, content), target.queues
        keys = (target.address.routing_key, *copies)
        queues = self._route(target, keys, headers)
        if "BCC" not in headers:
            return Message(target.address, content), queues
        properties.headers = {name: value for name, value in headers.items() if name != "BCC"}
        frames = encode_content(content.channel, properties, content.body, self._connection.engine.frame_max)
        stripped = Content(content.channel, content.method, frames, content.body_size)
        return MarkedMessage(target.address, stripped, keys, bcc_keys(headers)), queues

    def _route(self, target: Target, keys: tuple[str, ...], headers: Table) -> tuple[Queue, ...]:
        vhost = self._connection.vhost
        route = vhost.router.route_keys(target.address.exchange, keys, lambda: headers)
        self._stored = True  # some of them may be: waiting for a sync that is not needed costs little
        return tuple(vhost.queues[name] for name in route.queues)

    def _return(self, target: Target, content: Content) -> None:
        """Give an unroutable mandatory message back: before its confirm, as RabbitMQ does."""
        method = BasicReturn(
            NoRoute.reply_code, NoRoute.reply_name, target.address.exchange, target.address.routing_key
        )
        frames = content.frames_for(self._channel.number, self._connection.engine.frame_max)
        self._connection.send(self._channel.number, method, frames)

    # -- confirms ------------------------------------------------------------------------------------------------

    def end_batch(self, ticket: int) -> bool:
        """Confirm what the batch published, or note what it waits for; whether anything waits."""
        self._in_batch = False
        self._pending.append((self.published, ticket if self._stored else 0))
        self._stored = False
        return self.confirm()

    def confirm(self) -> bool:
        """Send the confirms whose sync is done; whether any are left."""
        pending, synced, upto = self._pending, self._connection.node.commit.synced, 0
        while pending and pending[0][1] <= synced:
            upto = pending.popleft()[0]
        if upto and self._channel.open:
            self._connection.send(self._channel.number, BasicAck(upto, multiple=upto - self._confirmed > 1))
            self._confirmed = upto
        return bool(pending) and self._channel.open

