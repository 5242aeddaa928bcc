"""The base of all queues: identity, ownership, consumers, decorators, and x-expires.

A queue uses its consumers by `consumer.Consumer`, and its virtual host by `Home`: the batch, the timers, and the
deletion of a queue. It knows no node, no dialect and no sockets. The kinds of queues differ in where their messages are
and in how messages leave.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

from harebell.broker.batch import Batch
from harebell.broker.counts import Lasting, QueueCounts
from harebell.broker.forwarding import Forwarding
from harebell.broker.message import Given, Held, Message
from harebell.broker.queues.consumer import Consumer, Getter, Starving
from harebell.broker.queues.decorators import QueueDecorator, Verdict, overrides
from harebell.broker.queues.turns import Consumers
from harebell.broker.slices import Work
from harebell.broker.timers import Timer, Timers
from harebell.errors import AccessRefused, ResourceLocked
from harebell.protocol.v091 import Table
from harebell.routing.settings import QueueSettings
from harebell.routing.steps import complete

__all__ = ["NO_LOCAL", "Back", "DecoratorFactory", "Home", "Owner", "Queue"]

Back: TypeAlias = "tuple[int, Given]"  # a delivery that returns: its position, and the message
DecoratorFactory: TypeAlias = "Callable[[Queue], QueueDecorator | None]"


NO_LOCAL: Final = "no-local"
"""The argument of Qpid's for a queue that takes no messages from the connection that has it for itself."""


def _is_set(value: object) -> bool:
    return value.lower() in ("true", "1") if isinstance(value, str) else bool(value)


class Home(Forwarding, Protocol):
    """The part of a virtual host that a queue uses: its dead letters are forwarded in it."""

    name: str
    batch: Batch
    timers: Timers
    lasting: Lasting

    @property
    def decorators(self) -> Sequence[DecoratorFactory]:
        """The factories of decorators, called when a queue's settings change."""

    @property
    def trace(self) -> object | None:
        """Not None while the firehose is on: then each delivery is traced."""

    def deleting(self, queues: Iterable[Queue]) -> Work:
        """Delete these queues, in steps."""

    def watch_consumers(self, timeout: int) -> None:
        """Check often enough for a queue with this consumer timeout, in milliseconds."""


class Owner(Protocol):
    """The connection of an exclusive queue, or in AMQP 0-10 the session."""

    pid: str
    user: str
    exclusive_queues: list[Queue]


