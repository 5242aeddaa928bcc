"""What exchanges keep: messages held back for a while, and messages remembered for who is bound later.

Routing says that something is to be kept (`Route.delayed`, `Route.remembered`); what is here takes the message as a
queue would, and does the keeping. Both are in memory in this version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from warren.broker.message import MarkedMessage, Message
from warren.protocol.v091 import Content, Properties, encode_content
from warren.routing.hashing import HASH_PROPERTIES
from warren.routing.keeping import DelayedMessageExchange, RecentHistoryExchange

if TYPE_CHECKING:
    from warren.broker.vhost import VirtualHost

__all__ = ["Delay", "History", "hashed_properties"]

FRAME_MAX: Final = 131_072


def hashed_properties(properties: Properties) -> Mapping[str, object]:
    """The properties that an exchange may route by, as routing takes them."""
    return {name: getattr(properties, name) for name in HASH_PROPERTIES}


class Delay:
    """A delayed exchange's hold on one message: `milliseconds` later it is routed on from `exchange`."""

    stored = False

    def __init__(self, vhost: VirtualHost, exchange: str, milliseconds: int, keys: tuple[str, ...]) -> None:
        self._vhost, self._exchange, self._milliseconds, self._keys = vhost, exchange, milliseconds, keys

    def publish(self, message: Message) -> bool:
        timers = self._vhost.node.timers
        timers.at(timers.now() + self._milliseconds, lambda: self._release(message))
        return True

    def can_deliver(self) -> bool:
        return False

    def enrich(self) -> None:
        """Nothing expires here."""

    def _release(self, message: Message) -> None:
        router = self._vhost.router
        if not router.has_exchange(self._exchange):
            return
        properties = message.content.decode_properties()
        headers = dict(properties.headers or {})
        headers["x-delay"] = -self._milliseconds  # what the plugin leaves for consumers to see
        properties.headers = headers
        source = message.content
        frames = encode_content(source.channel, properties, source.body, FRAME_MAX)
        content = Content(source.channel, source.method, frames, source.body_size)
        released = MarkedMessage(message.address, content, message.keys, message.bcc, ttl=message.ttl)
        route = router.route_keys(
            self._exchange, self._keys, lambda: headers, lambda: hashed_properties(properties), released=True
        )
        for name in route.queues:
            queue = self._vhost.queues[name]
            if released.ttl is not None:
                queue.enrich()
            queue.publish(released)
        for keeper in self._vhost.keepers(route, self._keys):
            keeper.publish(released)


class History:
    """The last messages of one recent-history exchange."""

    stored = False

    def __init__(self, length: int) -> None:
        self.messages: deque[Message] = deque(maxlen=length)

    @classmethod
    def of(cls, exchange: object) -> History | None:
        """A new history for an exchange that has one."""
        kept = exchange.inner if isinstance(exchange, DelayedMessageExchange) else exchange
        return cls(kept.length) if isinstance(kept, RecentHistoryExchange) else None

    def publish(self, message: Message) -> bool:
        self.messages.append(message)
        return True

    def can_deliver(self) -> bool:
        return False

    def enrich(self) -> None:
        """Nothing expires here."""
