"""Queues: what all kinds share, and the classic queue with the delivery path.

A classic queue is plain until something asks for more. Plain, it is a deque of messages that nobody has seen (`ready`)
and a heap of those that came back (`returned`), which go first: they keep the position they had, so a requeued message
stands where it stood (RabbitMQ does the same). Positions count messages; nothing needs to be stored for them.

A setting (a TTL, a limit, priorities) or a message with an expiration turns `ready` into a `Backlog`, and `publish`
takes the whole delivery path:

    decorators judge it (a duplicate? over the limit?) -> attempt delivery -> discard when its time is up
    -> enqueue -> decorators are told (drop what is over the limit) -> drop what has expired

Messages of classic queues are in memory. It knows no sockets and no wire format.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from warren.broker.backlog import Backlog
from warren.broker.consumer import Consumer
from warren.broker.consumers import Consumers
from warren.broker.decorators import DecoratorFactory, QueueDecorator, Verdict
from warren.broker.message import Held, Message
from warren.broker.settings import delivery_limit, is_plain, retry_delay
from warren.broker.statistics import QueueCounts
from warren.broker.timers import Timer
from warren.errors import AccessRefused, ResourceLocked
from warren.protocol.v091 import Table
from warren.routing import Reason
from warren.routing.settings import QueueSettings

if TYPE_CHECKING:
    from warren.broker.connection import Connection
    from warren.broker.vhost import VirtualHost

__all__ = ["Back", "ClassicQueue", "Queue"]

Back: TypeAlias = "tuple[int, Message | Held]"  # what was delivered: its position, and the message


class Queue(ABC):
    """A queue of any type: identity, ownership, consumers in turn."""

    type: str
    stored = False  # whether a publisher confirm has to wait for the disk

    def __init__(
        self, vhost: VirtualHost, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table,
        owner: Connection | None, settings: QueueSettings,
    ) -> None:  # fmt: skip
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.owner = owner  # the connection of an exclusive queue
        self.settings = settings
        self.counts = QueueCounts()
        self.consumers = Consumers(single=bool(self.settings.single_active_consumer))
        self.scheduled = False
        self.deleted = False
        self.decorators: tuple[QueueDecorator, ...] = ()
        self.judges: tuple[QueueDecorator, ...] = ()  # the decorators that have a say about each message
        self._decorated: dict[DecoratorFactory, QueueDecorator] = {}
        self._lease: Timer | None = None
        self.renew_lease()
        if self.settings.consumer_timeout is not None:
            vhost.node.watch_consumers(self.settings.consumer_timeout)

    def __str__(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost.name}'"

    # -- what the kinds differ in --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def message_count(self) -> int:
        """Messages ready for delivery."""

    @abstractmethod
    def publish(self, message: Message) -> bool:
        """Take a message, or refuse it (False); delivery follows at the end of the batch."""

    @abstractmethod
    def deliver(self) -> None:
        """Give consumers what their windows take."""

    @abstractmethod
    def take(self) -> Held | None:
        """The next message, for basic.get."""

    @abstractmethod
    def requeue(self, entries: Iterable[Back]) -> None:
        """Put delivered messages back where they stood."""

    @abstractmethod
    def reject(self, entries: Iterable[Back]) -> None:
        """Drop delivered messages: dead-letter them where the queue says so."""

    @abstractmethod
    def purge(self) -> int:
        """Drop the ready messages; how many."""

    @abstractmethod
    def can_deliver(self) -> bool:
        """Whether a message published now would go to a consumer at once."""

    def enrich(self) -> None:  # noqa: B027  a hook
        """A message is coming that may leave from the middle of the queue."""

    def check_consume(self, no_ack: bool, prefetch: int) -> None:  # noqa: B027  a hook
        """Raise when this kind of queue cannot serve such a consumer."""

    def check_negative(self, methods: str) -> None:  # noqa: B027  a hook
        """Raise when this kind of queue takes nothing back: no basic.nack, reject or recover."""

    # -- decorators ----------------------------------------------------------------------------------------------

    def decorate(self, factories: Iterable[DecoratorFactory]) -> None:
        """Attach what the factories make of the queue, of each at most one."""
        attached = []
        for factory in factories:
            decorator = None if factory in self._decorated else factory(self)
            if decorator is not None:
                self._decorated[factory] = decorator
                attached.append(decorator)
        self.decorators = tuple(self._decorated.values())
        self.judges = tuple(decorator for decorator in self.decorators if decorator.per_message)
        if self.judges:
            self.enrich()
        for decorator in attached:
            decorator.started()

    def _judge(self, message: Message) -> Verdict:
        """What the decorators make of a message that comes; they are told of it."""
        for judge in self.judges:
            verdict = judge.judge(message)
            if verdict is not Verdict.ADMIT:
                self._tell_dropped(message, verdict.value)
                return verdict
        for judge in self.judges:
            judge.accepted(message)
        return Verdict.ADMIT

    def _tell_enqueued(self) -> None:
        for judge in self.judges:
            judge.enqueued()

    def _tell_dropped(self, message: Message, reason: str) -> None:
        for decorator in self.decorators:
            decorator.dropped(message, reason)

    def _tell_consumers_changed(self) -> None:
        for decorator in self.decorators:
            decorator.consumers_changed()

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
        alone = consumer.exclusive and (self.consumers or self.consumers.single)
        if alone or self.consumers.exclusive:
            raise AccessRefused(f"{self} in exclusive use")
        self.consumers.add(consumer)
        self.renew_lease()
        self.schedule()
        self._tell_consumers_changed()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Forget a consumer; an auto-delete queue goes with its last one."""
        if self.consumers.remove(consumer) and not self.deleted:
            if self.auto_delete and not self.consumers:
                self.vhost.delete_queue(self)
            else:
                self.renew_lease()
                self.schedule()  # where only one is active at a time, another one is now
                self._tell_consumers_changed()

    def renew_lease(self) -> None:
        """The queue is used: x-expires counts from now. It does not count while there are consumers."""
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        expires = self.settings.expires
        if expires is not None and not self.consumers:
            timers = self.vhost.node.timers
            self._lease = timers.at(timers.now() + expires, self._lease_over)

    def _lease_over(self) -> None:
        if not self.deleted:
            self.vhost.delete_queue(self)

    def reconfigure(self, settings: QueueSettings) -> None:
        """Other settings are in force from now on: a policy came or went."""
        self.settings = settings
        self.renew_lease()
        if settings.consumer_timeout is not None:
            self.vhost.node.watch_consumers(settings.consumer_timeout)
        self.decorate(self.vhost.node.decorators)
        for decorator in self.decorators:
            decorator.settings_changed()

    def forget(self) -> None:
        """The queue was deleted: let go of its timers and consumers."""
        self.deleted = True
        self.consumers.clear()
        if self._lease is not None:
            self._lease.cancel()


