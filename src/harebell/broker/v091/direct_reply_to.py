"""Direct reply-to: replies go to the channel that sent the request, without a queue.

A client consumes from the pseudo-queue `amq.rabbitmq.reply-to` and publishes requests with that name as reply_to; the
broker replaces the name by an address of the channel. A reply published to that address through the default exchange
goes straight to the consumer; after the channel has closed, it is unroutable.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable
from typing import Final

from harebell.broker.message import Held, Message
from harebell.broker.queues.base import Back, Owner, Queue
from harebell.broker.queues.consumer import Getter
from harebell.broker.v091.consumer import Consumer
from harebell.broker.vhost import VirtualHost
from harebell.errors import LocalProtocolError
from harebell.protocol.v091.fields import write_shortstr
from harebell.protocol.v091.fitting import fitting_frames
from harebell.protocol.v091.large_frames import Frames
from harebell.routing.settings import QueueSettings

__all__ = ["PSEUDO_QUEUE", "WIRE_NAME", "ReplyQueue"]

PSEUDO_QUEUE: Final = "amq.rabbitmq.reply-to"
WIRE_NAME: Final = write_shortstr(PSEUDO_QUEUE, "reply_to")


class ReplyQueue(Queue):
    """The address of one channel: a reply is delivered at once or dropped, so the queue is always empty.

    `owner` is the channel's connection; `consumer` is the channel's, once it consumes.
    """

    type = "reply"
    message_count = 0

    def __init__(self, vhost: VirtualHost, owner: Owner) -> None:
        name = f"{PSEUDO_QUEUE}.{secrets.token_urlsafe(18)}"
        super().__init__(
            vhost, name, durable=False, exclusive=False, auto_delete=False, arguments={}, owner=owner,
            settings=QueueSettings(),
        )  # fmt: skip
        self.wire_name = write_shortstr(name, "reply_to")
        self.consumer: Consumer | None = None

    def publish(self, message: Message) -> bool:
        consumer = self.consumer
        if consumer is not None and not consumer.cancelled:
            channel, content = consumer.channel, message.content
            frames: Frames = content.frames
            frame_max = channel.connection.engine.frame_max
            if content.channel != channel.number or len(frames) > frame_max:
                try:
                    frames = fitting_frames(content, channel.number, frame_max)
                except LocalProtocolError:
                    channel.refuse_delivery(self, 0, content.frames)
                    return True
            consumer.send(0, None, message.address.fresh, frames)
        return True

    def can_deliver(self, message: Message) -> bool:
        return bool(self.consumers)

    def deliver_share(self) -> bool:
        return True

    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        return None

    def requeue(self, entries: Iterable[Back], *, failed: bool, counted: bool = True) -> None:
        pass

    def reject(self, entries: Iterable[Back]) -> None:
        pass

    def purging(self) -> Generator[None, None, int]:
        yield from ()
        return 0
