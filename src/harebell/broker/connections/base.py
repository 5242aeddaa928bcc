"""A client's connection, without its dialect: its phase, its input and output, what holds it back, and its end.

Input is processed in parts, and one or more parts are one batch: the dialect (`take_in`) splits a part into events and
processes them, and the batch is ended (delivers, writes, confirms).

One client must not keep the others waiting: a long read is processed in several pieces, requests only as long as one
slice of time holds, and a long request (`work`) in slices. What follows waits (`unread`, `waiting`), so that a client
sees its requests processed in their order, each whole before the next.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final, Generic, Protocol, TypeVar

from harebell.broker.auth import Access
from harebell.broker.connections.credit_flow import CreditFlow
from harebell.broker.connections.deferred_input import DeferredInput
from harebell.broker.connections.phase import Phase
from harebell.broker.connections.transport import Transport
from harebell.broker.connections.unread_input import PART, UnreadInput
from harebell.broker.node import Node
from harebell.broker.queues.base import Queue
from harebell.broker.slices import Work
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError
from harebell.protocol.v091 import Table

__all__ = ["BaseConnection", "Output"]

FLUSH_BYTES: Final = 1 << 19  # output gathered for one write; more would only cost memory
WAITING_BYTES: Final = 1 << 17  # input that waits for the end of an alarm, above which the socket is not read
OUTPUT_BYTES: Final = 8 << 20  # output not yet taken by the client, above which its requests wait
CLOSING_TIMEOUT: Final = 30.0  # seconds for the answer to our connection.close, RabbitMQ's
LINGER: Final = 3.0  # seconds for a client to close its socket when it has the last answer

E = TypeVar("E")
log = logging.getLogger("harebell.broker.connection")


class Output(Protocol):
    """The output of an engine."""

    @property
    def pending(self) -> int:
        """0 when there is none."""

    @property
    def waiting(self) -> bool:
        """Whether the client sent ahead of an answer that it has by now."""

    def data_to_send(self) -> bytes: ...


class BaseConnection(Generic[E]):
    """One client's connection. `writable` is False while its socket takes no more output. E are its events.

    The socket is not read while the connection is `held` by credit flow, or `choked` because the client does not take
    the output that it requested, or `busy` with long work, or while dead letters that its input caused wait in their
    line; while it is `blocked` by an alarm, its publications wait (see `waiting`). `recv_oct` and `send_oct` are bytes,
    `recv_cnt` and `send_cnt` reads and writes.
    """

    protocol: str
    heartbeat_frame: bytes

    def __init__(self, node: Node, transport: Transport, output: Output, waiting: DeferredInput[E]) -> None:
        self.node = node
        self.batch = node.batch
        self.transport = transport
        self.phase = Phase.OPENING
        self.vhost: VirtualHost = node.lobby
        self.pid = node.new_pid()
        self.user = self.mechanism = ""
        self.heartbeat = 0  # seconds, as negotiated, from connection.open on; before, the handshake has a time limit
        self.connected_at = int(time.time() * 1000)
        self.access: Access  # from connection.open on
        self.client_properties: Table = {}
        self.exclusive_queues: list[Queue] = []
        self.recv_oct = self.recv_cnt = self.send_oct = self.send_cnt = 0
        self.writable = True
        self.blocked = self.held = self.choked = self.busy = False
        self.awaits_letters = self._at_work = False
        self._output = output
        self._unread = UnreadInput(self.batch.slices, self._take_part, self.end_batch, self._is_held_up, self._went_on)
        self.read_size = self.partial_size = 0  # bytes of the batch, and those of a message not complete
        self._gone = self._paused = self._dirty = False  # whether the transport has ended, ...
        self.waiting = waiting
        self.events: Iterator[tuple[int, E]] = iter(())  # of the current batch
        self._credit = CreditFlow()
        self._output_bytes = 0

    # -- what the dialects differ in -----------------------------------------------------------------------------

    @abstractmethod
    def take_in(self, data: bytes, at: int, most: int) -> tuple[bytes, int]:
        """Process input of the current batch: `data` from `at` on, about `most` bytes of it.

        Returns what is left, and where that begins.
        """

    @abstractmethod
    def process_events(self, events: Sequence[tuple[int, E]]) -> None:
        """Process the events, until the input has to wait."""

    @abstractmethod
    def releasing(self) -> Work:
        """End the channels or sessions: the connection is closed or lost."""

    @abstractmethod
    def refuse(self, number: int, error: AmqpError, event: E) -> None:
        """Answer an event of a channel with an error."""

    @abstractmethod
    def has_channel(self, number: int) -> bool: ...

    @abstractmethod
    def forget(self) -> None:
        """Remove the connection from the node's."""

    @abstractmethod
    def schedule_consumers(self) -> None:
        """Let the queues of all consumers deliver."""

    @abstractmethod
    def notify_blocked(self, blocked: bool) -> None:
        """Notify the client that its publications wait, or not any more, where the dialect has words for it."""

    @abstractmethod
    def close(self, error: AmqpError) -> None:
        """Close the connection with a reply code; the transport is closed when the client has answered."""

    def pieces(self, size: int) -> Sequence[bytes | memoryview]:
        """The output, about `size` bytes, in one or more pieces."""
        return (self._output.data_to_send(),)

    @property
    def name(self) -> str:
        """The two ends, as RabbitMQ names a connection."""
        return f"{self.transport.peer} -> {self.transport.local}"

    @property
    def state(self) -> str:
        """The state in RabbitMQ's words: starting, running, blocked (by an alarm), flow (not read), closing, closed."""
        if self.phase is Phase.OPEN:
            if self.blocked:
                return "blocked"
            return "flow" if self.held or self.choked or self.awaits_letters else "running"
        return {Phase.OPENING: "starting", Phase.CLOSING: "closing", Phase.CLOSED: "closed"}[self.phase]

    # -- input ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Process a read: at once if it is short, else a piece at once and the others in slices."""
        self.recv_oct += len(data)
        self.recv_cnt += 1
        if self._unread.reads or len(data) > PART:
            self._unread.add(data)
            self._unread.go_on()
            self.pause_or_resume()
        else:
            self.take_in(data, 0, len(data))
            self.end_batch()

    def _take_part(self, data: bytes, at: int) -> tuple[bytes, int]:
        rest, begins = self.take_in(data, at, PART)
        return (b"", 0) if self.phase is Phase.CLOSED else (rest, begins)

    def end_batch(self) -> None:
        size, self.read_size = self.read_size, 0
        self._await_letters()
        self.batch.end(self, size)
        if self._output.waiting:
            self.read_on()

    def read_on(self) -> None:
        """Process what the client sent ahead of the broker's last answer in the handshake."""
        if self._output.waiting:
            self.take_in(b"", 0, 0)
            self.end_batch()

    def process(self, events: Sequence[tuple[int, E]]) -> None:
        """Process the events, until the input has to wait, in the connection's share of the time."""
        share = self.batch.slices.input_share
        outer = share.enter(self.spend)
        try:
            self.process_events(events)
        finally:
            share.leave(outer)

    def spend(self, count: int) -> None:
        """Count operations of costly publications: after a slice of them, the connection's further input waits."""
        if self.batch.slices.input_share.spend(count) and not self.busy:
            self.take_turns()

    def take_turns(self) -> None:
        """Let the rest of the input wait until others have had their turns."""
        self._wait()
        self.batch.slices.later(self._resume())

    def work(self, number: int, event: E, work: Work) -> None:
        """Process a long request of a channel in slices; the connection's input waits until that is done.

        The work may raise AmqpError, as the handler of a request.
        """
        self._at_work = True
        if not self.batch.slices.run(self._working(number, event, work)):
            self._wait()

    def _working(self, number: int, event: E, work: Work) -> Work:
        try:
            yield from work
        except AmqpError as error:
            if self.has_channel(number):
                self.refuse(number, error, event)
                self.has_output(0)
        finally:
            self._at_work = False
            if self.busy:
                self.busy = False
                self._went_on()

    def _wait(self) -> None:
        """Let all further input wait until the work that has begun is done."""
        self.busy = True
        self.waiting.add(self.events)
        self.pause_or_resume()

    def _resume(self) -> Work:
        if not self._at_work:  # else a work began after the input had to wait; its end lets the input go on
            self.busy = False
            self._went_on()
        yield

    def _went_on(self) -> None:
        """Go on with the input: a work is done."""
        self._go_on()
        self._unread.go_on()
        self.pause_or_resume()
        if self._gone and not self.busy and not self.awaits_letters and not self._unread.reading:
            self._lose()

    def _is_held_up(self) -> bool:
        return self.busy or self.choked or self.awaits_letters

    @property
    def peer(self) -> str:
        return self.transport.peer

    @property
    def local(self) -> str:
        return self.transport.local

    @property
    def tls(self) -> tuple[str, str] | None:
        return self.transport.tls

    @property
    def unsent(self) -> int:
        return self.transport.unsent

    @property
    def is_open(self) -> bool:
        """Whether the client is logged in, in a virtual host, and not closing."""
        return self.phase is Phase.OPEN

    @property
    def is_opening(self) -> bool:
        """Whether the client is not in a virtual host yet, and not closing."""
        return self.phase is Phase.OPENING

    def enter(self, vhost: VirtualHost, access: Access) -> None:
        """End the handshake: the client may use the virtual host."""
        self.vhost, self.access = vhost, access
        self.phase = Phase.OPEN
        self.transport.set_heartbeat(self.heartbeat)

    # -- the end -------------------------------------------------------------------------------------------------

    def lost(self) -> None:
        """End the connection: its transport is gone. What it has sent is processed first."""
        self._gone, self.writable = True, False
        if not self.busy and not self.awaits_letters and not self._unread.reading:
            self._lose()

    def _lose(self) -> None:
        if self.phase is Phase.OPEN:
            log.info("%s: the connection ended without connection.close", self.transport.peer)
        self.phase = Phase.CLOSED
        self.batch.held.discard(self)
        self.batch.awaiting_letters.pop(self, None)
        self.batch.slices.run(self._losing())
        self.batch.end()

    def _losing(self) -> Work:
        yield from self.releasing()
        self.forget()

    def release(self) -> None:
        self.batch.slices.run(self.releasing())

    def end(self, after: float = 0.0) -> None:
        """Send the remaining output and end it; with `after`, close the transport so many seconds from now instead."""
        self.phase = Phase.CLOSED
        self._unread.clear()
        self.pause_or_resume()  # what the client still sends is read and dropped
        self.flush()
        if after:
            self.transport.close(after)
        else:
            self.transport.finish(LINGER)

    # -- holding back --------------------------------------------------------------------------------------------

    def charge(self, ticket: int, size: int) -> None:
        """Charge a batch of `size` bytes that waits for a sync: over `flow`'s limit, stop reading until `grant`."""
        if self._credit.charge(ticket, size, self.batch.commit.synced) and self.phase is Phase.OPEN:
            self.held = True
            self.batch.held.add(self)
            self.pause_or_resume()

    def grant(self) -> None:
        """Credit a finished sync: read again, if that was enough."""
        if self._credit.grant(self.batch.commit.synced):
            self.held = False
            self.batch.held.discard(self)
            self.pause_or_resume()

    def _await_letters(self) -> None:
        """Let further input wait, if dead letters that this batch caused wait in their line."""
        if self.batch.letters.waits:
            self.awaits_letters = True
            self.batch.awaiting_letters[self] = self.batch.letters.opened
            self.pause_or_resume()

    def letters_published(self) -> None:
        self.awaits_letters = False
        self._went_on()

    def pause_or_resume(self) -> None:
        """Read the socket unless something prevents it; a closing connection is read to its end."""
        pause = self.phase is Phase.OPEN and bool(
            self.held
            or self.choked
            or self.busy
            or self.awaits_letters
            or self._unread.reads
            or self.waiting.size > WAITING_BYTES
            or self.node.draining
        )
        if pause != self._paused:
            self._paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def drain(self) -> None:
        """Stop reading: the broker is about to stop."""
        self.pause_or_resume()

    def sift(self, events: Sequence[tuple[int, E]]) -> Sequence[tuple[int, E]]:
        """The events that may be processed now; the others are deferred."""
        if self._is_held_up():
            self.waiting.add(events)
            return ()
        events = self.waiting.sift(events)
        if self.waiting:
            self._block()
        return events

    def _go_on(self) -> None:
        """Process deferred events, as far as possible now; the caller ends the batch."""
        if self.waiting and not self._is_held_up():
            events: Sequence[tuple[int, E]] = self.waiting.take()
            self.process(self.sift(events) if self.node.alarms else events)
            self._await_letters()
            if self._output.pending:  # answers and refusals that no handler has announced
                self.has_output(0)
        self.pause_or_resume()

    @property
    def paused(self) -> bool:
        """Whether the socket is not read: then the client's silence is no sign of a dead one."""
        return self._paused

    # -- alarms --------------------------------------------------------------------------------------------------

    def _block(self) -> None:
        """Defer the publications of the client until `unblock`: there is an alarm."""
        if not self.blocked and self.phase is Phase.OPEN:
            self.blocked = True
            self.notify_blocked(True)
            self.has_output(0)
        self.pause_or_resume()

    def unblock(self) -> None:
        """Process the deferred publications: the last alarm is over."""
        if self.blocked:
            self.blocked = False
            self.notify_blocked(False)
            self.has_output(0)
            size = self.waiting.size
            self._go_on()
            self.batch.end(self, size)

    # -- output --------------------------------------------------------------------------------------------------

    def has_output(self, size: int) -> None:
        """Note about `size` bytes of output in the engine, sent at the end of the batch, or earlier when many."""
        if not self._dirty:
            self._dirty = True
            self.batch.unflushed.append(self)
        self._output_bytes += size
        if self._output_bytes > FLUSH_BYTES:
            self.batch.write()  # deliveries go to the log first: see `Batch`
            self.flush()
            self._dirty = True  # still in the batch's list, which may add more

    def flush(self) -> None:
        if self.batch.catalog.changed:
            self.batch.save()  # before the client is notified
        self._dirty = False
        size, self._output_bytes = self._output_bytes, 0
        pieces = self.pieces(size)
        sent = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if sent:
            self.send_oct += sent
            self.send_cnt += 1
            if len(pieces) == 1:
                self.transport.write(pieces[0])
            else:
                self.transport.write_all(pieces)
            if not self.writable and self.transport.unsent > OUTPUT_BYTES and self.phase is Phase.OPEN:
                self.choked = True
                self.waiting.add(self.events)
                self.pause_or_resume()

    def retract(self) -> None:
        """Drop output that is not sent yet: the broker could not store what it confirms."""
        self._output.data_to_send()

    def resume(self) -> None:
        """The socket takes output again: let its queues deliver, and process deferred requests."""
        self.writable = True
        size, self.choked = self.waiting.size, False
        self._go_on()
        self._unread.go_on()
        self.schedule_consumers()
        self.batch.end(self, size)
