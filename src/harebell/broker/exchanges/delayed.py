"""The messages that delayed exchanges hold: one `Delays` for each exchange, with one heap and one timer.

Rules (those of RabbitMQ's plugin, unless said otherwise): a message is routed when its delay is over, by the bindings
of that moment. If it then reaches no queue it is dropped, and never returned as mandatory, because the exchange
accepted it when it was published. Deleting the exchange drops its messages.

Beyond the plugin: a message with an id (its header `x-delay-id`, a string, or else its property message_id) can be
revoked before its time (`revoke`), and `len` is the number of held messages, cheap for hundreds of thousands. The
persistent messages of a durable exchange survive a restart, in a journal as a durable queue's; those that come due
while the broker is down are routed when it starts. A message leaves the journal when it is safe in its queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from harebell.broker.batch import Batch
from harebell.broker.fan_out import publish_in_steps
from harebell.broker.forwarding import Forwarding, route_message
from harebell.broker.message import MarkedMessage, Message
from harebell.broker.slices import Work
from harebell.broker.store.queue_log.journal import Journal
from harebell.broker.swept import Heap
from harebell.broker.timers import Timer, Timers
from harebell.protocol.v091 import Content
from harebell.protocol.v091.splice import replace_properties
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange
from harebell.routing.steps import Steps

__all__ = ["Delayed", "Delays", "Hold"]

DELAY_ID: Final = "x-delay-id"
REVOKED: Final = 64  # messages revoked in one step
SLACK: Final = 1024  # entries of revoked messages before they are swept


class Delayed:
    """One held message.

    due      when it is routed, in milliseconds of the node's clock
    number   its place in the order of publishing, which decides between equal times
    delay    the delay that its publisher asked for, in milliseconds
    message  None once it was revoked
    keys     the keys that it is routed by
    delay_id the id that it can be revoked by, or None
    """

    __slots__ = ("delay", "delay_id", "due", "keys", "message", "number")

    def __init__(
        self, due: int, number: int, delay: int, message: Message, keys: tuple[str, ...], delay_id: str | None
    ) -> None:
        self.due, self.number, self.delay, self.keys, self.delay_id = due, number, delay, keys, delay_id
        self.message: Message | None = message

    def __lt__(self, other: Delayed) -> bool:
        return (self.due, self.number) < (other.due, other.number)


def _is_revoked(entry: Delayed) -> bool:
    return entry.message is None


class Home(Forwarding, Protocol):
    """The part of a virtual host that a delayed exchange uses."""

    batch: Batch
    timers: Timers


class Delays:
    """The messages that one delayed exchange holds."""

    def __init__(self, vhost: Home, exchange: str) -> None:
        self._vhost = vhost
        self._exchange = exchange
        self._journal: Journal | None = None
        self._heap: Heap[Delayed] = Heap(_is_revoked)
        self._by_id: dict[str, dict[int, Delayed]] = {}  # the second key is the number
        self._number = 0  # of the next message
        self._count = 0
        self._timer: Timer | None = None
        self._releasing = False
        self.deleted = False

    def __len__(self) -> int:
        return self._count

    def pending(self) -> Iterator[Delayed]:
        """The held messages, in the order in which they are routed."""
        return iter(sorted(self._heap))

    def entries(self) -> list[Delayed]:
        """The held messages, in no order: cheap for hundreds of thousands. One that has left since has no `message`."""
        return list(self._heap)

    def hold(self, message: Message, delay: int, keys: tuple[str, ...]) -> None:
        """Hold a message for `delay` milliseconds."""
        if self.deleted:
            return  # the exchange was deleted after a transaction was routed
        due = self._vhost.timers.now() + delay
        if self._journal is not None:
            address, content = message.address, message.content
            kept = MarkedMessage(address, content, keys, message.bcc, died=message.died, ttl=message.ttl)
            self._journal.store(self._number, kept, due)
        self._add(message, delay, due, keys)

    def _add(self, message: Message, delay: int, due: int, keys: tuple[str, ...]) -> None:
        properties = message.content.decode_properties()
        header = (properties.headers or {}).get(DELAY_ID)
        delay_id = header if isinstance(header, str) else properties.message_id
        entry = Delayed(due, self._number, delay, message, keys, delay_id)
        self._number += 1
        self._count += 1
        self._heap.push(entry)
        if delay_id is not None:
            self._by_id.setdefault(delay_id, {})[entry.number] = entry
        self._arm()

    def revoke(self, delay_id: str) -> Steps[int]:
        """Drop the messages with this id, in steps. Returns their number."""
        count = 0
        for entry in tuple(self._by_id.get(delay_id, {}).values()):
            if entry.message is None or self.deleted:
                continue  # it has left since
            self._forget_id(entry)
            self._drop(entry)
            count += 1
            if not count % REVOKED:
                self._arm()
                yield
        self._arm()
        return count

    def revoke_entry(self, entry: Delayed) -> bool:
        """Drop one message. Returns False when it has left already."""
        if entry.message is None or self.deleted:
            return False
        self._forget_id(entry)
        self._drop(entry)
        self._arm()
        return True

    def _drop(self, entry: Delayed) -> None:
        entry.message = None
        self._count -= 1
        if self._journal is not None:
            self._journal.settle(entry.number)
        if len(self._heap) > 2 * self._count + SLACK:
            self._heap.sweep()

    def _forget_id(self, entry: Delayed) -> None:
        if entry.delay_id is not None:
            same = self._by_id[entry.delay_id]
            del same[entry.number]
            if not same:
                del self._by_id[entry.delay_id]

    def forget(self) -> None:
        """Drop everything: the exchange is deleted."""
        journal = self._journal
        self.abandon()
        if journal is not None:
            self._vhost.batch.remove_after_commit(journal.delete())

    def abandon(self) -> None:
        """Hold nothing any more, and release nothing; what is on disk stays."""
        self.deleted, self._journal = True, None
        self._vhost.batch.slices.discard(*self._heap.containers())
        self._heap, self._by_id, self._count = Heap(_is_revoked), {}, 0
        self._arm()

    # -- on disk -------------------------------------------------------------------------------------------------

    def use_journal(self, journal: Journal, *, suspect: bool = False) -> None:
        """Store persistent messages in `journal` from now on, and hold those that it has."""
        self._journal = journal
        journal.recover(suspect=suspect)
        now = self._vhost.timers.now()
        while run := journal.next_run():
            for stored in run:
                held = journal.held(stored)
                self._number = held.position
                message = held.message
                delay = DelayedMessageExchange.delay(message.content.decode_properties().headers or {})
                self._add(message, delay, max(now, held.deadline), message.keys or (message.address.routing_key,))
        self._number = max(self._number, journal.next)

    def flush(self) -> int:
        return 0 if self._journal is None else self._journal.flush()

    def advance(self) -> None:
        """Do nothing: held messages are not read from the journal."""

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _arm(self) -> None:
        """Set the one timer, to the first message that was not revoked."""
        if self._releasing:
            return  # it is set when that is done
        first = self._heap.first()
        due = None if first is None else first.due
        if self._timer is not None:
            if self._timer.deadline == due:
                return
            self._timer.cancel()
        self._timer = None if due is None else self._vhost.timers.at(due, self._ring)

    def _ring(self) -> None:
        self._timer, self._releasing = None, True
        self._vhost.batch.slices.run(self._release_due())

    def _release_due(self) -> Work:
        """Route the messages that are due, one after the other, each in steps where it goes to many queues."""
        try:
            while (first := self._heap.first()) is not None and first.due <= self._vhost.timers.now():
                yield from self._release(self._heap.pop())
                yield
        finally:
            self._releasing = False
            self._arm()

    def _release(self, entry: Delayed) -> Work:
        message = entry.message
        if message is None:
            return
        entry.message = None  # it is not held any more, for one who has the entry from a list
        self._count -= 1
        self._forget_id(entry)
        vhost, source = self._vhost, message.content
        properties = source.decode_properties()
        headers = dict(properties.headers or {})
        headers["x-delay"] = -entry.delay  # as the plugin leaves it for consumers
        properties.headers = headers
        frames = replace_properties(source.frames, properties)
        content = Content(source.channel, source.method, frames, source.body_size)
        released = MarkedMessage(
            message.address, content, message.keys, message.bcc, died=message.died, ttl=message.ttl
        )
        route = route_message(
            vhost.router,
            self._exchange,
            entry.keys,
            lambda: properties,
            lambda: source.body,
            released=True,
            lenient=True,
        )
        queues = vhost.receivers(route.queues)
        if released.ttl is not None:
            for queue in queues:
                queue.enrich()
        yield from publish_in_steps(vhost.batch, released, (*queues, *vhost.exchange_sinks(route, entry.keys)))
        if self._journal is not None:
            vhost.batch.when_safe(partial(self._journal.settle, entry.number))


class Hold:
    """A sink that holds a message in a delayed exchange, and routes it by `keys` after `delay` milliseconds."""

    stored = False

    def __init__(self, delays: Delays, delay: int, keys: tuple[str, ...]) -> None:
        self._delays, self._delay, self._keys = delays, delay, keys

    def publish(self, message: Message) -> bool:
        self._delays.hold(message, self._delay, self._keys)
        return True

    def can_deliver(self, message: Message) -> bool:
        return False

    def enrich(self) -> None:
        """Do nothing: messages do not expire here."""
