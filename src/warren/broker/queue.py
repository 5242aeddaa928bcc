"""Queues: what all kinds share, and the classic queue.

A classic queue is a deque of messages that nobody has seen (`ready`) and a heap of those that came back (`returned`),
which go first: they keep the position they had, so a requeued message stands where it stood (RabbitMQ does the same).
Positions count messages taken from `ready`; nothing needs to be stored for them.

Messages of classic queues are in memory. It knows no sockets and no wire format.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from warren.broker.consumer import Consumer
from warren.broker.message import Message
from warren.errors import AccessRefused, ResourceLocked
from warren.protocol.v091 import Table

if TYPE_CHECKING:
    from warren.broker.connection import Connection
    from warren.broker.vhost import VirtualHost

__all__ = ["ClassicQueue", "Queue"]


class Queue(ABC):
    """A queue of any type: identity, ownership, consumers in turn."""

    type: str
    stored = False  # whether a publisher confirm has to wait for the disk

    def __init__(
        self, vhost: VirtualHost, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table,
        owner: Connection | None,
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.owner = owner  # the connection of an exclusive queue
        self.consumers: deque[Consumer] = deque()
        self.scheduled = False
        self.deleted = False

    def __str__(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost.name}'"

    # -- what the kinds differ in --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def message_count(self) -> int:
        """Messages ready for delivery."""

    @abstractmethod
    def publish(self, message: Message) -> None:
        """Take a message; delivery follows at the end of the batch."""

    @abstractmethod
    def deliver(self) -> None:
        """Give consumers what their windows take."""

    @abstractmethod
    def take(self) -> tuple[int, Message, bool] | None:
        """The next message for basic.get: (position, message, redelivered)."""

    @abstractmethod
    def requeue(self, entries: list[tuple[int, Message]]) -> None:
        """Put delivered messages back where they stood."""

    @abstractmethod
    def reject(self, entries: list[tuple[int, Message]]) -> None:
        """Drop delivered messages: dead-letter them where the queue says so."""

    @abstractmethod
    def purge(self) -> int:
        """Drop the ready messages; how many."""

    def check_consume(self, no_ack: bool, prefetch: int, arguments: Table) -> None:  # noqa: B027  a hook
        """Raise when this kind of queue cannot serve such a consumer."""

    def check_negative(self, methods: str) -> None:  # noqa: B027  a hook
        """Raise when this kind of queue takes nothing back: no basic.nack, reject or recover."""

    # -- what they share -----------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Deliver at the end of the batch."""
        if not self.scheduled:
            self.scheduled = True
            self.vhost.node.scheduled.append(self)

    def check_access(self, connection: Connection) -> None:
        """ResourceLocked unless the connection may use the queue."""
        if self.exclusive and self.owner is not connection:
            raise self.locked()

    def locked(self) -> ResourceLocked:
        return ResourceLocked(
            f"cannot obtain exclusive access to locked {self}. It could be originally declared on another "
            "connection or the exclusive property value does not match that of the original declaration."
        )

    def add_consumer(self, consumer: Consumer) -> None:
        if self.consumers and (consumer.exclusive or self.consumers[0].exclusive):
            raise AccessRefused(f"{self} in exclusive use")
        self.consumers.append(consumer)
        self.schedule()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Forget a consumer; an auto-delete queue goes with its last one."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            if self.auto_delete and not self.consumers and not self.deleted:
                self.vhost.delete_queue(self)

    def next_consumer(self) -> tuple[Consumer, int] | None:
        """The consumer whose turn it is and the room it has; None when no consumer takes anything now."""
        consumers = self.consumers
        for _ in range(len(consumers)):
            consumer = consumers[0]
            room = consumer.room()
            if len(consumers) > 1:
                consumers.rotate(-1)
            if room > 0:
                return consumer, room
        return None


class ClassicQueue(Queue):
    """A queue whose messages are consumed once."""

    type = "classic"

    def __init__(
        self, vhost: VirtualHost, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table,
        owner: Connection | None,
    ) -> None:
        super().__init__(
            vhost, name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments, owner=owner
        )
        self.ready: deque[Message] = deque()
        self.returned: list[tuple[int, Message]] = []  # a heap by position
        self.position = 0  # of the first message in `ready`
        exchange, key = arguments.get("x-dead-letter-exchange"), arguments.get("x-dead-letter-routing-key")
        self.dead_letter_exchange = exchange if isinstance(exchange, str) else None
        self.dead_letter_routing_key = key if isinstance(key, str) else None

    @property
    def message_count(self) -> int:
        return len(self.ready) + len(self.returned)

    def publish(self, message: Message) -> None:
        self.ready.append(message)
        if not self.scheduled:
            self.scheduled = True
            self.vhost.node.scheduled.append(self)

    def deliver(self) -> None:
        ready, returned = self.ready, self.returned
        while ready or returned:
            turn = self.next_consumer()
            if turn is None:
                return
            consumer, room = turn
            if returned:
                position, message = heapq.heappop(returned)
                consumer.redeliver(position, message)
            else:
                # Several consumers take strict turns, as with RabbitMQ; a single one takes all its window holds.
                count = min(room, len(ready)) if len(self.consumers) == 1 else 1
                self.position += consumer.feed(ready, self.position, count)

    def take(self) -> tuple[int, Message, bool] | None:
        if self.returned:
            return *heapq.heappop(self.returned), True
        if self.ready:
            self.position += 1
            return self.position - 1, self.ready.popleft(), False
        return None

    def requeue(self, entries: list[tuple[int, Message]]) -> None:
        if not self.deleted:
            for entry in entries:
                heapq.heappush(self.returned, entry)
            self.schedule()

    def reject(self, entries: list[tuple[int, Message]]) -> None:
        if self.dead_letter_exchange is not None and not self.deleted:
            for _, message in entries:
                self.vhost.dead_letter(self, message, "rejected")

    def purge(self) -> int:
        count = self.message_count
        self.position += len(self.ready)
        self.ready.clear()
        self.returned.clear()
        return count
