"""The classic queue: messages that are consumed once, from publication to settlement.

The ready messages are in its `contents`, which have one of three forms (`contents.Contents`). A classic queue begins as
a plain one. A setting (a TTL, a limit, priorities) or a message with an expiration gives it a `Backlog`, and `publish`
takes the whole delivery path:

    decorators judge it (a duplicate? over the limit?) -> attempt delivery -> discard when it has expired
    -> enqueue -> decorators are notified (drop what is over the limit) -> drop expired messages

A durable queue has a `Journal` too, with its messages and their settlements on disk. It knows no sockets, no dialect
and no wire format. `publish` appends to the deque of plain contents by itself: it does so for every message, and
another call would be 2 % of the cost of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from harebell.broker.forwarding import Forwarding
from harebell.broker.message import Held, Message, to_held
from harebell.broker.queues.backlog import Backlog
from harebell.broker.queues.base import Back, Home, Owner, Queue
from harebell.broker.queues.consumer import Consumer, Getter
from harebell.broker.queues.contents import Contents, JournaledContents, PlainContents, next_run
from harebell.broker.queues.dead_letters import DeadLetters, Obituary, dead_letter
from harebell.broker.queues.decorators import Verdict
from harebell.broker.queues.delayed_retry import Retries
from harebell.broker.queues.expiry import Expiry
from harebell.broker.queues.settings import delivery_limit, is_at_least_once, is_plain, retries_later, retry_delay
from harebell.broker.queues.turns import Consumers
from harebell.broker.store.journal import Journal
from harebell.protocol.v091 import Table
from harebell.routing import Reason
from harebell.routing.settings import QueueSettings

__all__ = ["ClassicHome", "ClassicQueue"]


class ClassicHome(Home, Forwarding, Protocol):
    """The part of a virtual host that a classic queue uses: dead letters are forwarded in it."""


class Viewer(Protocol):
    """A view of the queue, for a consumer that browses (`browse`)."""

    consumers: Consumers

    def schedule(self) -> None: ...
    def refresh(self, highest: int | None = None) -> None:
        """Note that messages came back, none to a place above `highest`; None: the contents have another form."""

    def forget(self) -> None: ...


class ClassicQueue(Queue):
    """A queue whose messages are consumed once. `type` is its declared type: classic or quorum."""

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
        self.line = PlainContents()  # the messages, without a backlog
        self.contents: Contents = self.line
        self.backlog: Backlog | None = None  # the messages, once they may leave from the middle
        self.journal: Journal | None = None  # where the messages are on disk
        self.views: list[Viewer] = []  # of consumers that browse
        self.expiry: Expiry | None = None  # with a backlog
        self._plain = True  # without a backlog and a journal
        self._retries: Retries | None = None
        self._dead_letters: DeadLetters | None = None
        self.aside: tuple[Retries | DeadLetters, ...] = ()  # delayed retry and dead letters, if the queue has them
        self._equip()

    def _equip(self) -> None:
        """Make the parts that the settings need: delayed retry, dead letters, a backlog."""
        settings = self.settings
        if self._retries is None and retries_later(settings):
            self._retries = Retries(self.timers, self._retry)
        if self._dead_letters is not None:
            self._dead_letters.try_again()  # the exchange may be another; and a last time when at-least-once has ended
        if not is_at_least_once(settings):
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
        return self.contents.count

    @property
    def delayed_count(self) -> int:
        return 0 if self._retries is None else self._retries.count

    @property
    def dead_letter_count(self) -> int:
        return 0 if self._dead_letters is None else self._dead_letters.count

    def enrich(self) -> None:
        """Make the queue ready for messages that may leave from the middle."""
        if self.backlog is None:
            self._make_backlog()
            if self.journal is not None:
                self.enforce_limits()
            self._refresh_views()

    def _make_backlog(self) -> None:
        """Move the messages into a backlog, those on disk too."""
        line, backlog = self.line, Backlog(self.settings.max_priority or 0)
        self.use_backlog(backlog)
        for held in line.returned:
            self._put_back(held)
        for position, message in enumerate(line.ready, line.position):
            backlog.push(Held(message, position, 0, self._priority(message)))
        backlog.end = line.end
        line.returned.clear()
        line.ready.clear()
        if self.journal is not None:
            self._read_all(self.journal, backlog)

    def use_backlog(self, backlog: Backlog) -> None:
        """Move the messages into this backlog."""
        self.backlog = self.contents = backlog
        self.expiry = Expiry(backlog, self.timers, self.drop)
        backlog.journal = self.journal
        self._plain = False

    def everyone(self) -> tuple[Consumer, ...]:
        return (*self.consumers, *(consumer for view in self.views for consumer in view.consumers))

    def _refresh_views(self, positions: Iterable[int] = ()) -> None:
        for view in self.views:
            view.refresh(max(positions, default=None))

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
        if self._plain:
            self.line.ready.append(message)
            if not self.scheduled:
                self.scheduled = True
                self.batch.scheduled.append(self)
            return True
        if self.deleted:
            return True  # the queue was deleted after a transaction was routed
        if self.backlog is not None:
            return self._deliver_or_enqueue(message, self.backlog)
        self.line.put(message)
        if not self.scheduled:
            self.schedule()
        return True

    def _deliver_or_enqueue(self, message: Message, backlog: Backlog) -> bool:
        settings = self.settings
        if self.judges and (verdict := self.judge(message)) is not Verdict.ADMIT:
            return verdict is Verdict.DISCARD
        ttl, top = settings.message_ttl, settings.max_priority
        if message.ttl is not None:
            ttl = message.ttl if ttl is None else min(ttl, message.ttl)
        priority = 0 if top is None else min(message.content.priority, top)
        deadline = 0 if ttl is None else self.timers.now() + ttl
        held = self.held_type(message, backlog.end, deadline, priority)
        backlog.end += 1
        if ttl == 0:
            if not self.attempt_delivery(held):
                self.drop(held, "expired")
            return True
        if self.journal is not None:
            self.journal.store(held.position, message, held.deadline)
        backlog.push(held)
        for enqueued in self.enqueueing:
            enqueued()
        if deadline and (expiry := self.expiry) is not None and deadline < expiry.next:
            expiry.arm()
        if not self.scheduled:
            self.schedule()
        return True

    def _priority(self, message: Message) -> int:
        return min(message.content.priority, self.settings.max_priority or 0)

    def can_deliver(self) -> bool:
        self.deliver()
        return not self.message_count and any(consumer.room() > 0 for consumer in self.consumers)

    def attempt_delivery(self, held: Held) -> bool:
        """Deliver a message that cannot wait, if a consumer is ready and no message is before it."""
        self.deliver()
        if self.message_count or (turn := self.consumers.next()) is None:
            return False
        turn[0].redeliver(held)
        return True

    def drop(self, held: Held, reason: Reason) -> None:
        """Remove a message without an acknowledgement: dead-letter it by the queue's settings."""
        self.notify_dropped(held.message, reason)
        self.dead_letter(held.message, reason, held.position)

    def dead_letter(self, message: Message, reason: Reason, position: int | None = None) -> None:
        """Dead-letter a message, if there is an exchange for that, and then settle its `position`, if it has one."""
        if self._dead_letters is not None:
            self._dead_letters.add(message, reason, position)
            return
        if self.settings.dead_letter_exchange is not None:
            dead_letter(self, message, reason)
        if self.journal is not None and position is not None:
            if self.settings.dead_letter_exchange is None:
                self.journal.settle(position)
            else:  # only when the letter is on disk in its queues
                self.batch.when_safe(partial(self.journal.settle, position))

    # -- consuming -----------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        if self.expiry is not None:
            self.expiry.drop_expired()
        if self.vhost.trace is None:
            self.contents.deliver(self.consumers)
        else:
            while self.message_count and (turn := self.consumers.next()) is not None:
                held = self.contents.pop()
                if held is not None:
                    self.hand(held, turn[0])
        if self.views:
            self.show_views()

    def drop_expired(self) -> None:
        """Drop expired messages, even where the timer is late."""
        if self.expiry is not None:
            self.expiry.drop_expired()

    def hand(self, held: Held, consumer: Consumer) -> None:
        """Deliver one message that was taken to a consumer."""
        if self.journal is not None:
            # Before the message can leave the process; one that does not fit is requeued.
            self.journal.fed(held.position, 1, consumer.no_ack and consumer.takes(held))
        consumer.redeliver(held)

    def show_views(self) -> None:
        """Show browsing consumers the messages that no consumer took."""
        for view in self.views:
            view.schedule()

    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        self.renew_lease()
        if self.expiry is not None:
            self.expiry.drop_expired()
        held = self.contents.pop()
        if held is not None and self.journal is not None:
            self.journal.fed(held.position, 1, getter is None and (fits is None or fits(held)))
        return held

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
            else:
                self._put_back(held)
        if self.backlog is not None:
            self.notify_returned()
            self._arm_expiry()
        if self.views:
            self._refresh_views([position for position, _ in entries])
        self.schedule()

    def _put_back(self, held: Held) -> None:
        if self.backlog is not None:
            held.priority = self._priority(held.message)  # the levels may have changed since it was delivered
        self.contents.put_back(held)

    def _arm_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.arm()

    def _retry(self, due: list[Held]) -> None:
        """Put messages back whose delay has ended (delayed retry)."""
        if self.backlog is not None:
            for held in due:
                self._put_back(held)
            self._arm_expiry()
            if self.views:
                self._refresh_views([held.position for held in due])
            self.schedule()

    def reject(self, entries: Iterable[Back]) -> None:
        if not self.deleted and (self.stored or self.decorators or self.settings.dead_letter_exchange is not None):
            for position, message in entries:
                self.drop(to_held(message, position), "rejected")

    def purge(self) -> int:
        count, away = self.message_count, list[Held]()
        if self._retries is not None:
            away = self._retries.messages()
            count += self._retries.clear()
        if self.journal is not None:
            self.journal.settle_many(sorted(held.position for held in away))
            self.contents.settle_all(self.journal)
        self.contents.clear()
        self._refresh_views()
        return count

    # -- on disk -------------------------------------------------------------------------------------------------

    def use_journal(self, journal: Journal, *, suspect: bool = False) -> None:
        """Store the queue's messages in `journal` from now on; those that it has are the queue's first ones.

        `enforce_limits` applies limits later, once each queue that takes dead letters has its journal. `suspect`: the
        machine stopped with the last broker, so that any message may have been delivered. OSError if the disk refuses.
        """
        self.journal, self.stored = journal, True
        expires = journal.recover(suspect=suspect)
        self._plain = False
        if self.backlog is not None:
            self.backlog.journal = journal
            self._read_all(journal, self.backlog)
        else:
            self.line = self.contents = JournaledContents(journal, self.line, self.batch, str(self))
            if expires:
                self._make_backlog()

    def enforce_limits(self) -> None:
        """Drop what is over a limit, and set the timer of what expires: there may be messages from the disk."""
        if self.backlog is not None:
            self.notify_enqueued()
            self._arm_expiry()

    def _read_all(self, journal: Journal, backlog: Backlog) -> None:
        while run := next_run(journal, self.batch, str(self)):
            for stored in run:
                held = self.as_held(journal.held(stored))
                held.priority = self._priority(held.message)
                backlog.push(held)
        backlog.end = journal.next

    def as_held(self, held: Held) -> Held:
        """The form of a journal's message in this kind of queue."""
        return held

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
        if self.expiry is not None:
            self.expiry.cancel()
        if self._dead_letters is not None:
            self._dead_letters.forget()
        self.journal = None
        self.purge()
