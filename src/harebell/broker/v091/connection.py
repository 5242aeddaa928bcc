"""The broker's side of a connection: login, channels, errors; bytes in, bytes out. It knows no sockets.

Input is processed in pieces, and each piece is one batch: the engine splits it into events, publications go to their
channel's publisher, methods to their channel's handler, and the batch is ended (delivers, writes, confirms). A refusal
(AmqpError) closes the channel or the connection, by its scope, and the rest of the batch is processed.

One client must not keep the others waiting: a long read is processed in several pieces, methods only as long as one
slice of time holds, and a long method (`work`) in slices. What follows waits (`unread`, `waiting`), so that a client
sees its methods processed in their order, each whole before the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Final

from harebell.broker.auth import Access
from harebell.broker.node import Node
from harebell.broker.operations.leases import LeaseRequest
from harebell.broker.queues.base import Queue
from harebell.broker.rules.limits import channel_refusal
from harebell.broker.slices import SLICE, Work
from harebell.broker.v091.cached_targets import CachedTargets
from harebell.broker.v091.channel import Channel
from harebell.broker.v091.credit_flow import CreditFlow
from harebell.broker.v091.deferred_input import DeferredInput
from harebell.broker.v091.handshake import Handshake
from harebell.broker.v091.phase import Phase
from harebell.broker.v091.transport import Transport
from harebell.broker.v091.unread_input import PIECE, UnreadInput
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError, ChannelError, RemoteProtocolError
from harebell.protocol.v091 import (
    ChannelState,
    ConnectionState,
    Content,
    Engine,
    OversizedContent,
    Role,
    Table,
    methods as m,
)
from harebell.protocol.v091.codec import encode_method
from harebell.protocol.v091.engine import Event
from harebell.protocol.v091.large_frames import LARGE, Frames

__all__ = ["Connection"]

log = logging.getLogger("harebell.broker.connection")

FLUSH_BYTES: Final = 1 << 19  # output gathered for one write; more would only cost memory
WAITING_BYTES: Final = 1 << 17  # input that waits for the end of an alarm, above which the socket is not read
OUTPUT_BYTES: Final = 8 << 20  # output not yet taken by the client, above which its requests wait
CLOSING_TIMEOUT: Final = 30.0  # seconds for the answer to our connection.close, RabbitMQ's
LINGER: Final = 3.0  # seconds for a client to close its socket when it has the last answer

_LISTENING: Final = frozenset({ChannelState.OPEN, ChannelState.AWAIT_OPEN_OK})


class Connection:
    """One client's connection. `writable` is False while its socket takes no more output.

    The socket is not read while the connection is `held` by credit flow, or `choked` because the client does not take
    the output that it requested, or `busy` with long work; while it is `blocked` by an alarm, its publications wait
    (see `waiting`). `recv_oct` and `send_oct` are bytes, `recv_cnt` and `send_cnt` reads and writes.
    """

    protocol = "{0,9,1}"

    def __init__(self, node: Node, transport: Transport) -> None:
        self.node = node
        self.batch = node.batch
        self.transport = transport
        limits = node.limits
        self.engine = Engine(
            Role.SERVER,
            frame_max=limits.frame_max,
            channel_max=limits.channel_max,
            max_message_size=limits.max_message_size,
        )
        self.phase = Phase.OPENING
        self.vhost: VirtualHost = node.lobby
        self.pid = node.new_pid()
        self.user = self.mechanism = ""
        self.heartbeat = 0  # seconds, as negotiated, from connection.open on; before, the handshake has a time limit
        self.connected_at = int(time.time() * 1000)
        self.access: Access  # from connection.open on
        self.client_properties: Table = {}
        self.channels: dict[int, Channel] = {}
        self.exclusive_queues: list[Queue] = []
        self.recv_oct = self.recv_cnt = self.send_oct = self.send_cnt = 0
        self.writable = True
        self.blocked = self.held = self.choked = self.busy = False
        self._handshake = Handshake(self, transport)
        self._unread = UnreadInput(
            self.batch.slices, self._take_in, self._end_batch, lambda: self.busy or self.choked, self._went_on
        )
        self._size = self._partial = 0  # bytes of the current batch, and those of a message that is not complete
        self._gone = self._paused = self._dirty = False  # whether the transport has ended, ...
        self._waiting = DeferredInput()
        self._events: Iterator[Event] = iter(())  # of the current batch
        self._credit = CreditFlow()
        self._targets = CachedTargets(self.channels)
        self._output_bytes = 0

    @property
    def name(self) -> str:
        """The two ends, as RabbitMQ names a connection."""
        return f"{self.transport.peer} -> {self.transport.local}"

    @property
    def state(self) -> str:
        """The state in RabbitMQ's words: starting, running, blocked (by an alarm), flow (not read), closing, closed."""
        if self.phase is Phase.OPEN:
            return "blocked" if self.blocked else "flow" if self.held or self.choked else "running"
        return {Phase.OPENING: "starting", Phase.CLOSING: "closing", Phase.CLOSED: "closed"}[self.phase]

    # -- input ---------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Process a read: at once if it is short, else a piece at once and the others in slices."""
        self.recv_oct += len(data)
        self.recv_cnt += 1
        if self._unread.pieces or len(data) > PIECE:
            self._unread.add(data)
            self._unread.go_on()
            self._pause_or_resume()
        else:
            self._take_in(data)
            self._end_batch()

    def _take_in(self, data: bytes) -> None:
        """Process input of the current batch."""
        engine, failure = self.engine, None
        try:
            engine.receive_data(data)
        except RemoteProtocolError as error:
            failure = error
        events: Sequence[Event] = engine.events()
        if events:
            self._size += self._partial + len(data)
            self._partial = 0
        else:
            self._partial += len(data)
        if self.busy or self.choked or self.node.alarms:
            events = self._sift(events)
        self._process(events)
        if failure is not None:
            self._fail(failure)
        elif engine.state is ConnectionState.AWAIT_START:
            engine.send_method(0, self._handshake.start())
        if engine.pending:
            self.has_output(0)

    def _end_batch(self) -> None:
        size, self._size = self._size, 0
        self.batch.end(self, size)
        if self.engine.waiting:
            self.read_on()

    def read_on(self) -> None:
        """Process what the client sent ahead of the broker's last answer in the handshake."""
        if self.engine.waiting:
            self._take_in(b"")
            self._end_batch()

    def _process(self, events: Sequence[Event]) -> None:
        """Process the events, until `flush` finds that the client does not take its output."""
        if self.vhost.router.version != self._targets.topology:
            self._targets.forget(self.vhost.router.version)
        channels, self._events, stopwatch, end = self.channels, iter(events), self.batch.slices.stopwatch, 0.0
        self.batch.slices.input_share.begin()
        for number, event in self._events:
            channel = channels.get(number)
            try:
                if type(event) is Content:
                    if channel is not None:  # else an error closed it earlier in this batch
                        channel.publisher.publish(event)
                    continue
                if type(event) is m.BasicAck and channel is not None and self.phase is Phase.OPEN:
                    channel.ack(event)
                    continue
                if not end:
                    end = stopwatch() + SLICE
                elif stopwatch() > end:
                    self._waiting.add(((number, event),))
                    self._take_turns()
                    return
                if self.batch.scheduled:  # what was published before goes to consumers first, as if sent with a pause
                    self.batch.deliver()
                self._handle(number, event)
            except AmqpError as error:
                self._refuse(number, error, event)
            except RemoteProtocolError as error:
                self._refuse(number, error.answer, event)
            except OSError as error:
                self.batch.fail(error)
            if self.vhost.router.version != self._targets.topology:
                self._targets.forget(self.vhost.router.version)

    def spend(self, count: int) -> None:
        """Count publications to `count` queues: after a slice of them, the connection's further input waits."""
        if self.batch.slices.input_share.spend(count) and not self.busy:
            self._take_turns()

    def _take_turns(self) -> None:
        """Let the rest of the input wait until others have had their turns."""
        self._wait()
        self.batch.slices.later(self._resume())

    def work(self, number: int, method: m.Method, work: Work) -> None:
        """Process a long method of a channel in slices; the connection's input waits until that is done.

        The work may raise AmqpError, as a method's handler.
        """
        if not self.batch.slices.run(self._working(number, method, work)):
            self._wait()

    def _working(self, number: int, method: m.Method, work: Work) -> Work:
        try:
            yield from work
        except AmqpError as error:
            if number in self.channels:
                self._refuse(number, error, method)
                self.has_output(0)
        finally:
            if self.busy:
                self.busy = False
                self._went_on()

    def _wait(self) -> None:
        """Let all further input wait until the work that has begun is done."""
        self.busy = True
        self._waiting.add(self._events)
        self._pause_or_resume()

    def _resume(self) -> Work:
        self.busy = False
        self._went_on()
        yield

    def _went_on(self) -> None:
        """Go on with the input: a work is done."""
        self._go_on()
        self._unread.go_on()
        self._pause_or_resume()
        if self._gone and not self.busy and not self._unread.reading:
            self._lose()

    def remember_target(self) -> None:
        """Count one more cached target; beyond a limit the channels drop them all."""
        self._targets.remember()

    def _handle(self, number: int, event: m.Method | Content | OversizedContent) -> None:
        if number == 0:
            if isinstance(event, m.Method):
                self._handle_connection(event)
            return
        if self.phase is not Phase.OPEN:
            return  # an error closed it earlier in this batch
        channel = self.channels.get(number)
        if isinstance(event, m.ChannelOpen):
            refusal = channel_refusal(self.node, self)
            if refusal is not None:
                self.close(refusal)  # without the method's ids, as RabbitMQ
                return
            channel = self.channels[number] = Channel(self, number)
            self.node.churn.channel_created += 1
            self.node.events.channel_created(channel)
            self.send(number, m.ChannelOpenOk())
        elif isinstance(event, m.ChannelClose):
            if channel is not None:
                del self.channels[number]
            self.work(number, event, self._close_channel(number, channel))
        elif channel is None:
            return
        elif isinstance(event, OversizedContent):
            channel.publisher.refuse(event)
        elif isinstance(event, m.Method):
            channel.handle(event)

    def _handle_connection(self, method: m.Method) -> None:
        match method:
            case m.ConnectionTuneOk():
                self.heartbeat = method.heartbeat
            case m.ConnectionClose():
                self.work(0, method, self._closing())
            case m.ConnectionCloseOk():
                self.end()
            case _:
                self._handshake.handle(method)

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
    def frame_max(self) -> int:
        return self.engine.frame_max

    @property
    def channel_max(self) -> int:
        return self.engine.channel_max

    def capability(self, name: str) -> bool:
        """Whether the client announced this capability."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

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

    def lease(self, channel: int, asked: LeaseRequest) -> list[int]:
        """Grant deliveries of that channel a lease. Returns their tags."""
        return self.channels[channel].lease(asked)

    def give_back_overdue(self, now: int, default: int, least: int) -> Work:
        """Return overdue deliveries of all channels: see Channel.give_back_overdue."""
        for number, channel in tuple(self.channels.items()):
            try:
                yield from channel.give_back_overdue(now, default, least)
            except AmqpError as error:
                if self.channels.get(number) is channel:
                    self.refuse_channel(number, error)
            yield

    # -- errors and the end --------------------------------------------------------------------------------------

    def refuse_channel(self, number: int, error: AmqpError) -> None:
        """Close a channel because of an error that no method caused."""
        self._refuse(number, error, m.BasicAck())
        self.has_output(0)

    def _refuse(self, number: int, error: AmqpError, event: m.Method | Content | OversizedContent) -> None:
        class_id, method_id = error.class_id, error.method_id
        if not class_id:
            ids = event if isinstance(event, m.Method) else m.BasicPublish
            class_id, method_id = ids.CLASS_ID, ids.METHOD_ID
        if isinstance(error, ChannelError) and number:
            log.info("%s: channel %d closed: %s", self.transport.peer, number, error)
            channel = self.channels.pop(number)
            channel.confirm_what_is_safe()
            channel.close()
            if self.engine.state is ConnectionState.OPEN:
                close = m.ChannelClose(error.reply_code, error.reply_text, class_id, method_id)
                self.engine.send_method(number, close)
        else:
            self.close(error, class_id, method_id)

    def close(self, error: AmqpError, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection with a reply code; the transport is closed when the client has answered."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        log.warning("%s: connection closed: %s", self.transport.peer, error)
        self._release()
        if self.engine.state.value <= ConnectionState.AWAIT_START.value:
            self.end()  # the broker may send nothing before connection.start
            return
        self.phase = Phase.CLOSING
        self._pause_or_resume()  # the client's close-ok must be read
        self.engine.send_method(0, m.ConnectionClose(error.reply_code, error.reply_text, class_id, method_id))
        self.transport.close(CLOSING_TIMEOUT)
        self.has_output(0)

    def _fail(self, error: RemoteProtocolError) -> None:
        """Answer an error that the engine found. Where no close-ok can follow, the answer ends the connection."""
        if self.engine.state is ConnectionState.CLOSED:
            log.warning("%s: %s", self.transport.peer, error)
            self.end()
        else:
            self.close(error.answer, error.answer.class_id, error.answer.method_id)
            if self.engine.deaf:
                self.end()

    def lost(self) -> None:
        """End the connection: its transport is gone. What it has sent is processed first."""
        self._gone, self.writable = True, False
        if not self.busy and not self._unread.reading:
            self._lose()

    def _lose(self) -> None:
        self.phase = Phase.CLOSED
        self.batch.held.discard(self)
        self.batch.slices.run(self._losing())
        self.batch.end()

    def _losing(self) -> Work:
        yield from self._releasing()
        self.node.forget_connection(self)

    def _close_channel(self, number: int, channel: Channel | None) -> Work:
        if channel is not None:
            yield from channel.closing()
        if self.engine.state is ConnectionState.OPEN:
            self.engine.send_method(number, m.ChannelCloseOk())
            self.has_output(0)

    def _closing(self) -> Work:
        """Answer connection.close when the exclusive queues are gone: the client may declare them again at once."""
        self.phase = Phase.CLOSING
        yield from self._releasing()
        self.engine.send_method(0, m.ConnectionCloseOk())
        self.end()

    def _release(self) -> None:
        self.batch.slices.run(self._releasing())

    def _releasing(self) -> Work:
        self._waiting.clear()
        channels = tuple(self.channels.values())
        self.channels.clear()
        for channel in channels:
            yield from channel.closing()
        yield from self.vhost.deleting(self.exclusive_queues)

    def end(self, after: float = 0.0) -> None:
        """Send the remaining output and end it; with `after`, close the transport so many seconds from now instead."""
        self.phase = Phase.CLOSED
        self._unread.clear()
        self._pause_or_resume()  # what the client still sends is read and dropped
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
            self._pause_or_resume()

    def grant(self) -> None:
        """Credit a finished sync: read again, if that was enough."""
        if self._credit.grant(self.batch.commit.synced):
            self.held = False
            self.batch.held.discard(self)
            self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        """Read the socket unless something prevents it; a closing connection is read to its end."""
        pause = self.phase is Phase.OPEN and bool(
            self.held
            or self.choked
            or self.busy
            or self._unread.pieces
            or self._waiting.size > WAITING_BYTES
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
        self._pause_or_resume()

    def _sift(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events that may be processed now; the others are deferred."""
        if self.choked or self.busy:
            self._waiting.add(events)
            return ()
        events = self._waiting.sift(events)
        if self._waiting:
            self._block()
        return events

    def _go_on(self) -> None:
        """Process deferred events, as far as possible now; the caller ends the batch."""
        if self._waiting and not self.choked and not self.busy:
            events: Sequence[Event] = self._waiting.take()
            self._process(self._sift(events) if self.node.alarms else events)
            if self.engine.pending:  # answers and refusals that no handler has announced
                self.has_output(0)
        self._pause_or_resume()

    @property
    def paused(self) -> bool:
        """Whether the socket is not read: then the client's silence is no sign of a dead one."""
        return self._paused

    # -- alarms --------------------------------------------------------------------------------------------------

    def _block(self) -> None:
        """Send connection.blocked to a publisher during an alarm, and defer its publications until `unblock`."""
        if not self.blocked and self.phase is Phase.OPEN:
            self.blocked = True
            if self.capability("connection.blocked") and self.engine.state is ConnectionState.OPEN:
                reasons = " & ".join(sorted(self.node.alarms))
                self.engine.send_method(0, m.ConnectionBlocked(f"low on {reasons}"))
            self.has_output(0)
        self._pause_or_resume()

    def unblock(self) -> None:
        """Process the deferred publications: the last alarm is over."""
        if self.blocked:
            self.blocked = False
            if self.capability("connection.blocked") and self.engine.state is ConnectionState.OPEN:
                self.engine.send_method(0, m.ConnectionUnblocked())
            self.has_output(0)
            size = self._waiting.size
            self._go_on()
            self.batch.end(self, size)

    # -- output --------------------------------------------------------------------------------------------------

    def send(self, number: int, method: m.Method, frames: Frames = b"") -> None:
        """Send a method on a channel, with the frames of a content where the method carries one.

        Nothing is sent when the client has closed the channel or the connection later in the same batch: it then
        accepts only the close-ok.
        """
        if self.listens(number):
            if frames:
                self.engine.send_frames(encode_method(number, method), frames)
            else:
                self.engine.send_method(number, method)
            self.has_output(len(frames))

    def listens(self, number: int) -> bool:
        """Whether the client accepts more than a close-ok on that channel."""
        engine = self.engine
        return engine.state is ConnectionState.OPEN and engine.channels.get(number) in _LISTENING

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
        if size > LARGE:
            *pieces, data = self.engine.pieces_to_send() or (b"",)
            for piece in pieces:
                self.send_oct += len(piece)
                self.transport.write(piece)
        else:
            data = self.engine.data_to_send()
        if data:
            self.send_oct += len(data)
            self.send_cnt += 1
            self.transport.write(data)
            if not self.writable and self.transport.unsent > OUTPUT_BYTES and self.phase is Phase.OPEN:
                self.choked = True
                self._waiting.add(self._events)
                self._pause_or_resume()

    def retract(self) -> None:
        """Drop output that is not sent yet: the broker could not store what it confirms."""
        self.engine.data_to_send()

    def resume(self) -> None:
        """The socket takes output again: let its queues deliver, and process deferred requests."""
        self.writable = True
        size, self.choked = self._waiting.size, False
        self._go_on()
        self._unread.go_on()
        for channel in self.channels.values():
            for consumer in channel.consumers.values():
                consumer.queue.schedule()
        self.batch.end(self, size)
