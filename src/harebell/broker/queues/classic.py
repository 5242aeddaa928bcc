"""The classic queue: messages that are consumed once, and their whole way through the queue.

A classic queue is plain until something asks for more. Plain, it is a deque of messages that nobody has seen (`ready`)
and a heap of those that came back (`returned`), which go first: they keep the position they had, so a requeued message
stands where it stood (RabbitMQ does the same). Positions count messages; nothing needs to be stored for them.

A setting (a TTL, a limit, priorities) or a message with an expiration turns `ready` into a `Backlog`, and `publish`
takes the whole delivery path:

    decorators judge it (a duplicate? over the limit?) -> attempt delivery -> discard when its time is up
    -> enqueue -> decorators are told (drop what is over the limit) -> drop what has expired

A durable queue has a `Journal` besides: what it holds and what leaves it is on disk, and of a long backlog only the
head is in memory. It knows no sockets and no wire format.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from harebell.broker.forwarding import Forwarding
from harebell.broker.message import Held, Message, to_held
from harebell.broker.queues.backlog import Backlog
from harebell.broker.queues.base import Back, Home, Owner, Queue
from harebell.broker.queues.consumer import OUTPUT_BYTES, Consumer, Getter
from harebell.broker.queues.dead_letters import DeadLetters, Obituary, dead_letter
from harebell.broker.queues.decorators import Verdict
from harebell.broker.queues.delayed_retry import Retries
from harebell.broker.queues.settings import delivery_limit, is_plain, keeps_dead_letters, retries_later, retry_delay
from harebell.broker.queues.turns import Consumers
from harebell.broker.store.journal import Journal
from harebell.broker.store.queue_records import Stored
from harebell.broker.timers import Timer
from harebell.protocol.v091 import Table
from harebell.routing import Reason
from harebell.routing.settings import QueueSettings

__all__ = ["ClassicHome", "ClassicQueue"]

log = logging.getLogger("harebell.broker.queue")


class ClassicHome(Home, Forwarding, Protocol):
    """A virtual host, as far as a classic queue needs it: dead letters are forwarded in it."""


class Viewer(Protocol):
    """A view of the queue, for a consumer that browses (`browse`)."""

    consumers: Consumers

    def schedule(self) -> None: ...
    def look_again(self, highest: int | None = None) -> None:
        """Messages came back, none to a place above `highest`; None: the queue is another inside."""

    def forget(self) -> None: ...


class ClassicQueue(Queue):
    """A queue whose messages are consumed once. `type` is what it was declared as: classic or quorum."""

    vhost: ClassicHome
    held_type: type[Held] = Held
    obituary: Obituary | None = None  # of the last message that died here

    def __init__(
        self, vhost: ClassicHome, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table,
        owner: Owner | None, settings: QueueSettings,
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
        self.journal: Journal | None = None  # where the queue's messages are on disk
        self.plain = True  # neither a backlog nor a journal
        self.views: list[Viewer] = []  # of consumers that browse
        self._expiry: Timer | None = None
        self._retries: Retries | None = None
        self._dead_letters: DeadLetters | None = None
        self.aside: tuple[Retries | DeadLetters, ...] = ()  # those of the two above that there are
        self._equip()

    def _equip(self) -> None:
        """Have what the settings ask for."""
        settings = self.settings
        if self._retries is None and retries_later(settings):
            self._retries = Retries(self.timers, self._retry)
        if self._dead_letters is not None:
            self._dead_letters.try_again()  # there may be another exchange now; and a last time, when it is over
        if not keeps_dead_letters(settings):
            if self._dead_letters is not None:
                self._dead_letters.forget()
            self._dead_letters = None
        elif self._dead_letters is None:
            self._dead_letters = DeadLetters(self)
        self.aside = tuple(part for part in (self._retries, self._dead_letters) if part is not None)
        if not is_plain(settings):
            self.enrich()

    @property
    def message_count(self) -> int:
        if self.backlog is not None:
            return self.backlog.count
        paged = 0 if self.journal is None else self.journal.paged
        return len(self.ready) + len(self.returned) + paged

    @property
    def delayed_count(self) -> int:
        return 0 if self._retries is None else self._retries.count

    @property
    def dead_letter_count(self) -> int:
        return 0 if self._dead_letters is None else self._dead_letters.count

    def enrich(self) -> None:
        """From here on messages may leave from the middle."""
        if self.backlog is None:
            backlog = self.backlog = Backlog(self.settings.max_priority or 0)
            for held in self.returned:
                self._put_back(held, backlog)
            for message in self.ready:
                backlog.push(Held(message, self.position, 0, self._priority(message)))
                self.position += 1
            self.returned.clear()
            self.ready.clear()
            self.plain = False
            if self.journal is not None:
                self._read_all(self.journal, backlog)
            self._views_look_again()

    def everyone(self) -> tuple[Consumer, ...]:
        return (*self.consumers, *(consumer for view in self.views for consumer in view.consumers))

    def _views_look_again(self, positions: Iterable[int] = ()) -> None:
        for view in self.views:
            view.look_again(max(positions, default=None))

    def reconfigure(self, settings: QueueSettings) -> None:
        if not is_plain(settings):
            self.enrich()
        top = settings.max_priority or 0
        if self.backlog is not None and self.backlog.top != top:
            self.backlog.relevel(top, lambda held: min(held.message.content.priority, top))
        super().reconfigure(settings)
        self._equip()

    # -- the delivery path ---------------------------------------------------------------------------------------

    def publish(self, message: Message) -> bool:
        if self.plain:
            self.ready.append(message)
            if not self.scheduled:
                self.scheduled = True
                self.batch.scheduled.append(self)
            return True
        if self.backlog is None:
            return self._store_and_enqueue(message)
        return self._deliver_or_enqueue(message, self.backlog)

    def _store_and_enqueue(self, message: Message) -> bool:
        """The plain queue with a journal: to the disk, and into memory unless there is a long backlog."""
        journal, ready = self.journal, self.ready
        if journal is None or self.deleted:
            return True  # deleted since a transaction was routed here
        position = journal.next
        journal.next = position + 1
        if journal.paged or journal.is_full(len(ready), message):
            journal.page_out(position, message)
        else:
            if not ready:
                self.position = position
            journal.store(position, message)
            ready.append(message)
        if not self.scheduled:
            self.schedule()
        return True

    def _deliver_or_enqueue(self, message: Message, backlog: Backlog) -> bool:
        if self.deleted:
            return True  # since a transaction was routed here
        settings = self.settings
        if self.judges and (verdict := self._judge(message)) is not Verdict.ADMIT:
            return verdict is Verdict.DISCARD
        ttl, top = settings.message_ttl, settings.max_priority
        if message.ttl is not None:
            ttl = message.ttl if ttl is None else min(ttl, message.ttl)
        priority = 0 if top is None else min(message.content.priority, top)
        deadline = 0 if ttl is None else self.timers.now() + ttl
        held = self.held_type(message, self.position, deadline, priority)
        self.position += 1
        if ttl == 0:
            if not self._attempt_delivery(held):
                self.drop(held, "expired")
            return True
        if self.journal is not None:
            self.journal.store(held.position, message, held.deadline)
        backlog.push(held)
        for enqueued in self._enqueueing:
            enqueued()
        if deadline and (self._expiry is None or deadline < self._expiry.deadline):
            self._arm_expiry(backlog)
        if not self.scheduled:
            self.schedule()
        return True

    def _priority(self, message: Message) -> int:
        return min(message.content.priority, self.settings.max_priority or 0)

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

    def drop(self, held: Held, reason: Reason) -> None:
        """A message leaves for another reason than an acknowledgement: dead-letter it where the queue says so."""
        self._tell_dropped(held.message, reason)
        self.dead_letter(held.message, reason, held.position)

    def dead_letter(self, message: Message, reason: Reason, position: int | None = None) -> None:
        """Send a message on, if there is an exchange for that; then its `position`, where it has one, is settled."""
        if self._dead_letters is not None:
            self._dead_letters.add(message, reason, position)
            return
        if self.settings.dead_letter_exchange is not None:
            dead_letter(self, message, reason)
        if self.journal is not None and position is not None:
            if self.settings.dead_letter_exchange is None:
                self.journal.settle(position)
            else:  # not before the letter is on disk where it went
                self.batch.when_safe(partial(self.journal.settle, position))

    # -- expiry --------------------------------------------------------------------------------------------------

    def _arm_expiry(self, backlog: Backlog) -> None:
        deadline = backlog.next_deadline
        if deadline and (self._expiry is None or self._expiry.deadline > deadline):
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self.timers.at(deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if not self.deleted and self.backlog is not None:
            self._drop_expired(self.backlog)
            self._arm_expiry(self.backlog)

    def drop_expired(self) -> None:
        """Drop what nobody may see any more, even where a timer is late."""
        if self.backlog is not None:
            self._drop_expired(self.backlog)

    def _drop_expired(self, backlog: Backlog) -> None:
        if backlog.next_deadline:
            for held in backlog.expired(self.timers.now()):
                self.drop(held, "expired")

    # -- consuming -----------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        if self.backlog is not None or self.vhost.trace is not None:
            self._deliver_held()
            return
        ready, returned, consumers, journal = self.ready, self.returned, self.consumers, self.journal
        while ready or returned or (journal is not None and self._look_ahead(journal)):
            turn = consumers.next()
            if turn is None:
                break
            consumer, room = turn
            if returned:
                held = heapq.heappop(returned)
                held.gone = True
                self._hand(held, consumer)
                continue
            # Several consumers take strict turns, as with RabbitMQ; a single one takes all its window holds.
            count = room if len(consumers) == 1 or consumers.single else 1
            if ready:
                self.position += consumer.feed(ready, self.position, min(count, len(ready)), journal)
            elif journal is not None:
                consumer.feed_ahead(journal, count)
                self.position = journal.page_at
        if self.views:
            self._show()

    def _hand(self, held: Held, consumer: Consumer) -> None:
        if self.journal is not None:
            # Before the message can leave the process; one that does not fit comes back.
            self.journal.fed(held.position, 1, consumer.no_ack and consumer.takes(held))
        consumer.redeliver(held)

    def _show(self) -> None:
        """What no consumer took is for those who browse."""
        for view in self.views:
            view.schedule()

    def _deliver_held(self) -> None:
        if self.backlog is not None:
            self._drop_expired(self.backlog)
        consumers, traced = self.consumers, self.vhost.trace is not None
        while self.message_count and (turn := consumers.next()) is not None:
            consumer, room = turn
            if self.backlog is not None and not traced:
                room = room if consumers.only is not None or consumers.single else 1
                run = self.backlog.pop_many(room, OUTPUT_BYTES)
                if self.journal is not None:
                    for held in run:  # as in `_hand`
                        self.journal.fed(held.position, 1, consumer.no_ack and consumer.takes(held))
                consumer.feed_held(run)
            elif (one := self._pop()) is not None:
                self._hand(one, consumer)
        if self.views:
            self._show()

    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        self.renew_lease()
        if self.backlog is not None:
            self._drop_expired(self.backlog)
        held = self._pop()
        if held is not None and self.journal is not None:
            self.journal.fed(held.position, 1, getter is None and (fits is None or fits(held)))
        return held

    def _pop(self) -> Held | None:
        if self.backlog is not None:
            return self.backlog.pop()
        if self.journal is not None and not self.ready and not self.returned:
            self._read_more(self.journal)
        if self.returned:
            held = heapq.heappop(self.returned)
            held.gone = True
            return held
        if self.ready:
            self.position += 1
            return Held(self.ready.popleft(), self.position - 1)
        return None

    def before_requeue(self) -> None:
        for judge in self.judges:
            judge.returning()

    def requeue(self, entries: Iterable[Back], *, failed: bool) -> None:
        if self.deleted:
            return
        entries = list(entries)
        limit = delivery_limit(self.settings)
        for position, message in entries:
            held = to_held(message, position)
            held.count += 1
            if self.journal is not None:
                self.journal.returned(held)
            if limit is not None and held.count > limit:
                self.drop(held, "delivery_limit")
            elif self._retries is not None and (delay := retry_delay(self.settings, held.count, failed=failed)):
                self._retries.add(held, delay)
            elif self.backlog is None:
                held.gone = False
                heapq.heappush(self.returned, held)
            else:
                self._put_back(held, self.backlog)
        if self.backlog is not None:
            self._tell_returned()
            self._arm_expiry(self.backlog)
        if self.views:
            self._views_look_again([position for position, _ in entries])
        self.schedule()

    def _put_back(self, held: Held, backlog: Backlog) -> None:
        held.priority = self._priority(held.message)  # the levels may be others than when it was delivered
        backlog.put_back(held)

    def _retry(self, due: list[Held]) -> None:
        """Delayed retry: the time of these is over."""
        if self.backlog is not None:
            for held in due:
                self._put_back(held, self.backlog)
            self._arm_expiry(self.backlog)
            if self.views:
                self._views_look_again([held.position for held in due])
            self.schedule()

    def reject(self, entries: Iterable[Back]) -> None:
        if not self.deleted and (self.stored or self.decorators or self.settings.dead_letter_exchange is not None):
            for position, message in entries:
                self.drop(to_held(message, position), "rejected")

    def purge(self) -> int:
        count = self.message_count
        gone = list(self.returned) if self.backlog is None else list(self.backlog)
        if self._retries is not None:
            gone += self._retries.messages()
            count += self._retries.clear()
        if self.journal is not None:
            self.journal.settle_many(sorted(held.position for held in gone))
            self.journal.settle(self.position, len(self.ready))
            self.journal.settle_paged()
        if self.backlog is not None:
            self.backlog.clear()
        self.position += len(self.ready)
        self.ready.clear()
        self.returned.clear()
        self._views_look_again()
        return count

    # -- on disk -------------------------------------------------------------------------------------------------

    def keep_in(self, journal: Journal, *, suspect: bool = False) -> None:
        """From now on the queue's messages are on disk too, and those that are there are its first ones.

        `suspect`: the machine went down with the broker before, so that any of them may have been delivered.
        OSError when the disk refuses.
        """
        self.journal, self.stored = journal, True
        expires = journal.recover(suspect=suspect)
        self.plain = False
        self.position = journal.page_at if journal.paged else journal.next
        if self.backlog is not None:
            self._read_all(journal, self.backlog)
        elif expires:
            self.enrich()

    def _look_ahead(self, journal: Journal) -> bool:
        """Have some of a long backlog at hand, where memory has none of it; whether there is any."""
        return journal.read_ahead() > 0 or self._read_more(journal)

    def _read_more(self, journal: Journal) -> bool:
        """Bring some of a long backlog back into memory, which has none of it; whether there was any."""
        run = self._next_run(journal)
        if run and run[0].delivered:
            self.returned += map(journal.held, run)
            self.position = run[-1].position + 1
        elif run:
            self.position = run[0].position
            self.ready.extend(map(journal.message, run))
        return bool(run)

    def _read_all(self, journal: Journal, backlog: Backlog) -> None:
        while run := self._next_run(journal):
            for stored in run:
                held = self._held(journal.held(stored))
                held.priority = self._priority(held.message)
                backlog.push(held)
        self.position = journal.next
        self._tell_enqueued()
        self._arm_expiry(backlog)

    def _held(self, held: Held) -> Held:
        """What stands for it in this kind of queue."""
        return held

    def _next_run(self, journal: Journal) -> list[Stored]:
        if not journal.paged:
            return []
        run = journal.next_run()
        if not run:  # the rest is in the current batch
            self.batch.write()
            run = journal.next_run()
        if not run:
            log.error("%s: %d messages on disk cannot be read", self, journal.forget_paged())
        return run

    def settle(self, positions: list[int]) -> None:
        if self.journal is not None and not self.deleted:
            positions.sort()
            self.journal.settle_many(positions)

    def flush(self) -> int:
        return 0 if self.journal is None else self.journal.flush()

    def when_durable(self, callback: Callable[[], None]) -> None:
        if self.journal is None:
            callback()
        else:
            self.batch.when_safe(callback)

    def rest(self) -> None:
        if self.journal is not None:
            self.journal.rest()

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()

    def forget(self) -> None:
        super().forget()
        for view in self.views:
            view.forget()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._dead_letters is not None:
            self._dead_letters.forget()
        self.journal = None
        self.purge()
