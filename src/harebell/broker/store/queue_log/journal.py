"""The journal of one durable queue, between its messages and its log on disk.

Delayed exchanges store the messages that they hold in one too.

- Persistent messages go into the log; transient ones stay in memory, and end with the process.
- A message that leaves the queue is settled. Where something else has to be durable first (a dead letter, the rest of a
  transaction), the queue waits for the disk (`Batch.when_safe`) before it settles the message.
- A long backlog stays on disk: once `ready` has PAGE_MESSAGES or takes about PAGE_BYTES, new messages are only written,
  and are read again when the queue reaches them. Transient messages are then written too, with a flag.
- Paged messages are read in two forms. A drain goes from the file to the consumer (`read_ahead`, `ahead`): a message is
  a slice of the bytes read, without an object of its own. Any other use takes records (`next_run`).
- A restart finds all messages that are not settled, a mark on those that may have been delivered, and what some of them
  waited for.

It knows messages and files, but no consumers.
"""

from __future__ import annotations

import json
import logging
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from harebell.broker.message import STORED_CHANNEL, Address, Held, MarkedMessage, Message, NumberedMessage
from harebell.broker.slices import Work
from harebell.broker.store.queue_log.cursor import QueueCursor
from harebell.broker.store.queue_log.log import QueueLog
from harebell.broker.store.queue_log.records import NUMBER_BYTES, NUMBERED, TRANSIENT, Stored
from harebell.defaults import FRAME_MAX
from harebell.protocol.v091 import Content
from harebell.protocol.v091.content import stored_content
from harebell.routing import Reason

__all__ = ["Journal"]

log = logging.getLogger("harebell.broker.journal")

PAGE_MESSAGES: Final = 16_384
PAGE_BYTES: Final = 64 * 1024 * 1024
RUN: Final = 2048  # messages read back at a time
MAX_ADDRESSES: Final = 1024
NOTHING: Final[tuple[tuple[Address, bytes], ...]] = ()
# The number that a log has of a return: how often the message came back, and in the bits above what it waits for, until
# which time of the wall clock in milliseconds, or, from DIED on, as a dead letter that died for one of REASONS.
COUNT_BITS: Final = 16
COUNTED: Final = (1 << COUNT_BITS) - 1
DIED: Final = 1 << 46
REASONS: Final[tuple[Reason, ...]] = ("rejected", "expired", "maxlen", "delivery_limit")
MAX_MARKS: Final = 0xFFFF - NUMBER_BYTES  # the log's limit; longer ones are written before the frames