class ClassicQueue(Queue):
    """A queue whose messages are consumed once. `type` is what it was declared as: classic or quorum."""

    def __init__(
        self, vhost: VirtualHost, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table,
        owner: Connection | None, settings: QueueSettings,
    ) -> None:  # fmt: skip
        self.type = settings.queue_type
        super().__init__(
            vhost, name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=arguments,
            owner=owner, settings=settings,
        )  # fmt: skip
        self.ready: deque[Message] = deque()
        self.returned: list[Held] = []  # a heap by position
        self.backlog: Backlog | None = None  # in place of the two above once the queue is not plain
        self.position = 0  # of the first message in `ready`; of the next message with a backlog
        self._expiry: Timer | None = None
        if not is_plain(self.settings):
            self.enrich()

    @property
    def message_count(self) -> int:
        return len(self.ready) + len(self.returned) if self.backlog is None else self.backlog.count

    def enrich(self) -> None:
        """From here on messages may leave from the middle."""
        if self.backlog is None:
            backlog = self.backlog = Backlog(self.settings.max_priority or 0)
            for held in self.returned:
                backlog.put_back(held)
            for message in self.ready:
                backlog.push(Held(message, self.position))
                self.position += 1
            self.returned.clear()
            self.ready.clear()

    def reconfigure(self, settings: QueueSettings) -> None:
        if not is_plain(settings):
            self.enrich()
        super().reconfigure(settings)

    # -- the delivery path ---------------------------------------------------------------------------------------

    def publish(self, message: Message) -> bool:
        if self.backlog is None:
            self.ready.append(message)
            if not self.scheduled:
                self.scheduled = True
                self.vhost.node.scheduled.append(self)
            return True
        return self._deliver_or_enqueue(message, self.backlog)

    def _deliver_or_enqueue(self, message: Message, backlog: Backlog) -> bool:
        if self.deleted:
            return True  # since a transaction was routed here
        settings, timers = self.settings, self.vhost.node.timers
        if self.judges and (verdict := self._judge(message)) is not Verdict.ADMIT:
            return verdict is Verdict.DISCARD
        ttl = _least(message.ttl, settings.message_ttl)
        held = Held(message, self.position, 0 if ttl is None else timers.now() + ttl, self._priority(message))
        self.position += 1
        if ttl == 0:
            if not self._attempt_delivery(held):
                self.drop(held, "expired")
            return True
        backlog.push(held)
        self._tell_enqueued()
        self._arm_expiry(backlog)
        self.schedule()
        return True

    def can_deliver(self) -> bool:
        self.deliver()
        return not self.message_count and any(consumer.room() > 0 for consumer in self.consumers)

    def _attempt_delivery(self, held: Held) -> bool:
        """Give a message that cannot wait to a consumer that is ready, if nothing waits before it."""
        self.deliver()
        if self.message_count or (turn := self.consumers.next()) is None:
            return False
        turn[0].redeliver(held)
        return True

    def _priority(self, message: Message) -> int:
        top = self.settings.max_priority
        if top is None:
            return 0
        return min(message.content.decode_properties().priority or 0, top)

    def drop(self, held: Held, reason: Reason) -> None:
        """A message leaves for another reason than an acknowledgement: dead-letter it where the queue says so."""
        self._tell_dropped(held.message, reason)
        if self.settings.dead_letter_exchange is not None:
            self.vhost.dead_letter(self, held.message, reason)

    # -- expiry --------------------------------------------------------------------------------------------------

    def _arm_expiry(self, backlog: Backlog) -> None:
        deadline = backlog.next_deadline
        if deadline and (self._expiry is None or self._expiry.deadline > deadline):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self.vhost.node.timers.at(deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if not self.deleted and self.backlog is not None:
            self._drop_expired(self.backlog)
            self._arm_expiry(self.backlog)

    def _drop_expired(self, backlog: Backlog) -> None:
        if backlog.next_deadline:
            for held in backlog.expired(self.vhost.node.timers.now()):
                self.drop(held, "expired")

    # -- consuming -----------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        if self.backlog is not None or self.vhost.trace is not None:
            self._deliver_one_by_one()
            return
        ready, returned, consumers = self.ready, self.returned, self.consumers
        while ready or returned:
            turn = consumers.next()
            if turn is None:
                return
            consumer, room = turn
            if returned:
                consumer.redeliver(heapq.heappop(returned))
            else:
                # Several consumers take strict turns, as with RabbitMQ; a single one takes all its window holds.
                count = min(room, len(ready)) if len(consumers) == 1 or consumers.single else 1
                self.position += consumer.feed(ready, self.position, count)

    def _deliver_one_by_one(self) -> None:
        if self.backlog is not None:
            self._drop_expired(self.backlog)
        while self.message_count and (turn := self.consumers.next()) is not None:
            held = self._pop()
            if held is not None:
                turn[0].redeliver(held)

    def take(self) -> Held | None:
        self.renew_lease()
        if self.backlog is not None:
            self._drop_expired(self.backlog)
        return self._pop()

    def _pop(self) -> Held | None:
        if self.backlog is not None:
            return self.backlog.pop()
        if self.returned:
            return heapq.heappop(self.returned)
        if self.ready:
            self.position += 1
            return Held(self.ready.popleft(), self.position - 1)
        return None

    def requeue(self, entries: Iterable[Back]) -> None:
        if self.deleted:
            return
        limit = delivery_limit(self.settings)
        for position, message in entries:
            held = message if isinstance(message, Held) else Held(message, position)
            held.count += 1
            if limit is not None and held.count > limit:
                self.drop(held, "delivery_limit")
            elif delay := retry_delay(self.settings, held.count):
                self._put_back_later(held, delay)
            elif self.backlog is None:
                heapq.heappush(self.returned, held)
            else:
                self.backlog.put_back(held)
        if self.backlog is not None:
            self._tell_enqueued()
            self._arm_expiry(self.backlog)
        self.schedule()

    def _put_back_later(self, held: Held, delay: int) -> None:
        """Delayed retry: until then the message is neither ready nor anybody's."""

        def put_back() -> None:
            if not self.deleted and self.backlog is not None:
                self.backlog.put_back(held)
                self._tell_enqueued()
                self._arm_expiry(self.backlog)
                self.schedule()

        timers = self.vhost.node.timers
        timers.at(timers.now() + delay, put_back)

    def reject(self, entries: Iterable[Back]) -> None:
        if not self.deleted and (self.decorators or self.settings.dead_letter_exchange is not None):
            for position, message in entries:
                self.drop(message if isinstance(message, Held) else Held(message, position), "rejected")

    def purge(self) -> int:
        count = self.message_count
        if self.backlog is not None:
            self.backlog.clear()
        self.position += len(self.ready)
        self.ready.clear()
        self.returned.clear()
        return count

    def forget(self) -> None:
        super().forget()
        if self._expiry is not None:
            self._expiry.cancel()
        self.purge()


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
