"""The broker's side of a connection: login, channels, errors; bytes in, bytes out. It knows no sockets.

`receive_data` is one batch: the engine splits it into events, publications go to their channel's publisher, methods to
their channel's handler, and the batch is ended (delivers, writes, confirms). A refusal (AmqpError) closes the channel
or the connection, by its scope, and the rest of the batch is processed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from harebell.broker.auth import Access
from harebell.broker.node import Node
from harebell.broker.operations.leases import LeaseRequest
from harebell.broker.queues.base import Queue
from harebell.broker.rules.limits import channel_refusal
from harebell.broker.v091.channel import Channel
from harebell.broker.v091.credit_flow import CreditFlow
from harebell.broker.v091.deferred_input import DeferredInput
from harebell.broker.v091.handshake import Handshake
from harebell.broker.vhost import VirtualHost
from harebell.errors import AmqpError, ChannelError, NotImplemented as NotImplemented540, RemoteProtocolError
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

__all__ = ["Connection", "Transport"]

log = logging.getLogger("harebell.broker.connection")

MAX_TARGETS: Final = 16_384  # distinct publish frames that all channels' caches may have: a few MB at most
FLUSH_BYTES: Final = 1 << 19  # output gathered for one write; more would only cost memory
WAITING_BYTES: Final = 1 << 17  # input that waits for the end of an alarm, above which the socket is not read
OUTPUT_BYTES: Final = 8 << 20  # output not yet taken by the client, above which its requests wait
CLOSING_TIMEOUT: Final = 30.0  # seconds for the answer to our connection.close, RabbitMQ's
LINGER: Final = 1.0  # seconds for an answer to reach a client that still sends

_LISTENING: Final = frozenset({ChannelState.OPEN, ChannelState.AWAIT_OPEN_OK})


class Transport(Protocol):
    """The socket of a connection."""

    peer: str  # "127.0.0.1:50212", for log lines
    local: str  # the broker's end: "127.0.0.1:5672"
    peer_host: str
    certificate_user: str | None  # the name in the client's TLS certificate, where one was verified

    @property
    def unsent(self) -> int:
        """The number of written bytes that the socket has not taken."""

    def write(self, data: bytes) -> None: ...
    def close(self, after: float = 0.0) -> None:
        """End the connection when the written output is sent, `after` seconds from now."""

    def set_heartbeat(self, seconds: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Phase(Enum):
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()  # our connection.close is sent
    CLOSED = auto()


class Connection:
    """One client's connection. `writable` is False while its socket takes no more output.

    The socket is not read while the connection is `held` by credit flow, or `choked` because the client does not take
    the output that it requested; while it is `blocked` by an alarm, its publications wait (see `waiting`). `recv_oct`
    and `send_oct` are bytes, `recv_cnt` and `send_cnt` reads and writes.
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
        self.blocked = self.held = self.choked = False
        self._handshake = Handshake(self, transport)
        self._waiting = DeferredInput()
        self._events: Iterator[Event] = iter(())  # of the current batch
        self._credit = CreditFlow()
        self._paused = False
        self._targets = 0
        self._topology = -1
        self._dirty = False
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
        """Process one batch of input completely: all of its output has gone to the transports."""
        engine, failure = self.engine, None
        self.recv_oct += len(data)
        self.recv_cnt += 1
        try:
            engine.receive_data(data)
        except RemoteProtocolError as error:
            failure = error
        events: Sequence[Event] = engine.events()
        if self.choked or self.node.alarms:
            events = self._sift(events)
        self._process(events)
        if failure is not None:
            self._fail(failure)
        elif engine.state is ConnectionState.AWAIT_START:
            engine.send_method(0, self._handshake.start())
        if engine.pending:
            self.has_output(0)
        self.batch.end(self, len(data))

    def _process(self, events: Sequence[Event]) -> None:
        """Process the events, until `flush` finds that the client does not take its output."""
        if self.vhost.router.version != self._topology:
            self._forget_stale_targets()
        channels, self._events = self.channels, iter(events)
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
                self._handle(number, event)
            except AmqpError as error:
                self._refuse(number, error, event)
            except RemoteProtocolError as error:
                self._refuse(number, error.answer, event)
            except OSError as error:
                self.batch.fail(error)
            if self.vhost.router.version != self._topology:
                self._forget_stale_targets()

    def remember_target(self) -> None:
        """Count one more cached target; beyond the limit the channels drop them all."""
        self._targets += 1
        if self._targets > MAX_TARGETS:
            self._forget_targets()
            self._targets = 1

    def _forget_targets(self) -> None:
        self._targets = 0
        for channel in self.channels.values():
            channel.publisher.forget_targets()

    def _forget_stale_targets(self) -> None:
        self._forget_targets()
        self._topology = self.vhost.router.version

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
                channel.close()
            if self.engine.state is ConnectionState.OPEN:
                self.engine.send_method(number, m.ChannelCloseOk())
        elif channel is None:
            return
        elif isinstance(event, OversizedContent):
            channel.publisher.refuse(event)
        elif isinstance(event, m.Method):
            channel.handle(event)

    def _handle_connection(self, method: m.Method) -> None:
        match method:
            case m.ConnectionStartOk():
                self._handshake.start_ok(method)
            case m.ConnectionSecureOk():
                self._handshake.secure_ok(method)
            case m.ConnectionTuneOk():
                self.heartbeat = method.heartbeat
            case m.ConnectionOpen():
                self._handshake.open(method.virtual_host)
            case m.ConnectionClose():
                self._release()
                self.engine.send_method(0, m.ConnectionCloseOk())
                self.end()
            case m.ConnectionCloseOk():
                self.end()
            case m.ConnectionUpdateSecret():
                self._handshake.update_secret(method)
            case _:
                raise NotImplemented540(method.NAME)

    @property
    def peer(self) -> str:
        return self.transport.peer

    @property
    def local(self) -> str:
        return self.transport.local

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

    def give_back_overdue(self, now: int, default: int, least: int) -> None:
        """Return overdue deliveries of all channels: see Channel.give_back_overdue."""
        for number, channel in tuple(self.channels.items()):
            try:
                channel.give_back_overdue(now, default, least)
            except AmqpError as error:
                self.refuse_channel(number, error)

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
        """Answer an error that the engine found. Where no close-ok can follow, the answer ends the connection.

        The socket stays open for a while: closing it with unread input would discard the answer (RFC 1122, 4.2.2.13).
        """
        if self.engine.state is ConnectionState.CLOSED:
            log.warning("%s: %s", self.transport.peer, error)
            self.end(LINGER)
        else:
            self.close(error.answer, error.answer.class_id, error.answer.method_id)
            if self.engine.deaf:
                self.end(LINGER)

    def lost(self) -> None:
        """End the connection: its transport is gone."""
        self._release()
        self.phase = Phase.CLOSED
        self.writable = False
        self.batch.held.discard(self)
        self.node.forget_connection(self)
        self.batch.end()

    def _release(self) -> None:
        self._waiting.clear()
        channels = tuple(self.channels.values())
        self.channels.clear()
        for channel in channels:
            channel.close()
        for queue in tuple(self.exclusive_queues):
            if not queue.deleted:
                self.vhost.delete_queue(queue)

    def end(self, after: float = 0.0) -> None:
        """Send the remaining output, and close the transport `after` seconds from now."""
        self.phase = Phase.CLOSED
        self.flush()
        self.transport.close(after)

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
        pause = self.phase is Phase.OPEN and (
            self.held or self.choked or self._waiting.size > WAITING_BYTES or self.node.draining
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
        if self.choked:
            self._waiting.add(events)
            return ()
        events = self._waiting.sift(events)
        if self._waiting:
            self._block()
        return events

    def _go_on(self) -> None:
        """Process deferred events, as far as possible now; the caller ends the batch."""
        if self._waiting and not self.choked:
            events: Sequence[Event] = self._waiting.take()
            self._process(self._sift(events) if self.node.alarms else events)
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

    def send(self, number: int, method: m.Method, frames: bytes = b"") -> None:
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
        self._output_bytes = 0
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
        for channel in self.channels.values():
            for consumer in channel.consumers.values():
                consumer.queue.schedule()
        self.batch.end(self, size)
