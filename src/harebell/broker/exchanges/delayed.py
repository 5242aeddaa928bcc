"""What delayed exchanges hold back: one `Delays` for each, with all its messages in one heap behind one timer.

Rules (those of RabbitMQ's plugin, but where said): a message is routed when its time is over, by the bindings of that
moment; what then reaches no queue is dropped, and never returned as mandatory, because it was accepted when it was
published. Deleting the exchange drops what it holds.

Beyond the plugin: a message that carries an id (its header `x-delay-id`, a string, or else its property message_id)
can be taken back before its time (`revoke`), and `len` says how many there are, cheap for hundreds of thousands. The
persistent messages of a durable exchange outlive the broker, in a journal as a durable queue's; what is due while the
broker is down goes on when it comes back. A message leaves the journal when it is safe where it went.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Forwarding, hashed_properties
from harebell.broker.message import MarkedMessage, Message
from harebell.broker.store.journal import Journal
from harebell.broker.timers import Timer, Timers
from harebell.protocol.v091 import Content
from harebell.protocol.v091.splice import replace_properties
from harebell.routing.exchanges.storing_exchanges import DelayedMessageExchange

__all__ = ["Delayed", "Delays", "Hold"]

DELAY_ID: Final = "x-delay-id"
SLACK: Final = 1024  # entries of messages taken back, before it is worth while to clear them away


class Delayed:
    """One message that is held back.

    due      when it goes on, in milliseconds of the node's clock
    number   in the order of publishing, which decides between equals
    delay    how long it is held, in milliseconds, as its publisher said
    message  None once it was taken back
    keys     what it is routed by
    delay_id what it can be taken back by, or None
    """

    __slots__ = ("delay", "delay_id", "due", "keys", "message", "number")

    def __init__(
        self, due: int, number: int, delay: int, message: Message, keys: tuple[str, ...], delay_id: str | None
    ) -> None:
        self.due, self.number, self.delay, self.keys, self.delay_id = due, number, delay, keys, delay_id
        self.message: Message | None = message

    def __lt__(self, other: Delayed) -> bool:
        return (self.due, self.number) < (other.due, other.number)


class Home(Forwarding, Protocol):
    """A virtual host, as far as a delayed exchange needs it."""

    batch: Batch
    timers: Timers


class Delays:
    """The messages that one exchange holds back."""

    def __init__(self, vhost: Home, exchange: str) -> None:
        self._vhost = vhost
        self._exchange = exchange
        self._journal: Journal | None = None
        self._heap: list[Delayed] = []
        self._by_id: dict[str, list[Delayed]] = {}
        self._number = 0  # of the next message
        self._count = 0
        self._timer: Timer | None = None
        self.deleted = False

    def __len__(self) -> int:
        return self._count

    def pending(self) -> Iterator[Delayed]:
        """What is held back, in the order in which it goes on."""
        return (entry for entry in sorted(self._heap) if entry.message is not None)

    def hold(self, message: Message, delay: int, keys: tuple[str, ...]) -> None:
        """Keep a message for `delay` milliseconds."""
        if self.deleted:
            return  # since a transaction was routed here
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
        heapq.heappush(self._heap, entry)
        if delay_id is not None:
            self._by_id.setdefault(delay_id, []).append(entry)
        self._arm()

    def revoke(self, delay_id: str) -> int:
        """Take back the messages of this id; how many."""
        entries = self._by_id.pop(delay_id, [])
        for entry in entries:
            entry.message = None
            if self._journal is not None:
                self._journal.settle(entry.number)
        self._count -= len(entries)
        if len(self._heap) > 2 * self._count + SLACK:
            self._heap = [entry for entry in self._heap if entry.message is not None]
            heapq.heapify(self._heap)
        self._arm()
        return len(entries)

    def forget(self) -> None:
        """The exchange is deleted: drop everything."""
        self.deleted = True
        self._heap.clear()
        self._by_id.clear()
        self._count = 0
        self._arm()
        if self._journal is not None:
            self._journal.delete()
            self._journal = None

    # -- on disk -------------------------------------------------------------------------------------------------

    def use_journal(self, journal: Journal, *, suspect: bool = False) -> None:
        """From now on persistent messages are on disk too, and those that are there are held back."""
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
        """Unused: nothing reads what is held back."""

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _arm(self) -> None:
        """Have one timer, for the first message that was not taken back."""
        heap = self._heap
        while heap and heap[0].message is None:
            heapq.heappop(heap)
        due = heap[0].due if heap else None
        if self._timer is not None:
            if self._timer.deadline == due:
                return
            self._timer.cancel()
        self._timer = None if due is None else self._vhost.timers.at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._vhost.timers.now()
        try:
            while self._heap and self._heap[0].due <= now:
                self._release(heapq.heappop(self._heap))
        finally:
            self._arm()

    def _release(self, entry: Delayed) -> None:
        message = entry.message
        if message is None:
            return
        self._count -= 1
        if entry.delay_id is not None:
            same = self._by_id[entry.delay_id]
            same.remove(entry)
            if not same:
                del self._by_id[entry.delay_id]
        vhost, source = self._vhost, message.content
        properties = source.decode_properties()
        headers = dict(properties.headers or {})
        headers["x-delay"] = -entry.delay  # what the plugin leaves for consumers to see
        properties.headers = headers
        frames = replace_properties(source.frames, properties)
        content = Content(source.channel, source.method, frames, source.body_size)
        released = MarkedMessage(
            message.address, content, message.keys, message.bcc, died=message.died, ttl=message.ttl
        )
        route = vhost.router.route_keys(
            self._exchange, entry.keys, lambda: headers, lambda: hashed_properties(properties), released=True
        )
        for name in route.queues:
            queue = vhost.queues[name]
            if released.ttl is not None:
                queue.enrich()
            queue.publish(released)
        for sink in vhost.exchange_sinks(route, entry.keys):
            sink.publish(released)
        if self._journal is not None:
            vhost.batch.when_safe(partial(self._journal.settle, entry.number))


class Hold:
    """A delayed exchange as something that takes one message: `delay` milliseconds later it goes on by `keys`."""

    stored = False

    def __init__(self, delays: Delays, delay: int, keys: tuple[str, ...]) -> None:
        self._delays, self._delay, self._keys = delays, delay, keys

    def publish(self, message: Message) -> bool:
        self._delays.hold(message, self._delay, self._keys)
        return True

    def can_deliver(self) -> bool:
        return False

    def enrich(self) -> None:
        """Nothing expires here."""