class Journal:
    """A queue's journal. `name` is the queue, for log lines; `changed` is called at the first write after each `flush`.

    note   takes what `QueueLog.recover` finds of sessions' commands
    next   the position that the next message gets, where the queue is plain
    paged  the number of messages that are only on disk, all of them behind those in memory
    page_at  the position of the first of these
    ahead  the first `ahead_count` of them, plain and without a gap: address and frames of each
    """

    def __init__(
        self,
        name: str,
        queue_log: QueueLog,
        changed: Callable[[], None],
        now: Callable[[], int],
        note: Callable[[list[bytes]], bool],
    ) -> None:
        self.log = queue_log
        self.next = queue_log.next_position
        self.paged = self.page_at = 0
        self.waiting: dict[int, int] = {}  # by place, for what; from the start until the queue has taken them
        self._name = name
        self._changed, self._now, self._note = changed, now, note
        self._dirty = self._syncs_settlements = self._syncs_recovered = False
        self._used = False  # whether anything was ever stored
        self._idle = True  # whether nothing was written since the last `rest`
        self._cursor: QueueCursor | None = None
        self.ahead: Iterator[tuple[Address, bytes]] = iter(NOTHING)
        self.ahead_count = 0
        self._records: deque[Stored] = deque()  # read from the log, but not requested yet
        self._addresses = Addresses()

    # -- writing -------------------------------------------------------------------------------------------------

    def store(self, position: int, message: Message, deadline: int = 0, *, paged: bool = False) -> None:
        """Store a message at this position. `deadline` is in milliseconds of the node's clock, 0: none."""
        content = message.content
        persistent = content.persistent
        if not persistent and not paged:
            return
        frames = content.frames
        if content.channel != STORED_CHANNEL or len(frames) > FRAME_MAX:
            frames = content.recut(STORED_CHANNEL, FRAME_MAX)
        expiry = 0 if not deadline else _wall_clock() + deadline - self._now()
        flags, marks = 0 if persistent else TRANSIENT, b""
        if type(message) is not Message:
            flags, marks, frames = _marked(message, flags, frames)
        self.log.append(position, message.address.wire, frames, expiry, flags, marks)
        if not self._dirty:
            self._used = True
            self.touch()

    def store_all(self, position: int, messages: Sequence[Message], *, paged: bool = False) -> None:
        """As `store`, for messages without a deadline from this position on."""
        batch: list[tuple[int, bytes, bytes, int, int, bytes]] = []
        numbered = False
        for place, message in enumerate(messages, position):
            content = message.content
            persistent = content.persistent
            if not persistent and not paged:
                continue
            frames = content.frames
            if content.channel != STORED_CHANNEL or len(frames) > FRAME_MAX:
                frames = content.recut(STORED_CHANNEL, FRAME_MAX)
            flags, marks = 0 if persistent else TRANSIENT, b""
            if type(message) is NumberedMessage and persistent:
                flags, marks, numbered = NUMBERED, message.number, True
            elif type(message) is not Message:
                flags, marks, frames = _marked(message, flags, frames)
                numbered = numbered or flags == NUMBERED
            batch.append((place, message.address.wire, frames, 0, flags, marks))
        if batch:
            self.log.append_all(batch, numbered=numbered)
            if not self._dirty:
                self._used = True
                self.touch()

    def page_all_out(self, position: int, messages: Sequence[Message]) -> None:
        """As `page_out`, for messages from this position on."""
        self.store_all(position, messages, paged=True)
        if not self.paged:
            self._forget_page()
            self.page_at = position
        self.paged += len(messages)

    def page_out(self, position: int, message: Message, deadline: int = 0) -> None:
        """Write a message without keeping it in memory; until there are no `paged` messages, all that follow it too."""
        self.store(position, message, deadline, paged=True)
        if not self.paged:
            self._forget_page()
            self.page_at = position
        self.paged += 1

    @staticmethod
    def is_full(count: int, message: Message) -> bool:
        """Whether `count` messages like this one reach the limit of memory."""
        return count >= PAGE_MESSAGES or count * len(message.content.frames) > PAGE_BYTES

    def settle(self, position: int, count: int = 1) -> None:
        """Settle `count` messages from `position` on."""
        if self._used:
            self.log.settle(position, count)
            self.touch()

    def settle_many(self, positions: Sequence[int]) -> None:
        """Settle the messages at these positions, which are in order."""
        if self._used and positions:
            self.log.settle_many(positions)
            self.touch()

    def fed(self, position: int, count: int, no_ack: bool) -> None:
        """Note that `count` messages from `position` on went to a consumer."""
        if self._used and count:
            if no_ack:
                self.log.settle(position, count)
            else:
                self.log.delivered(position + count)
            self.touch()

    def handed(self, held: Held, no_ack: bool) -> None:
        """Note that a message went to a consumer; one that had come back counts as having come back once more.

        So a message that ends the process each time has a count that grows. The count of one that comes back without
        being counted, or that fits nobody, is noted again by `returned`.
        """
        self.fed(held.position, 1, no_ack)
        if held.count and self._used and not no_ack:
            self.log.returned(held.position, min(held.count + 1, COUNTED))

    def returned(self, held: Held, delay: int = 0) -> None:
        """Note that a message came back; it waits `delay` milliseconds for its retry."""
        if self._used:
            until = min(_wall_clock() + delay, DIED - 1) if delay else 0
            self.log.returned(held.position, min(held.count, COUNTED) | until << COUNT_BITS)
            self.touch()

    def died(self, position: int, count: int, reason: Reason) -> None:
        """Note that a message waits as a dead letter, after that many returns."""
        if self._used:
            waits = DIED + REASONS.index(reason)
            self.log.returned(position, min(count, COUNTED) | waits << COUNT_BITS)
            self.touch()

    @property
    def unfinished(self) -> bool:
        """Whether the last `flush` left work for another one: many segments have nothing left at once."""
        return self.log.unfinished

    def touch(self) -> None:
        """Let the end of the batch flush the journal."""
        if not self._dirty:
            self._dirty, self._idle = True, False
            self._changed()

    def flush(self) -> int:
        """Write the batch. Returns the ticket of the sync that will cover it. OSError when the disk refuses."""
        self._dirty = False
        ticket = self.log.flush()
        if self._syncs_settlements:
            ticket = max(ticket, self.log.sync_settled())
            self._syncs_settlements = False
        if self._syncs_recovered:
            ticket = max(ticket, self.log.sync_recovered())
            self._syncs_recovered = False
        return ticket

    def sync_settlements(self) -> None:
        """Let the sync of the next `flush` cover the settlements too, those that were written before included."""
        if self._used:
            self._syncs_settlements = True
            self.touch()

    def sync_recovered(self) -> None:
        """Let the sync of the next `flush` cover what recovery found."""
        self._used = self._syncs_recovered = True
        self.touch()

    # -- reading back --------------------------------------------------------------------------------------------

    def read_ahead(self) -> int:
        """Read the next paged messages into `ahead`, if they are plain and flushed. Returns their number.

        They stay paged until `fed_ahead`. OSError when the disk refuses.
        """
        if not self.ahead_count and self.paged and not self._records:
            if self._cursor is None:
                self._cursor = self.log.read(self.page_at)
            first, addresses, frames = self._cursor.read_run(self.paged, self._addresses)
            if frames:
                self.page_at = first
                self.ahead, self.ahead_count = zip(addresses, frames, strict=True), len(frames)
        return self.ahead_count

    def fed_ahead(self, count: int, no_ack: bool) -> None:
        """Note that the first `count` messages of `ahead` went to a consumer."""
        self.fed(self.page_at, count, no_ack)
        self.ahead_count -= count
        self.paged -= count
        self.page_at += count
        if not self.paged:
            self._forget_page()

    def next_run(self) -> list[Stored]:
        """The next of the paged messages: a run without gaps, or a run of those that may have been delivered before.

        They are no longer paged. Only flushed messages are read; [] at their end. OSError when the disk refuses.
        """
        if self.ahead_count:
            self._forget_page()
        records = self._records
        if not records:
            if self._cursor is None:
                self._cursor = self.log.read(self.page_at)
            records.extend(self._cursor.read(min(RUN, self.paged)))
        run: list[Stored] = []
        while records:
            if run and (records[0].delivered or run[0].delivered or records[0].position != run[-1].position + 1):
                break
            run.append(records.popleft())
        if run:
            self.paged -= len(run)
            self.page_at = run[-1].position + 1
        if not self.paged:
            self._forget_page()
        return run

    def peek(self, position: int, count: int) -> list[Held]:
        """Read up to `count` paged messages from that position on, without taking them out."""
        cursor = self.log.read(max(position, self.page_at))
        try:
            return [self.held(stored) for stored in cursor.read(count)]
        finally:
            cursor.close()

    def settle_paged(self) -> None:
        """Settle all paged messages."""
        if self.paged:
            self.settle(self.page_at, self.next - self.page_at)
            self.forget_paged()

    def forget_paged(self) -> int:
        """Drop the record of paged messages. Returns their number."""
        count, self.paged = self.paged, 0
        self._forget_page()
        return count

    def _forget_page(self) -> None:
        self._records.clear()
        self.ahead, self.ahead_count = iter(NOTHING), 0
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def message(self, stored: Stored) -> Message:
        """The message of a record in the log."""
        address, frames = self._addresses[stored.address], stored.frames
        marks = stored.marks[NUMBER_BYTES:] if stored.flags & NUMBERED else stored.marks
        if not marks:
            return Message(address, stored_content(STORED_CHANNEL, frames))
        told = json.loads(marks)
        if size := told.get("before_frames"):
            told, frames = json.loads(frames[:size]), frames[size:]
        return _decoded(told, address, stored_content(STORED_CHANNEL, frames))

    def held(self, stored: Stored) -> Held:
        """The message with its place, its deadline, and how often it came back: at least once, if it was delivered."""
        deadline = 0
        if stored.expiry:
            deadline = max(1, self._now() + stored.expiry - _wall_clock())
        held = Held(self.message(stored), stored.position, deadline)
        if stored.delivered:
            held.count = max(1, stored.delivery_count & COUNTED)
        return held

    # -- life ----------------------------------------------------------------------------------------------------

    def recover(self, *, suspect: bool) -> bool:
        """Recover the log; all of its messages are paged. Returns whether any of them expires."""
        self.log.recover(suspect=suspect, note=self._note)
        self.paged, self.page_at, self.next = self.log.count, self.log.first, self.log.next_position
        self._used = self.paged > 0
        if self.log.cut:
            log.warning("%s: cut %d bytes of a torn record at its end", self._name, self.log.cut)
        for damage in self.log.damages:
            log.error(
                "%s: %s is damaged: %d bytes at %d cannot be read, with at most %d messages (positions %d to %d)",
                self._name, damage.path, damage.size, damage.at, damage.lost, *damage.positions,
            )  # fmt: skip
        self.waiting = {at: number >> COUNT_BITS for at, number in self.log.returns() if number > COUNTED}
        return self.log.expires

    def over(self, limit: int) -> list[int]:
        """The places of messages that came back more often than that, and do not wait for anything."""
        return sorted(at for at, number in self.log.returns() if limit < number <= COUNTED)

    def take_waiting(self) -> Iterator[tuple[int, int, Reason | None]]:
        """What waited when the last process ended: places, milliseconds until the retry, and why each letter died."""
        waiting, self.waiting = self.waiting, {}
        for position, waits in sorted(waiting.items()):
            if waits >= DIED:
                yield position, 0, REASONS[(waits - DIED) % len(REASONS)]
            else:
                yield position, max(0, waits - _wall_clock()), None

    def rest(self) -> None:
        """If nothing was written since the last call, sync the settlements and close the files."""
        if self._idle and self._used and not self._dirty:
            self.log.sync_settled()
            self.log.rest()
        self._idle = True

    def close(self) -> None:
        """Write and sync everything."""
        self._forget_page()
        self.log.close()

    def delete(self) -> Work:
        """Remove the journal's files, in steps."""
        self._forget_page()
        return self.log.delete()


