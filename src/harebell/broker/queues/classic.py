"""The classic queue: messages that are consumed once, from publication to settlement.

The ready messages are in its `contents`, which have one of three forms (`contents.Contents`). A classic queue begins as
a plain one. A setting (a TTL, a limit, priorities) or a message with an expiration gives it a `Backlog`, and `publish`
takes the whole delivery path:

    decorators judge it (a duplicate? over the limit?) -> attempt delivery -> discard when it has expired
    -> enqueue -> decorators are notified (drop what is over the limit) -> drop expired messages

A durable queue has a `Journal` too, with its messages and their settlements on disk. It knows no sockets, no dialect
and no wire format. `publish` appends to the deque of plain contents by itself: it does so for every message, and
another call would be 2 % of the cost of a message.

The file is long because all ways into the queue and out of it work on one state; what they use is in the modules beside
it: contents, expiry, limits, dead letters, selectors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from harebell.broker.message import Held, Message, to_held
from harebell.broker.queues.base import Back, Home, Owner, Queue
from harebell.broker.queues.consumer import Consumer, Getter
from harebell.broker.queues.contents.backlog import Backlog
from harebell.broker.queues.contents.enriching import Enriching
from harebell.broker.queues.contents.ordering import backlog_for
from harebell.broker.queues.contents.plain import Contents, JournaledContents, PlainContents, next_run
from harebell.broker.queues.dead_letters import DeadLetters, Obituary, dead_letter
from harebell.broker.queues.decorators import Verdict
from harebell.broker.queues.delayed_retry import Retries
from harebell.broker.queues.expiry import Expiry
from harebell.broker.queues.orphans import reroute
from harebell.broker.queues.selection.selecting import Selecting
from harebell.broker.queues.sequence import numbered
from harebell.broker.queues.settings import (
    delivery_limit,
    is_at_least_once,
    is_plain,
    levels,
    retries_later,
    retry_delay,
)
from harebell.broker.queues.turns import Consumers
from harebell.broker.slices import Share, Work
from harebell.broker.store.queue_log.journal import Journal
from harebell.protocol.v091 import Table
from harebell.protocol.v091.splice import header_frame_size
from harebell.routing import Reason
from harebell.routing.exchanges.exchange import CHEAP
from harebell.routing.settings import QueueSettings
from harebell.routing.steps import Steps, complete

__all__ = ["REFUSALS", "ClassicQueue"]

log = logging.getLogger("harebell.broker.queue")

REFUSALS: Final = 20  # consumers whose frames a message does not fit, until it leaves; RabbitMQ's delivery limit
MOST_REFUSED: Final = 1024  # messages whose refusals are counted: they are few, and one that is acked stays here
MOST_READ: Final = 1_000_000  # messages that a start reads into memory because some of them wait for something
MOVED: Final = 512  # messages that move into a backlog in one step
TRACED: Final = 32  # what a traced delivery costs in a share


class Viewer(Protocol):
    """A view of the queue, for a consumer that browses (`browse`)."""

    consumers: Consumers

    def schedule(self) -> None: ...
    def refresh(self, highest: int | None = None) -> None:
        """Note that messages came back, none to a place above `highest`; None: the contents have another form."""

    def releveled(self, levels: Sequence[int] | None) -> None:
        """Note that the messages of each priority were on these levels (None: on one), and are on others now."""

    def forget(self) -> None: ...


class ClassicQueue(Queue):
    """A queue whose messages are consumed once. `type` is its declared type: classic or quorum."""

    held_type: type[Held] = Held
    obituary: Obituary | None = None  # of the last message that died here

    def __init__(
        self, vhost: Home, name: str, *, durable: bool, exclusive: bool, auto_delete: bool, arguments: Table,
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
        self.selecting: Selecting | None = None  # around the contents, while consumers have selectors
        self.expiry: Expiry | None = None  # with a backlog
        self._enriching: Enriching | None = None  # the contents, while they move into a backlog
        self._plain = True  # without a backlog and a journal
        self._writes_later = False  # whether a work will let the journal be flushed once more
        self._levels = levels(settings)  # by the priority of a message; None: one for all
        self._leveled = self._levels  # of the backlog; others than `_levels` only while it is being made
        self._refused: dict[int, int] = {}  # how many consumers' frames a message did not fit, by its position
        self._looked_at = (0, 0)  # count and end of the contents when starving consumers looked at them last
        self._retries: Retries | None = None
        self._dead_letters: DeadLetters | None = None
        self._last_letters: DeadLetters | None = None  # of before at-least-once ended; tried a last time
        self.aside: tuple[Retries | DeadLetters, ...] = ()  # delayed retry and dead letters, if the queue has them
        self._equip()

    def _equip(self) -> None:
        """Make the parts that the settings need: delayed retry, dead letters, a backlog."""
        settings = self.settings
        if self._retries is None and retries_later(settings):
            self._retries = Retries(self.timers, self._retry)
        if is_at_least_once(settings):
            if self._dead_letters is None:
                self._dead_letters = DeadLetters(self)
            else:
                self._dead_letters.try_again()  # the exchange may be another
        elif self._dead_letters is not None:
            if self._last_letters is not None:
                self._last_letters.forget()
            self._last_letters, self._dead_letters = self._dead_letters, None
            self._last_letters.try_a_last_time()
        strategy = "at_least_once" if self._dead_letters is not None else "at_most_once"
        if settings.dead_letter_exchange is None:
            strategy = "disabled"
        self.dead = self.vhost.lasting.dead[self.type, strategy]
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
        return sum([part.count for part in (self._dead_letters, self._last_letters) if part is not None])

    def enrich(self) -> None:
        """Make the queue ready for messages that may leave from the middle; a long queue soon after."""
        if self.backlog is None and self._enriching is None:
            enriching = self._begin_enriching()
            self.batch.slices.run(self._enrich(enriching))

    def _begin_enriching(self) -> Enriching:
        backlog = backlog_for(self.settings)
        self._leveled = self._levels
        backlog.journal = self.journal
        self._enriching = Enriching(self.line, backlog, self._priority, self._deadline)
        self._use(self._enriching)
        return self._enriching

    def _use(self, contents: Contents) -> None:
        """Have these contents from now on."""
        if self.selecting is None:
            self.contents = contents
        else:
            self.selecting.use(contents)

    def _enrich(self, enriching: Enriching) -> Steps[None]:
        while self._enriching is enriching and not self.deleted and not enriching.move(MOVED):
            yield
        if self._enriching is enriching and not self.deleted:
            self._enriched(enriching)

    @property
    def is_enriching(self) -> bool:
        """Whether the messages are in two forms, because `enrich` is under way."""
        return self._enriching is not None and not self.deleted

    def finishing_enriching(self) -> Steps[None]:
        """Do the rest of `enrich`, in steps."""
        if self._enriching is not None:
            yield from self._enrich(self._enriching)

    def finish_enriching(self) -> None:
        """Do the rest of `enrich` now: the broker starts."""
        complete(self.finishing_enriching())

    def _enriched(self, enriching: Enriching) -> None:
        """Use the backlog from now on: all messages are in it."""
        backlog, self._enriching = enriching.backlog, None
        backlog.end = self.line.end
        self.use_backlog(backlog)
        if backlog.top:
            self._views_releveled(None)
        self._relevel(self.settings)
        self.notify_enqueued()
        self._arm_expiry()
        self._refresh_views()
        self.schedule()

    def use_backlog(self, backlog: Backlog) -> None:
        """Move the messages into this backlog."""
        self.backlog = backlog
        self._use(backlog)
        self.expiry = Expiry(backlog, self.timers, self.drop, self.batch)
        backlog.journal = self.journal
        self._plain = False

    def everyone(self) -> tuple[Consumer, ...]:
        return (*self.consumers, *(consumer for view in self.views for consumer in view.consumers))

    def _refresh_views(self, positions: Iterable[int] = ()) -> None:
        for view in self.views:
            view.refresh(max(positions, default=None))

    def _views_releveled(self, levels: Sequence[int] | None) -> None:
        for view in self.views:
            view.releveled(levels)

    def reconfigure(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._relevel(settings)
        if not is_plain(settings):
            self.enrich()
        super().reconfigure(settings)
        self._equip()

    def _relevel(self, settings: QueueSettings) -> None:
        self._levels = levels(settings)
        if self.backlog is not None and self._leveled != self._levels:
            self._views_releveled(self._leveled)
            self._leveled = self._levels
            self.backlog.relevel(settings.max_priority or 0, lambda held: self._priority(held.message))
            if self.selecting is not None:
                self.selecting.restart()
            if self.starving:
                self.look_again()

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
            self.wake()
        return True

    def publish_all(self, messages: list[Message]) -> list[int]:
        if self.backlog is not None or self.deleted:
            return super().publish_all(messages)
        self.line.put_all(messages)
        self.wake()
        return []

    def publish_again(self, message: Message) -> bool:
        """As `publish`, for a message that may have been delivered before a restart: it is redelivered."""
        if self.deleted:
            return True
        if self.backlog is not None:
            return self._deliver_or_enqueue(message, self.backlog, 1)
        assert isinstance(self.line, JournaledContents)  # the others were gone with their process
        self.line.put_again(message)
        self.wake()
        return True

    def _deliver_or_enqueue(self, message: Message, backlog: Backlog, count: int = 0) -> bool:
        settings = self.settings
        if self.judges and (verdict := self.judge(message)) is not Verdict.ADMIT:
            return verdict is Verdict.DISCARD
        if settings.sequence_header is not None:
            message = numbered(message, settings.sequence_header, backlog.end + 1)
        ttl, levels = settings.message_ttl, self._levels
        if message.ttl is not None:  # as in `_deadline`, which would be a call per message
            ttl = message.ttl if ttl is None else min(ttl, message.ttl)
        priority = 0 if levels is None else levels[message.content.priority]
        deadline = 0 if ttl is None else self.timers.now() + ttl
        held = self.held_type(message, backlog.end, deadline, priority)
        held.count = count
        backlog.end += 1
        if ttl == 0:
            if not self.attempt_delivery(held):
                self.drop(held, "expired")
            return True
        if self.journal is not None:
            self.journal.store(held.position, message, held.deadline)
            if count:
                self.journal.returned(held)
        backlog.push(held)
        for enqueued in self.enqueueing:
            enqueued()
        if deadline and (expiry := self.expiry) is not None and deadline < expiry.next:
            expiry.arm()
        if not self.scheduled:
            self.wake()
        return True

    def _deadline(self, message: Message) -> int:
        """The deadline of a message that comes now; 0: none."""
        ttls = [ttl for ttl in (self.settings.message_ttl, message.ttl) if ttl is not None]
        return self.timers.now() + min(ttls) if ttls else 0

    def _priority(self, message: Message) -> int:
        return 0 if self._leveled is None else self._leveled[message.content.priority]

    def can_deliver(self, message: Message) -> bool:
        self.deliver()
        if self.selecting is not None:
            return self._taker(self.selecting, Held(message, self.contents.end)) is not None
        return not self.message_count and self.consumers.any_room

    def attempt_delivery(self, held: Held) -> bool:
        """Deliver a message that cannot wait, if a consumer is ready and no message is before it."""
        self.deliver()
        if self.selecting is not None:
            consumer = self._taker(self.selecting, held)
        else:
            turn = None if self.message_count else self.consumers.next()
            consumer = None if turn is None else turn[0]
        if consumer is None:
            return False
        consumer.redeliver(held)
        return True

    def _taker(self, selecting: Selecting, held: Held) -> Consumer | None:
        consumer, cost = selecting.taker(self.consumers, held)
        if cost > CHEAP:
            self.batch.slices.input_share.charge(cost)
        return consumer

    @property
    def asks_all(self) -> bool:
        return self.selecting is not None and self.settings.message_ttl == 0

    def drop(self, held: Held, reason: Reason) -> None:
        """Remove a message without an acknowledgement: dead-letter it by the queue's settings."""
        if self.starving:
            self.look_again()
        self.notify_dropped(held.message, reason)
        self.dead_letter(held.message, reason, held.position, held.count)

    def dead_letter(self, message: Message, reason: Reason, position: int | None = None, count: int = 0) -> None:
        """Dead-letter a message, if there is an exchange for that, and then settle its `position`, if it has one."""
        self.dead[reason] += 1
        if self._dead_letters is not None:
            self._dead_letters.add(message, reason, position, count)
            return
        if self.settings.dead_letter_exchange is not None:
            if reason == "rejected" and self.settings.dead_letter_exchange == self.settings.orphan_exchange:
                reroute(self, message)
            else:
                dead_letter(self, message, reason)
        if self.journal is not None and position is not None:
            if self.settings.dead_letter_exchange is None:
                self.journal.settle(position)
            else:  # only when the letter is on disk in its queues
                self.batch.when_safe(partial(self.journal.settle, position))

    # -- consuming -----------------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        super().add_consumer(consumer)
        if consumer.selector is not None:
            if self.selecting is None:
                self.enrich()
                self.contents = self.selecting = self.new_selecting()
            self.selecting.add(consumer.selector)

    def remove_consumer(self, consumer: Consumer) -> None:
        selecting, selector = self.selecting, consumer.selector
        selects = selecting is not None and selector is not None and self.consumers.find(consumer) is not None
        super().remove_consumer(consumer)
        if selects and selecting is not None and selector is not None and not selecting.remove(selector):
            self.contents, self.selecting, self.searching = selecting.inner, None, False

    def new_selecting(self) -> Selecting:
        return Selecting(self.contents, self.timers, self.feed)

    def feed(self, consumer: Consumer, run: list[Held]) -> None:
        """Deliver messages that were taken out to a consumer."""
        if self.vhost.trace is not None:
            for held in run:
                self.hand(held, consumer)
            return
        if self.journal is not None:
            for held in run:  # before it can leave the process; one that does not fit is requeued
                self.journal.handed(held, consumer.no_ack and consumer.takes(held))
        consumer.feed_held(run)

    def postpones(self, consumer: Consumer) -> bool:
        return self.on_hold or (self.is_enriching and consumer.selector is not None)

    def deliver_share(self) -> bool:
        if self.on_hold:
            return True
        if self.expiry is not None and not self.expiry.drop_expired():
            return False
        share, traced = self.batch.slices.share.begin(), self.vhost.trace is not None
        if self.selecting is not None:
            done = self.selecting.deliver(self.consumers, share)
            self.searching = not done
        else:
            done = self._deliver_traced(share) if traced else self.contents.deliver(self.consumers, share)
        if self.views:
            self.show_views()
        return done and not (self.starving and self.lets_look())

    def lets_look(self) -> bool:
        """Let starving consumers look again, if messages have come or left since they did. Returns whether."""
        contents = (self.contents.count, self.contents.end)
        if contents == self._looked_at:
            return False
        self._looked_at = contents
        self.look_again()
        return True

    def _deliver_traced(self, share: Share) -> bool:
        while self.message_count and (turn := self.consumers.next()) is not None:
            held = self.contents.pop()
            if held is not None:
                self.hand(held, turn[0])
                if share.spend(TRACED):
                    return False
        return True

    def drop_expired(self) -> bool:
        return self.expiry is None or self.expiry.drop_expired()

    def hand(self, held: Held, consumer: Consumer) -> None:
        """Deliver one message that was taken to a consumer."""
        if self.journal is not None:
            # Before the message can leave the process; one that does not fit is requeued.
            self.journal.handed(held, consumer.no_ack and consumer.takes(held))
        consumer.redeliver(held)

    def show_views(self) -> None:
        """Show browsing consumers the messages that no consumer took."""
        for view in self.views:
            view.schedule()

    def take(self, getter: Getter | None = None, fits: Callable[[Held], bool] | None = None) -> Held | None:
        self.renew_lease()
        self.drop_all_expired()
        held = self.contents.pop()
        if held is not None and self.journal is not None:
            self.journal.handed(held, getter is None and (fits is None or fits(held)))
        self.messages_left()
        return held

    def messages_left(self) -> None:
        """Have decorators notified of messages that left without a consumer's turn."""
        if self.starving:
            self.look_again()
        if self.decorators:
            self.schedule()

    def before_requeue(self) -> None:
        for judge in self.judges:
            judge.returning()

    def requeue(self, entries: Iterable[Back], *, failed: bool, counted: bool = True) -> None:
        if self.deleted:
            if self.settings.orphan_exchange is not None:
                for position, message in entries:
                    reroute(self, to_held(message, position).message)
            return
        entries = list(entries)
        limit = delivery_limit(self.settings)
        for position, message in entries:
            held = to_held(message, position)
            held.count += counted
            dies = (limit is not None and held.count > limit) or (bool(self._refused) and self._fits_nobody(held))
            delay = 0
            if self._retries is not None and not dies:
                delay = retry_delay(self.settings, held.count, failed=failed)
            if self.journal is not None:
                self.journal.returned(held, delay)
            if dies:
                self.drop(held, "delivery_limit")
            elif delay and self._retries is not None:
                self._retries.add(held, delay)
            else:
                self._put_back(held)
        self._note_returned([position for position, _ in entries])

    def _note_returned(self, positions: list[int]) -> None:
        if self.backlog is not None:
            self.notify_returned()
            self._arm_expiry()
        if self.views:
            self._refresh_views(positions)
        if self.starving:
            self.look_again()
        self.wake()

    def retry_some(self) -> bool:
        """Return messages that wait for a delayed retry to their places, one share. Returns whether any are left."""
        return self._retries is not None and self._retries.end_some()

    def evict(self) -> Held | None:
        """Take the next message away from everybody: even one that only the holder of its group would get."""
        held = self.contents.pop()
        if held is not None and self.journal is not None:
            self.journal.fed(held.position, 1, False)
        self.messages_left()
        return held

    def give_back(self, held: Held) -> None:
        """Return a message that was taken a moment ago to its old place, as if it had not been."""
        if self.journal is not None:
            self.journal.returned(held)
        self._put_back(held)
        self._note_returned([held.position])

    def take_at(self, position: int, holder: object | None) -> Held | None:
        """Take the ready message at that place, for one who browsed it, or had it before a restart (`holder`).

        None when it is not there (any more), or belongs to somebody else. Without a `holder` it is taken away from
        everybody. The queue has a backlog (`enrich`).
        """
        backlog = self.backlog
        held = None if backlog is None else self._ready_at(backlog, position)
        if backlog is None or held is None:
            return None
        if self.journal is not None:
            self.journal.fed(position, 1, False)
        self.messages_left()
        return backlog.take_out(held)

    def refused(self, position: int) -> None:
        if len(self._refused) >= MOST_REFUSED:
            self._refused.clear()
        self._refused[position] = self._refused.get(position, 0) + 1

    def _fits_nobody(self, held: Held) -> bool:
        """Whether the message was refused so often that it leaves the queue."""
        if self._refused.get(held.position, 0) < REFUSALS:
            return False
        del self._refused[held.position]
        log.error(
            "%s: a message is %s: %d consumers had a frame_max that its properties do not fit (%d bytes)",
            self, "dropped" if self.settings.dead_letter_exchange is None else "dead-lettered", REFUSALS,
            header_frame_size(held.message.content.frames),
        )  # fmt: skip
        return True

    def _put_back(self, held: Held) -> None:
        if self.backlog is not None:
            held.priority = self._priority(held.message)  # the levels may have changed since it was delivered
        self.contents.put_back(held)

    def _arm_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.arm()

    def _retry(self, due: list[Held]) -> None:
        """Put messages back whose delay has ended (delayed retry)."""
        for held in due:
            self._put_back(held)
        self._arm_expiry()
        if self.views:
            self._refresh_views([held.position for held in due])
        if self.starving:
            self.look_again()
        self.wake()

    def reject(self, entries: Iterable[Back]) -> None:
        if not self.deleted and (self.stored or self.decorators or self.settings.dead_letter_exchange is not None):
            for position, message in entries:
                self.drop(to_held(message, position), "rejected")

    def purging(self) -> Generator[None, None, int]:
        """Purge, in steps. Returns the number of messages."""
        count, away = self.message_count, None if self._retries is None else self._retries.remove_all()
        removed, journal = self.contents.remove_all(), self.journal
        if journal is not None:
            journal.settle_paged()
        self._refresh_views()
        self.messages_left()
        if away is not None:
            count += away.count
            yield from away.steps(journal)
        yield from removed.steps(journal)
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
            if expires or (journal.waiting and journal.paged <= MOST_READ):
                complete(self._enrich(self._begin_enriching()))

    def enforce_limits(self) -> None:
        """Drop what is over a limit, and set the timer of what expires: there may be messages from the disk."""
        self._wait_again()
        self._drop_over_limit()
        if self.backlog is not None:
            self.notify_enqueued()
            self._arm_expiry()

    def _drop_over_limit(self) -> None:
        """Drop what came back too often when the last process ended, or by the settings of now.

        In a backlog of more than MOST_READ such a message is delivered once more.
        """
        limit = delivery_limit(self.settings)
        if self.journal is None or limit is None or not (over := self.journal.over(limit)):
            return
        if self.backlog is None and self.journal.paged <= MOST_READ:
            complete(self._enrich(self._begin_enriching()))
        for position in over:
            backlog = self.backlog
            held = None if backlog is None else self._ready_at(backlog, position)
            if backlog is not None and held is not None:
                self.drop(backlog.take_out(held), "delivery_limit")

    def _wait_again(self) -> None:
        """Have the messages wait that waited when the last process ended, for their retry or as dead letters."""
        if self.journal is None:
            return
        for position, delay, reason in self.journal.take_waiting():
            backlog = self.backlog
            if backlog is None or (self._dead_letters if reason else self._retries) is None:
                continue  # it is ready: the queue's settings are others now, or it is too long
            held = self._ready_at(backlog, position)
            if held is None:
                continue  # it has expired, or a transaction has taken it
            held = backlog.take_out(held)
            if reason is not None and self._dead_letters is not None:
                self._dead_letters.add(held.message, reason, position, held.count)
            elif self._retries is not None:
                # No longer than anything waits here: the clock may have been set back since.
                longest = max(retry_delay(self.settings, held.count, failed=failed) for failed in (True, False))
                self._retries.add(held, min(delay, longest))

    @staticmethod
    def _ready_at(backlog: Backlog, position: int) -> Held | None:
        """The ready message at that place."""
        for level in range(len(backlog.levels)):
            found = backlog.after(level, position, 1, backlog.end)
            if found and found[0].position == position:
                return found[0]
        return None

    def note_dead(self, position: int, count: int, reason: Reason) -> None:
        if self.journal is not None:
            self.journal.died(position, count, reason)

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

    def sync_recovered(self) -> None:
        """Let the sync of this batch cover the messages of before a restart."""
        if self.journal is not None:
            self.journal.sync_recovered()

    def sync_settlements(self) -> None:
        if self.journal is not None:
            self.journal.sync_settlements()

    def flush(self) -> int:
        if self.journal is None:
            return 0
        ticket = self.journal.flush()
        if self.journal.unfinished and not self._writes_later:
            self._writes_later = True
            self.batch.slices.later(self._write_more())
        return ticket

    def _write_more(self) -> Work:
        self._writes_later = False
        if self.journal is not None:
            self.journal.touch()
        yield

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
        for part in (self._dead_letters, self._last_letters):
            if part is not None:
                part.forget()
        self.journal = None
        self.batch.slices.run(self.purging())