class Queue:  # not an ABC, whose isinstance takes longer, and which mypyc does not make right
    """A queue of any type: identity, ownership, consumers in turn."""

    type: str
    stored = False  # whether a publisher confirm has to wait for the disk
    searching = False  # whether a consumer with a selector has not gone through all messages yet

    def __init__(
        self, vhost: Home, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table,
        owner: Owner | None, settings: QueueSettings,
    ) -> None:  # fmt: skip
        self.vhost = vhost
        self.batch, self.timers = vhost.batch, vhost.timers
        self.name = name
        self.created_at = time.time_ns() // 1_000_000  # or when the broker recovered it; milliseconds since 1970
        self.folder = ""  # of its messages on disk, as in the catalog: no other queue ever has it; "": it is in neither
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.owner = owner  # the connection or the session of an exclusive queue
        self.no_local = _is_set(arguments.get(NO_LOCAL))  # its owner's own messages do not come in
        self.ends_with_owner = False  # an auto-delete queue that is deleted with its owner, not with its last consumer
        self.settings = settings
        self.counts = QueueCounts()
        self.counts_010 = vhost.lasting.amqp010[self.type]  # of all queues of the type
        self.consumers = Consumers(single=bool(self.settings.single_active_consumer))
        self.starving: tuple[Starving, ...] = ()  # consumers for which the next message costs too much
        self.scheduled = False
        self.deleted = False
        self._holds = 0
        self.decorators: tuple[QueueDecorator, ...] = ()
        self.judges: tuple[QueueDecorator, ...] = ()  # the decorators that decide about each message
        self._judging: tuple[Callable[[Message], Verdict], ...] = ()  # their methods, where they override them
        self._accepting: tuple[Callable[[Message], None], ...] = ()
        self.enqueueing: tuple[Callable[[], None], ...] = ()
        self._dropping: tuple[Callable[[Message, str], None], ...] = ()
        self._decorated: dict[DecoratorFactory, QueueDecorator] = {}
        self._lease: Timer | None = None
        self._visits = 0  # consumers so far
        self.renew_lease()
        if self.settings.consumer_timeout is not None:
            vhost.watch_consumers(self.settings.consumer_timeout)

    def __str__(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost.name}'"

    # -- what the kinds differ in --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def message_count(self) -> int:
        """The number of messages ready for delivery."""

    @abstractmethod
    def publish(self, message: Message) -> bool:
        """Take a message, or refuse it (False); delivery follows at the end of the batch."""

    def publish_all(self, messages: list[Message]) -> list[int]:
        """Take messages, or refuse some: the places of these in the list. Delivery follows at the end of the batch."""
        return [place for place, message in enumerate(messages) if not self.publish(message)]

    @abstractmethod
    def deliver_share(self) -> bool:
        """Deliver to consumers up to their windows, for one share of time. Returns whether there is no more to do."""

    def postpones(self, consumer: Consumer) -> bool:
        """Whether the consumer gets nothing now, though the queue may have messages for it: later it is served."""
        return self.on_hold

    def deliver(self) -> None:
        """Deliver to consumers up to their windows; what one with a selector has to search for, later."""
        while not self.deliver_share():
            if self.searching:
                self.schedule()
                return

    @abstractmethod
    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        """Take the next message for basic.get; `getter` will acknowledge it, None: it needs no acknowledgement.

        A message that does not fit (`fits`) is requeued, with or without a getter.
        """

    @abstractmethod
    def requeue(self, entries: Iterable[Back], *, failed: bool, counted: bool = True) -> None:
        """Return delivered messages to their old places.

        `failed`: they were rejected, or taken from their consumer; otherwise it gave them back (for delayed retry).
        Unless `counted`, the delivery does not count, as if there had been none.
        """

    @abstractmethod
    def reject(self, entries: Iterable[Back]) -> None:
        """Drop delivered messages, or dead-letter them by the queue's settings."""

    @abstractmethod
    def purging(self) -> Generator[None, None, int]:
        """Drop the ready messages, in steps. Returns their number."""

    def purge(self) -> int:
        """Drop the ready messages. Returns their number."""
        return complete(self.purging())

    @abstractmethod
    def can_deliver(self, message: Message) -> bool:
        """Whether the message, published now, would go to a consumer at once."""

    @property
    def asks_all(self) -> bool:
        """Whether each message that comes is offered to all consumers in turn, so that many messages take long."""
        return False

    def refused(self, position: int) -> None:
        """Count a consumer whose frames the message at `position` does not fit; the message comes back by `requeue`."""

    def drop_expired(self) -> bool:
        """Drop expired messages, even where the timer is late, but one share at most. Returns whether none is left."""
        return True

    def drop_all_expired(self) -> None:
        while not self.drop_expired():
            pass

    @property
    def delayed_count(self) -> int:
        """The number of messages that came back and are not ready yet (delayed retry)."""
        return 0

    @property
    def dead_letter_count(self) -> int:
        """The number of messages that died here and are not safe elsewhere yet (at-least-once dead-lettering)."""
        return 0

    @property
    def is_empty(self) -> bool:
        """Whether no message waits here: ready, for its delayed retry, or for a place as a dead letter."""
        return not (self.message_count or self.delayed_count or self.dead_letter_count)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all publications so far are durable, or the queue is deleted."""
        callback()

    def settle(self, positions: list[int]) -> None:
        """Settle the messages at these positions, which are in order: they were acknowledged."""

    def sync_settlements(self) -> None:
        """Let the sync of the batch cover what was settled and returned so far."""

    def flush(self) -> int:
        """Write the batch of a stored queue. Returns the ticket of the sync that will cover it."""
        return 0

    def advance(self) -> None:
        """Act on a finished sync."""

    def rest(self) -> None:
        """Release what an idle queue does not need: called every minute."""

    def close(self) -> None:
        """Write and sync everything: the broker stops. OSError when the disk refuses."""

    def before_requeue(self) -> None:
        """Prepare for a requeue: messages come back, and the windows of their consumers will open."""

    def enrich(self) -> None:
        """Prepare for a message that may leave from the middle of the queue."""

    def everyone(self) -> tuple[Consumer, ...]:
        """All consumers that are cancelled when the queue is deleted, browsing ones among them."""
        return tuple(self.consumers)

    def check_consume(self, no_ack: bool, prefetch: int) -> None:
        """Raise when this kind of queue cannot serve such a consumer."""

    def check_negative(self, methods: str, requeue: bool) -> None:
        """Raise when this kind of queue takes no delivery back, or drops none: no basic.nack, reject or recover."""

    def acked(self, message: Given | None) -> None:
        """Note that a delivery was acknowledged, on a channel that notifies of it (`Consumer.watch_acks`)."""

    # -- decorators ----------------------------------------------------------------------------------------------

    def decorate(self, factories: Iterable[DecoratorFactory]) -> None:
        """Attach the decorators that the factories make for the queue, at most one of each."""
        attached = []
        for factory in factories:
            decorator = None if factory in self._decorated else factory(self)
            if decorator is not None:
                self._decorated[factory] = decorator
                attached.append(decorator)
        self.decorators = tuple(self._decorated.values())
        self.judges = tuple(decorator for decorator in self.decorators if decorator.per_message)
        self._judging = tuple(judge.judge for judge in self.judges if overrides(judge, "judge"))
        self._accepting = tuple(judge.accepted for judge in self.judges if overrides(judge, "accepted"))
        self.enqueueing = tuple(judge.enqueued for judge in self.judges if overrides(judge, "enqueued"))
        self._dropping = tuple(each.dropped for each in self.decorators if overrides(each, "dropped"))
        if self.judges:
            self.enrich()
        for decorator in attached:
            decorator.started()

    def judge(self, message: Message) -> Verdict:
        """The decorators' verdict on a new message; they are notified of it."""
        for judge in self._judging:
            verdict = judge(message)
            if verdict is not Verdict.ADMIT:
                self.notify_dropped(message, verdict.value)
                return verdict
        for accepted in self._accepting:
            accepted(message)
        return Verdict.ADMIT

    def notify_enqueued(self) -> None:
        for enqueued in self.enqueueing:
            enqueued()

    def notify_returned(self) -> None:
        for judge in self.judges:
            judge.returned()

    def notify_dropped(self, message: Message, reason: str) -> None:
        for dropped in self._dropping:
            dropped(message, reason)

    def _notify_consumers_changed(self) -> None:
        for decorator in self.decorators:
            decorator.consumers_changed()

    # -- what they share -----------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Deliver at the end of the batch; any consumer may have room that had none before."""
        self.consumers.reconsider()
        self.wake()

    def reopened(self, consumer: Consumer) -> None:
        """Deliver at the end of the batch; this consumer has more room than before."""
        if consumer.aside:
            self.consumers.reopen(consumer)
        self.wake()

    def wake(self) -> None:
        """Deliver at the end of the batch; no consumer has more room than before."""
        if not self.scheduled:
            self.scheduled = True
            self.batch.scheduled.append(self)

    def look_again(self) -> None:
        """Let starving consumers look at the next message: it may be another one, which costs less."""
        starving, self.starving = self.starving, ()
        for consumer in starving:
            consumer.starved = False
        self.wake()

    @property
    def on_hold(self) -> bool:
        """Whether messages come back to the queue in slices: until all are there, it delivers none."""
        return self._holds > 0

    def hold(self) -> None:
        """Deliver nothing until `release`: messages that come back must not be overtaken."""
        self._holds += 1

    def release(self) -> None:
        """End one `hold`."""
        self._holds -= 1
        if not self.deleted:
            self.schedule()

    def check_access(self, connection: Owner | None) -> None:
        """Raise ResourceLocked unless the connection may use the queue."""
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
        self._visits += 1
        self.renew_lease()
        self.wake()
        self._notify_consumers_changed()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; an auto-delete queue is deleted with its last one."""
        if self.starving:
            self.look_again()
        if self.consumers.remove(consumer) and not self.deleted:
            if self.auto_delete and not self.consumers and not self.ends_with_owner:
                self.leave()
            else:
                self.renew_lease()
                self.schedule()  # with a single active consumer, another one is active now
                self._notify_consumers_changed()

    def renew_lease(self) -> None:
        """Restart x-expires: the queue was used. It does not run while there are consumers."""
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        expires = self.settings.expires
        if expires is not None and not self.consumers:
            self._lease = self.timers.at(self.timers.now() + expires, self._unused)

    def leave(self) -> None:
        """Delete an auto-delete queue, which nobody uses any more: now, or after its delay if nobody came."""
        delay = self.settings.auto_delete_delay
        if delay is None:
            self._unused()
        elif not self.deleted:
            self.timers.at(self.timers.now() + delay, partial(self._left, self._visits))

    def _left(self, visits: int) -> None:
        if visits == self._visits and self.owner is None:
            self._unused()

    def _unused(self) -> None:
        """Delete the queue: its last consumer has left it, or its lease is over."""
        if self.deleted:
            return
        if self.settings.orphan_exchange is not None:  # what the last consumer held comes back first, to its place
            self.batch.slices.later(self.vhost.deleting((self,)))
        else:
            self.batch.slices.run(self.vhost.deleting((self,)))

    def reconfigure(self, settings: QueueSettings) -> None:
        """Apply other settings: a policy or the queue's arguments have changed."""
        self.settings = settings
        self.consumers.set_single(bool(settings.single_active_consumer))
        self.renew_lease()
        self.schedule()
        if settings.consumer_timeout is not None:
            self.vhost.watch_consumers(settings.consumer_timeout)
        self.decorate(self.vhost.decorators)
        for decorator in self.decorators:
            decorator.settings_changed()

    def forget(self) -> None:
        """Release timers and consumers: the queue was deleted."""
        self.deleted = True
        self.consumers.clear()
        if self._lease is not None:
            self._lease.cancel()
