"""Dead-lettering: a message leaves its queue through the dead-letter exchange, at most or at least once.

At most once (`dead_letter`): the letter goes to the queues that take it now, and is dropped if there is none.

At least once (`DeadLetters`, `x-dead-letter-strategy`): the message stays with its queue, neither ready nor unacked,
until every queue that it is routed to has taken it; a stream has taken it when it is on the disk. It is tried again
every RETRY_MS, or more seldom where very many wait, while the exchange is missing, there is no route or only cycles, or
a queue refuses it because it is full. Queues that have it are not tried again. Purging does not remove waiting letters,
deleting the queue does. All of that is what RabbitMQ's quorum queues do.

Messages of one address that die in the same second for the same reason get the same headers and the same route, unless
their own headers decide: then headers and route are computed once (`Obituary`). The bytes are spliced into each, whose
other headers are neither decoded nor written again.

`harebell.routing.dead_letter` makes the headers of a letter.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol, cast

from harebell.broker.batch import Batch
from harebell.broker.forwarding import Forwarding, Receiver, keys_of, route_message
from harebell.broker.letters import SHORT, Letter
from harebell.broker.message import Address, MarkedMessage, Message
from harebell.broker.slices import Work
from harebell.broker.timers import Timer, Timers
from harebell.protocol.v091 import Content, FieldValue
from harebell.protocol.v091.fields import write_table
from harebell.protocol.v091.property_flags import EXPIRATION, HEADERS
from harebell.protocol.v091.splice import (
    append_headers,
    header_frame_size,
    replace_raw_properties,
    take_headers,
    with_headers,
    without_expiration,
)  # fmt: skip
from harebell.routing import Reason, Route, dead_letter_headers, dead_letter_keys, without_cycles
from harebell.routing.settings import QueueSettings

__all__ = ["RETRY_MS", "DeadLetters", "Obituary", "dead_letter"]

log = logging.getLogger("harebell.broker.dead_letters")

RETRY_MS: Final = 5_000
LETTERS_PER_STEP: Final = 32  # that are tried again
_REWRITTEN: Final = frozenset({b"BCC", b"x-death"}) | {
    f"x-{which}-death-{what}".encode() for which in ("first", "last") for what in ("reason", "queue", "exchange")
}  # headers
REST: Final = 20  # so many times as long as one trial of all took, the next one waits at least


class DyingQueue(Protocol):
    """The queue in which messages die. `obituary` is that of the last one, `dead` counts them by reason."""

    name: str
    settings: QueueSettings
    batch: Batch
    dead: Counter[str]
    obituary: Obituary | None
    deleted: bool

    @property
    def vhost(self) -> Forwarding: ...
    @property
    def timers(self) -> Timers: ...
    def settle(self, positions: list[int]) -> None: ...
    def note_dead(self, position: int, count: int, reason: Reason) -> None:
        """Have it on disk, where the queue is, that a message waits as a dead letter."""


class _Letter:
    """A dead letter: the message with its new address, the queues it may go to, and the exchanges that hold it."""

    __slots__ = ("keys", "message", "queues", "route")

    def __init__(
        self, message: MarkedMessage, keys: tuple[str, ...], route: Route, queues: tuple[Receiver, ...]
    ) -> None:
        self.message, self.keys, self.route, self.queues = message, keys, route, queues


def dead_letter(queue: DyingQueue, message: Message, reason: Reason) -> None:
    """Publish the message again through its queue's dead-letter exchange; it is dropped when it reaches no queue.

    At once, if its headers are short and those of the letter are known; else in its turn in the line of letters.
    """
    obituary, died = queue.obituary, int(time.time())
    if (
        obituary is not None
        and (queues := obituary.queues) is not None
        and obituary.fits(queue, queue.settings, message, reason, died)
        and header_frame_size(message.content.frames) <= SHORT
        and _is_simple(message)
    ):
        if queues:
            queue.batch.letters.send(obituary.letter(message).message, queues)
        return
    queue.batch.letters.put(_Dying(queue, message, reason, died))


class _Dying(Letter):
    """A message that has died, in the line of letters: what the letter is and where it goes is found in its turn."""

    __slots__ = ("_died", "_queue", "_reason", "_settings")

    def __init__(self, queue: DyingQueue, message: Message, reason: Reason, died: int) -> None:
        super().__init__(message, None)
        self._queue, self._settings, self._reason, self._died = queue, queue.settings, reason, died

    def open(self) -> None:
        queue = self._queue
        letter = _address(queue, self._settings, self.message, self._reason, self._died)
        self.left = 0
        if letter is not None:
            exchanges = queue.vhost.exchange_sinks(letter.route, letter.keys)
            self.address(letter.message, (*letter.queues, *exchanges) if exchanges else letter.queues)


def _address(queue: DyingQueue, settings: QueueSettings, message: Message, reason: Reason, died: int) -> _Letter | None:
    """The letter and its route now; None when there is no dead-letter exchange, or no queue is bound."""
    vhost, exchange = queue.vhost, settings.dead_letter_exchange
    if exchange is None or not vhost.router.has_exchange(exchange):
        return None
    if _is_simple(message):
        obituary = queue.obituary
        if obituary is None or not obituary.fits(queue, settings, message, reason, died):
            obituary = queue.obituary = Obituary(queue, settings, exchange, message, reason, died)
        if obituary.queues is not None:
            return obituary.letter(message) if obituary.queues else None
    source = message.content
    expiration = source.expiration
    raw = source.raw_properties
    keys = keys_of(message)
    before, others = take_headers(raw, _REWRITTEN)
    after = dead_letter_headers(
        before,
        queue=queue.name,
        reason=reason,
        exchange=message.address.exchange,
        routing_keys=keys,
        time=died,
        expiration=None if expiration is None else expiration.decode("utf-8", "surrogateescape"),
        bcc=message.bcc,
        died_before=message.died,
    )
    entries = others + write_table(cast("dict[str, FieldValue]", after))[4:]
    frames = replace_raw_properties(source.frames, with_headers(without_expiration(raw), entries))
    content = Content(source.channel, source.method, frames, source.body_size)
    routing_keys = dead_letter_keys(settings.dead_letter_routing_key, keys)
    route = route_message(
        vhost.router, exchange, routing_keys, content.decode_properties, lambda: content.body, lenient=True
    )
    queues = vhost.receivers(without_cycles(reason, after, route.queues))
    if not queues and not route.delayed and not route.remembered:
        return None
    bcc = message.bcc if settings.dead_letter_routing_key is None else ()
    marked = MarkedMessage(Address(exchange, routing_keys[0]), content, routing_keys, bcc, died=True)
    return _Letter(marked, routing_keys, route, queues)


def _is_simple(message: Message) -> bool:
    """Whether the address alone decides its route, and its headers have no earlier deaths."""
    if message.died or message.keys or message.bcc:
        return False
    flags = message.content.flags
    if flags & EXPIRATION:
        return False
    if not flags & HEADERS:
        return True
    raw = message.content.raw_properties
    return b"-death" not in raw and b"CC" not in raw


class Obituary:
    """Headers and route of the letters of one address that die in one queue, in one second, for one reason.

    `queues` is None where each letter has to be routed on its own.
    """

    __slots__ = (
        "_address", "_died", "_entries", "_from", "_keys", "_reason", "_route", "_settings", "_version", "queues",
    )  # fmt: skip

    def __init__(
        self,
        queue: DyingQueue,
        settings: QueueSettings,
        exchange: str,
        message: Message,
        reason: Reason,
        died: int,
    ) -> None:
        router = queue.vhost.router
        self._from, self._reason, self._died = message.address, reason, died
        self._version, self._settings = router.version, settings
        keys = (message.address.routing_key,)
        after = dead_letter_headers(
            {},
            queue=queue.name,
            reason=reason,
            exchange=message.address.exchange,
            routing_keys=keys,
            time=died,
            died_before=False,
        )
        self._entries = write_table(cast("dict[str, FieldValue]", after))[4:]
        self._keys = dead_letter_keys(settings.dead_letter_routing_key, keys)
        self._address = Address(exchange, self._keys[0])
        self._route = router.route_keys(exchange, (self._keys[0],), lenient=True)
        self.queues: tuple[Receiver, ...] | None = None
        if self._route.cacheable and not self._route.delayed and not self._route.remembered:
            names = without_cycles(reason, after, self._route.queues)
            self.queues = queue.vhost.receivers(names)

    def fits(self, queue: DyingQueue, settings: QueueSettings, message: Message, reason: Reason, died: int) -> bool:
        """Whether this obituary is for such a message."""
        return (
            self._from is message.address
            and self._died == died
            and self._reason == reason
            and self._settings is settings
            and self._version == queue.vhost.router.version
        )

    def letter(self, message: Message) -> _Letter:
        """The message as a letter to `queues`."""
        source = message.content
        content = Content(source.channel, source.method, append_headers(source.frames, self._entries), source.body_size)
        marked = MarkedMessage(self._address, content, self._keys, died=True)
        return _Letter(marked, self._keys, self._route, self.queues or ())


class _Waiting:
    """A message that died, and the queues that have its letter already (`taken`)."""

    __slots__ = ("count", "died", "kept", "message", "noted", "position", "reason", "sending", "taken", "unsynced")

    def __init__(self, message: Message, reason: Reason, died: int, position: int | None, count: int) -> None:
        self.message, self.reason, self.died, self.position, self.count = message, reason, died, position, count
        self.noted = False  # whether the disk has it that it waits
        self.taken: set[str] = set()
        self.sending = False  # whether its letter is in the line of letters
        self.kept = False  # whether the exchanges that hold messages have it
        self.unsynced = 0  # the number of queues that have it, but not on disk


class DeadLetters:
    """The dead letters of one queue that are not safe yet: `count` of them, with `bytes` bytes of body in total."""

    def __init__(self, queue: DyingQueue) -> None:
        self._queue = queue
        self._waiting: dict[_Waiting, None] = {}  # oldest first; one that was tried again goes to the end
        self._retry: Timer | None = None
        self._trying_again = self._tries_anew = self._is_last = False
        self.bytes = 0

    @property
    def count(self) -> int:
        return len(self._waiting)

    def add(self, message: Message, reason: Reason, position: int | None, count: int = 0) -> None:
        """Add a message that died in the queue after so many returns, at that position if it was ever in it."""
        entry = _Waiting(message, reason, int(time.time()), position, count)
        self._waiting[entry] = None
        self.bytes += message.content.body_size
        self._try(entry)

    def _try(self, entry: _Waiting) -> None:
        self._send(entry)
        self._check(entry)

    def _check(self, entry: _Waiting) -> None:
        """Try the letter again later, if it found no place."""
        if entry not in self._waiting or entry.unsynced or entry.sending:
            return
        if not entry.noted and entry.position is not None:
            entry.noted = True
            self._queue.note_dead(entry.position, entry.count, entry.reason)
        if not self._trying_again and self._retry is None:
            log.warning(
                "%s: a dead letter finds no exchange, no queue, or a queue that is full; it is tried again every %d s",
                self._queue, RETRY_MS // 1000,
            )  # fmt: skip
            self._retry_in(RETRY_MS)

    def try_again(self) -> None:
        """Try all waiting letters again, in steps."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._trying_again:
            self._tries_anew = True  # routes may have changed since it began
        elif self._waiting:
            self._trying_again = True
            self._queue.batch.slices.run(self._all_again())

    def try_a_last_time(self) -> None:
        """As `try_again`; letters that find no place are dropped."""
        self._is_last = True
        self.try_again()

    def _all_again(self) -> Work:
        stopwatch = self._queue.batch.slices.stopwatch
        began = stopwatch()
        for number, entry in enumerate(tuple(self._waiting), 1):
            if entry in self._waiting and not entry.unsynced and not entry.sending:
                self._send(entry)
            if not number % LETTERS_PER_STEP:
                yield
                if self._queue.deleted:
                    break
        letters = self._queue.batch.letters
        if not letters.free:
            letters.wait()  # what the trial takes counts, and which letters find no place
            yield
        self._trying_again, anew = False, self._tries_anew
        self._tries_anew = False
        if self._queue.deleted:
            self.forget()
        elif anew:
            self.try_again()
        elif self._is_last:
            self.forget()
        elif self._waiting and self._retry is None:
            self._retry_in(max(RETRY_MS, int((stopwatch() - began) * 1000 * REST)))

    def forget(self) -> None:
        """Drop waiting letters: the queue is deleted, or its strategy has changed."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._settle(entry for entry in self._waiting if not entry.sending and not entry.unsynced)
        sent = [entry for entry in self._waiting if entry.sending or entry.unsynced]
        if sent:
            self._queue.batch.cover_earlier()
            self._queue.batch.when_safe(partial(self._settle, sent))
        self._waiting.clear()
        self.bytes = 0

    def _retry_in(self, milliseconds: int) -> None:
        timers = self._queue.timers
        self._retry = timers.at(timers.now() + milliseconds, self.try_again)

    def _send(self, entry: _Waiting) -> None:
        """Put the letter into the line of letters, to publish it to the queues that lack it.

        It is done when all have it, and stored queues have it on disk.
        """
        entry.sending = True
        self._queue.batch.letters.put(_Sending(self, entry))

    def address(self, entry: _Waiting) -> _Letter | None:
        """The letter and its route now; None when it finds no exchange or no queue."""
        return _address(self._queue, self._queue.settings, entry.message, entry.reason, entry.died)

    def publish(self, entry: _Waiting, letter: _Letter, queue: Receiver) -> bool:
        """Publish a letter to one of its queues. Returns whether the queue took it."""
        if not queue.publish(letter.message):
            return False
        entry.taken.add(queue.name)
        if queue.stored:
            entry.unsynced += 1
            queue.when_durable(partial(self._synced, entry))
        return True

    def sent(self, entry: _Waiting, letter: _Letter | None, all_took_it: bool) -> None:
        """Act on the last publication of a letter; None: it finds no place."""
        entry.sending = False
        if letter is None:
            self._check(entry)
            return
        if not entry.kept:
            entry.kept = True
            for sink in self._queue.vhost.exchange_sinks(letter.route, letter.keys):
                sink.publish(letter.message)
        if all_took_it and not entry.unsynced:
            self._done(entry)
        self._check(entry)

    def _synced(self, entry: _Waiting) -> None:
        entry.unsynced -= 1
        if not entry.unsynced and not entry.sending and entry in self._waiting:
            self._try(entry)  # other queues may have been full, and routes may have changed meanwhile

    def _done(self, entry: _Waiting) -> None:
        if entry in self._waiting:
            del self._waiting[entry]
            self.bytes -= entry.message.content.body_size
            self._queue.dead["confirmed"] += 1
            self._settle((entry,))

    def _settle(self, entries: Iterable[_Waiting]) -> None:
        """Settle the messages in the queue."""
        positions = [entry.position for entry in entries if entry.position is not None]
        if positions:
            self._queue.settle(positions)


class _Sending(Letter):
    """The letter of a message that waits, in the line of letters."""

    __slots__ = ("_all_took_it", "_entry", "_letter", "_owner", "_queues")

    def __init__(self, owner: DeadLetters, entry: _Waiting) -> None:
        super().__init__(entry.message, None)
        self._owner, self._entry = owner, entry
        self._letter: _Letter | None = None
        self._queues: list[Receiver] = []
        self._all_took_it = True

    def open(self) -> None:
        letter, entry = self._owner.address(self._entry), self._entry
        if letter is not None:
            self._queues = [queue for queue in letter.queues if queue.name not in entry.taken]
        self._letter, self.left = letter, len(self._queues)

    def publish(self, count: int) -> None:
        letter, at = self._letter, len(self._queues) - self.left
        if letter is None:
            return
        for queue in self._queues[at : at + count]:
            if not self._owner.publish(self._entry, letter, queue):
                self._all_took_it = False

    def end(self) -> None:
        self._owner.sent(self._entry, self._letter, self._all_took_it)