class Addresses(dict[bytes, Address]):
    """Addresses by their wire form, for the most recent ones."""

    def __missing__(self, wire: bytes) -> Address:
        if len(self) >= MAX_ADDRESSES:
            self.clear()
        address = self[wire] = Address.read(wire)
        return address


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _marked(message: Message, flags: int, frames: bytes) -> tuple[int, bytes, bytes]:
    """Flags, marks and frames of a record whose message is no plain one; `flags` is TRANSIENT, or 0.

    Marks that are too long for the record's own field are before the frames, and the field has their size.
    """
    marks = b"" if type(message) is NumberedMessage else encode_marks(message)
    if len(marks) > MAX_MARKS:
        marks, frames = json.dumps({"before_frames": len(marks)}).encode(), marks + frames
    if message.number and not flags:
        return NUMBERED, message.number + marks, frames
    return flags, marks, frames


def encode_marks(message: Message) -> bytes:
    """The parts of a MarkedMessage beside its address and content, in bytes; b"" when there are none."""
    marks: dict[str, object] = {}
    if message.keys is not None:
        marks["keys"] = message.keys
    if message.bcc:
        marks["bcc"] = message.bcc
    if message.died:
        marks["died"] = True
    if message.ttl is not None:  # 0 is one too
        marks["ttl"] = message.ttl
    if message.origin:
        marks["origin"] = b64encode(message.origin).decode()
    return json.dumps(marks).encode() if marks else b""


def decode_marks(marks: bytes, address: Address, content: Content) -> MarkedMessage:
    return _decoded(json.loads(marks), address, content)


def _decoded(told: dict[str, Any], address: Address, content: Content) -> MarkedMessage:
    keys = told.get("keys")
    return MarkedMessage(
        address,
        content,
        None if keys is None else tuple(keys),
        tuple(told.get("bcc", ())),
        died=told.get("died", False),
        ttl=told.get("ttl"),
        origin=b64decode(told.get("origin", "")),
    )
