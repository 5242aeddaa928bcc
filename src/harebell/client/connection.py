"""The asyncio API: a connection that comes back.

    async with harebell.connect("amqp://guest:guest@localhost/") as connection:
        async with connection.channel() as channel:
            ...

`connect` and `connection.channel` give something that can be awaited, or entered with `async with`, which also closes.
A call that is cancelled, or that has passed its deadline, leaves everything usable: its late answer is dropped.
How a connection comes back: `recovery.connection`. The file is long because it has every method of a connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, overload

from harebell import errors
from harebell.client import events as e
from harebell.client.channel import METHODS as CHANNEL_METHODS, Channel
from harebell.client.core.channel import Carrier, ChannelCore
from harebell.client.harness import ConnectionHarness
from harebell.client.messages import Delivery, Message, OnNack, OnOrphan
from harebell.client.middleware.hooks import CloseEvent, DialEvent, DisconnectEvent
from harebell.client.middleware.registry import Attached, Middlewares, attached
from harebell.client.notifications import Notifications, Stop
from harebell.client.opening import Opening
from harebell.client.recovery.connection import ConnectionRecovery
from harebell.client.recovery.features import DEFAULT_FEATURES
from harebell.client.recovery.policy import Recovery, check_recovery
from harebell.client.seconds import seconds_of
from harebell.client.statistics import ConnectionStatistics
from harebell.client.transport.dialling import Credentials, Dial, Dialer
from harebell.client.transport.protocol import AsyncCore, FutureSlot
from harebell.client.url import ConnectionParameters, hosts_of
from harebell.protocol.v091 import Table, TableLike, methods as m

if TYPE_CHECKING:
    from harebell.client.patterns.codec import Codec
    from harebell.client.patterns.dead_letters import DeadLetters
    from harebell.client.patterns.outbox import Outbox, Relay
    from harebell.client.patterns.pools import ChannelPool
    from harebell.client.patterns.producer import Producer
    from harebell.client.patterns.reader import QueueReader, Setup
    from harebell.client.patterns.retry import Retry
    from harebell.client.patterns.rpc import Rpc
    from harebell.client.patterns.server import Server
    from harebell.client.patterns.streams.offsets import Offsets
    from harebell.client.patterns.streams.reader import Offset, StreamReader
    from harebell.client.patterns.streams.super_stream import SuperStream
    from harebell.client.patterns.workers import Workers
    from harebell.client.recovery.stream_position import Resume

__all__ = ["Connection", "Opening", "connect"]

DEFAULT_RECOVERY = Recovery()

State = Literal["open", "reconnecting", "closed"]
T = TypeVar("T")

OnError = Callable[[Delivery, Exception], object]
Answer = Message | bytes | None

# The methods that a middleware can stand around.
METHODS: Final = ("close", "update_secret", "notify_close", "notify_dial", "notify_disconnect")


def connect(
    url: str | ConnectionParameters | Sequence[str | ConnectionParameters] = "amqp://guest:guest@localhost/",
    *,
    timeout: float | None = None,
    heartbeat: int | None = None,
    context: ssl.SSLContext | None = None,
    sock: socket.socket | None = None,
    dial: Dial | None = None,
    dial_timeout: float | None = None,
    credentials: Credentials | None = None,
    client_properties: Mapping[str, object] | None = None,
    locale: str | None = None,
    recovery: Recovery | None = DEFAULT_RECOVERY,
    middleware: Middlewares | None = None,
) -> Opening[Connection]:
    """A connection to a broker: `async with connect(url) as connection`, or `connection = await connect(url)`.

    url          amqp://user:password@host:port/vhost or amqps://..., with the query of `harebell.client.url`; several
                 of them are tried in turn, and after a loss the other ones first
    timeout      seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                 included; 30 when the URL says nothing
    heartbeat    seconds; wins over the URL's; 0 takes what the broker proposes
    context      a TLS context of your own, for amqps; wins over the URL's files
    sock         a connected socket to use; the URL then gives all but the address, and the connection cannot come back
    dial         called with host and port at each dial, for a connected socket: through a proxy, a tunnel; may be a
                 coroutine function. TLS and the login are the client's
    dial_timeout  seconds for each host, login included; left out, `timeout` for a single one and 5 for each of several
    credentials  called at each dial for (user name, password or token); may be a coroutine function
    client_properties  what the client says about itself, beside its own product, version and platform, or in place of
                 them; the broker shows it
    locale       of the broker's texts; en_US when left out, and brokers have no other
    recovery     how the connection comes back; None: it ends with its transport
    middleware   what stands around the calls and events of the connection and its channels, as it is registered now

    Raises (when awaited) InvalidArgument for a URL that cannot be understood, ConnectionLost when no broker answers,
    AccessRefused for a refused login, NotAllowed for a vhost that is missing, DeadlineExceeded.
    """

    async def make() -> Connection:
        hosts = hosts_of(
            url, timeout=timeout, heartbeat=heartbeat, context=context, client_properties=client_properties,
            locale=locale,
        )  # fmt: skip
        check_recovery(recovery)
        middlewares = attached(middleware, DEFAULT_FEATURES)
        kind = middlewares.connection.hooked_class(Connection, METHODS)
        dialer = Dialer(AsyncCore, hosts, credentials, sock, dial, dial_timeout)
        connection = kind(dialer, recovery if sock is None else None, middlewares)
        await connection.recovery.first_dial()
        return connection

    return Opening(make, "harebell.connect(...)")


class Connection:
    """A connection to a broker, over every transport that carries it. Made by `connect`."""

    # `recovery` and `chains` are what the methods stand on. They are the client's own, and no public API.

    def __init__(self, dialer: Dialer[AsyncCore], policy: Recovery | None, middlewares: Attached) -> None:
        self.chains = middlewares.connection
        self._middlewares = middlewares
        self._notifications = Notifications(self, self.chains)
        self.recovery = ConnectionRecovery(self, dialer, policy, self.chains, self._notifications)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def _transport(self) -> AsyncCore:
        """The present one, or the last."""
        return self.recovery.availability.transport

    @property
    def parameters(self) -> ConnectionParameters:
        """Of the host that it is, or was last, connected to."""
        return self._transport.parameters

    @property
    def state(self) -> State:
        if self.is_closed:
            return "closed"
        return "reconnecting" if self.recovery.availability.reviving else "open"

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes now (connection.blocked); None when it does. Publishers wait meanwhile."""
        return self._transport.blocked

    @property
    def is_open(self) -> bool:
        """Whether it can be used this moment; see `is_closed`."""
        return self.state == "open"

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for good; False while it is reconnecting."""
        return self.recovery.availability.ended is not None

    @property
    def closed_reason(self) -> errors.HarebellError | None:
        """Why it is closed for good; None while it is open or reconnecting."""
        return self.recovery.availability.ended

    @property
    def server_properties(self) -> Table:
        """What the broker says about itself: product, version, capabilities."""
        return self._transport.handshake.server_properties

    def events(self) -> e.Events:
        """What happens to the connection from now on: `async for event in connection.events()`."""
        return self.recovery.events()

    def statistics(self) -> ConnectionStatistics:
        """What the connection and its channels, closed ones too, have published and got so far, in numbers."""
        recovery = self.recovery
        return ConnectionStatistics(
            **recovery.tally(),
            channels=len(recovery.channels),
            reconnects=recovery.transports - 1,
            parked_calls=len(recovery.availability.waiting),
        )

    def test(self) -> ConnectionHarness:
        """What a test does to a connection: cut it, keep it down, count."""
        return ConnectionHarness(self.recovery, self.chains)

    # -- callbacks ---------------------------------------------------------------------------------------------------

    def notify_close(self, callback: Callable[[CloseEvent], None]) -> Stop:
        """Have it called once, when this is closed for good; at once when it is closed already.

        Like all `notify_` methods this gives a function that ends it.
        """
        return self._notifications.on_close(callback)

    def notify_dial(self, callback: Callable[[DialEvent], None]) -> Stop:
        """Have it called after each attempt to connect, whether it was successful or not."""
        return self._notifications.listeners.add("dial", callback)

    def notify_disconnect(self, callback: Callable[[DisconnectEvent], None]) -> Stop:
        """Have it called at each loss, whether this comes back or not."""
        return self._notifications.listeners.add("disconnect", callback)

    # -- calls -------------------------------------------------------------------------------------------------------

    def channel(self, *, timeout: float | None = None, middleware: Middlewares | None = None) -> Opening[Channel]:
        """A new channel: `async with connection.channel() as channel`, or `channel = await connection.channel()`.

        middleware  what stands around the calls and events of this channel, inside what `connect` was given; features
                    that it is `without` are taken out for this channel alone
        """
        availability = self.recovery.availability

        async def make() -> Channel:
            chains = self._middlewares.channel(middleware)
            seconds = seconds_of(timeout, availability.timeout)
            deadline = availability.loop.time() + seconds
            while True:
                await availability.usable("channel.open", deadline, seconds)
                transport = availability.transport
                slot = FutureSlot(m.ChannelOpen(), availability.loop.create_future())
                core = transport.new_channel(slot, self._new_core)
                try:
                    await transport.reply(slot, seconds, core.abandon, deadline)
                except errors.DeadlineExceeded:
                    raise
                except errors.HarebellError:
                    if transport.reason is None or not availability.parks:
                        raise
                else:
                    if core.reason is None:
                        kind = chains.hooked_class(Channel, CHANNEL_METHODS)
                        return kind(self.recovery, transport, core, chains)
                availability.check_deadline("channel.open", deadline, seconds)

        return Opening(make, "connection.channel()")

    def _new_core(self, connection: Carrier, number: int) -> ChannelCore:
        return ChannelCore(connection, number, renamed=self.recovery.availability.topology.renamed)

    async def update_secret(self, secret: str, reason: str = "", *, timeout: float | None = None) -> None:
        """Give the broker a new password or token for this connection; later dials use it too."""
        availability = self.recovery.availability
        seconds = seconds_of(timeout, availability.timeout)
        deadline = availability.loop.time() + seconds
        await availability.usable("connection.update-secret", deadline, seconds)
        transport = availability.transport
        slot = FutureSlot(m.ConnectionUpdateSecret(secret.encode(), reason), availability.loop.create_future())
        transport.request(slot)
        await transport.reply(slot, seconds, deadline=deadline)
        self.recovery.dialer.new_secret(secret)

    async def wait_closed(self) -> errors.HarebellError:
        """Wait until the connection has ended for good, and give the reason."""
        if not self.recovery.inherited:
            await asyncio.shield(self.recovery.over)
            await asyncio.shield(self._transport.gone)
        assert self.closed_reason is not None  # what `over` says
        return self.closed_reason

    async def close(self, *, timeout: float | None = None) -> None:
        """Say goodbye and close the transport. Closing twice, or a lost connection, is no error.

        A broker that does not answer within the timeout is left without its answer.
        """
        if self.recovery.inherited:
            return
        seconds = seconds_of(timeout, self.recovery.availability.timeout)
        transport, tasks = self._transport, list(self.recovery.tasks)
        slot = self.recovery.say_goodbye()
        try:
            async with asyncio.timeout(seconds):
                if slot is not None:
                    await slot.future
                await asyncio.shield(transport.gone)
                await asyncio.gather(*tasks, return_exceptions=True)
        except TimeoutError:
            transport.abort()
        except BaseException:
            transport.closed()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            self.recovery.hang_up()  # a cancelled task does not wait for the network
            return
        await self.close()

    # -- what stands above its channels ------------------------------------------------------------------------------

    # Each of these owns the channels that it needs. Its module is loaded when it is first used.

    @overload
    def producer(
        self,
        exchange: str = ...,
        *,
        window: int = ...,
        on_orphan: OnOrphan = ...,
        on_nack: OnNack = ...,
        mandatory: bool = ...,
        timeout: float | None = ...,
        on_blocked: Callable[[str | None], object] | None = ...,
        deduplicate: bool = ...,
        codec: None = ...,
    ) -> Producer[Message | bytes]: ...
    @overload
    def producer(
        self,
        exchange: str = ...,
        *,
        window: int = ...,
        on_orphan: OnOrphan = ...,
        on_nack: OnNack = ...,
        mandatory: bool = ...,
        timeout: float | None = ...,
        on_blocked: Callable[[str | None], object] | None = ...,
        deduplicate: bool = ...,
        codec: Codec[T],
    ) -> Producer[T]: ...
    def producer(
        self,
        exchange: str = "",
        *,
        window: int = 1000,
        on_orphan: OnOrphan = "raise",
        on_nack: OnNack = "raise",
        mandatory: bool = True,
        timeout: float | None = None,
        on_blocked: Callable[[str | None], object] | None = None,
        deduplicate: bool = False,
        codec: Codec[Any] | None = None,
    ) -> Producer[Any]:
        """Publishing with confirms: `async with connection.producer("orders") as producer`.

        exchange    where to publish, unless a publication says otherwise
        window      how many publications may be unconfirmed; further ones wait
        on_orphan   what becomes of a publication that was written and gets no answer, as for `channel.confirm_select`
        on_nack     what becomes of one that the broker refuses, as there
        mandatory   have what reaches no queue raise Unroutable, unless a publication says otherwise; False where nobody
                    may listen, as behind a fanout exchange
        timeout     seconds for a publication, and for the confirms at the end; the connection's when left out
        on_blocked  called with the reason when the broker blocks publishers, and with None when it takes more again
        deduplicate  give each publication a key of its own in the header x-deduplication-header, unless it has one: a
                    queue with `x-message-deduplication` takes it once, however often it is published
        codec       bodies are values of its type, and it encodes them
        """
        from harebell.client.patterns.producer import Producer

        return Producer(
            self, exchange, window=window, on_orphan=on_orphan, on_nack=on_nack, mandatory=mandatory,
            timeout=timeout, on_blocked=on_blocked, deduplicate=deduplicate, codec=codec,
        )  # fmt: skip

    def relay(
        self, outbox: Outbox, *, window: int = 1000, interval: float = 0.5, timeout: float | None = None
    ) -> Relay:
        """Publish what an outbox holds: `async with connection.relay(outbox)`, or `await relay.run()`.

        outbox    a `SQLiteOutbox`, a `PostgresOutbox`, or what has its four methods for another database
        window    how many publications may be unconfirmed
        interval  seconds between two looks into the outbox; `relay.wake()` has it look at once
        timeout   seconds for up to 500 publications; those that are not confirmed by then are published again
        """
        from harebell.client.patterns.outbox import Relay

        return Relay(self, outbox, window=window, interval=interval, timeout=timeout)

    def deliveries(
        self,
        queue: str,
        *,
        prefetch: int = 100,
        resubscribe: bool = False,
        exclusive: bool = False,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> QueueReader:
        """An iterator over what a queue delivers, on a channel of its own: `async for d in connection.deliveries("q")`.

        prefetch     how many unacknowledged deliveries may be under way; 0: no limit
        resubscribe  when the broker cancels the consumer, declare the queue again and go on
        timeout      seconds for subscribing; waiting for a delivery has no deadline
        """
        from harebell.client.patterns.reader import QueueReader

        return QueueReader(
            self, queue, prefetch=prefetch, resubscribe=resubscribe, exclusive=exclusive, arguments=arguments,
            timeout=timeout,
        )  # fmt: skip

    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[Delivery], Awaitable[object] | None],
        *,
        batch: None = ...,
        within: None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: OnError | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: None = ...,
        setup: Setup | None = ...,
        cleanup: Setup | None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[T, Delivery], Awaitable[object] | None],
        *,
        batch: None = ...,
        within: None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: OnError | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: Codec[T],
        setup: Setup | None = ...,
        cleanup: Setup | None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[list[Delivery]], Awaitable[object] | None],
        *,
        batch: int,
        within: float | None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: OnError | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: None = ...,
        setup: Setup | None = ...,
        cleanup: Setup | None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[list[T], list[Delivery]], Awaitable[object] | None],
        *,
        batch: int,
        within: float | None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: OnError | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: Codec[T],
        setup: Setup | None = ...,
        cleanup: Setup | None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    def consume(
        self,
        queue: str,
        handler: Callable[..., object],
        *,
        batch: int | None = None,
        within: float | None = None,
        workers: int | None = None,
        prefetch: int | None = None,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        max_failures: int | None = 10,
        on_error: OnError | None = None,
        on_orphan: Callable[[Delivery], object] | None = None,
        handler_timeout: float | None = None,
        grace: float = 30,
        codec: Codec[Any] | None = None,
        setup: Setup | None = None,
        cleanup: Setup | None = None,
        resubscribe: bool = False,
        exclusive: bool = False,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Workers:
        """A queue whose messages a handler processes: `async with connection.consume("work", handle) as workers`, or
        `await connection.consume("work", handle).run()`.

        handler          called with each Delivery, with a codec: with the value and the Delivery. A coroutine function;
                         a plain one runs in the loop. It returns: ack. It raises: as `workers` says
        batch            call the handler with lists of deliveries (with a codec: of values, and of deliveries), of at
                         most that many; None: with one at a time. A batch that fails is tried one by one
        within           seconds that a batch waits for more, counted from its first delivery; 0.5 when left out
        workers          how many messages, or batches, are processed at a time; left out, 16 messages, or one batch
        prefetch         how many unacknowledged deliveries may be under way; twice those that are processed at a time
                         when left out
        retry            what becomes of a message whose handler failed; None: it is rejected
        dead_letter      a queue for messages that are given up; it is declared, durable
        max_failures     without both, and where the queue was not declared here with a dead-letter exchange: after so
                         many failures in a row the consumer ends with HandlerFailed, and the messages stay in the
                         queue. None: go on, and reject every message that fails
        on_error         called with the delivery and the error of each failure; a coroutine function is awaited
        on_orphan        called with a delivery that was processed and could not be acknowledged after an outage: it
                         comes again
        handler_timeout  seconds for one call, then the handler is cancelled, and that is a failure
        grace            seconds that handlers have to finish when the consumer is stopped
        codec            decodes the body; one that it cannot read is given up at once
        setup, cleanup   called with the consumer's channel before it subscribes (again, too), and after the last
                         handler has ended; a coroutine function is awaited
        resubscribe      when the broker cancels the consumer, declare the queue again and go on
        timeout          seconds for subscribing and for moving a message
        """
        from harebell.client.patterns.outcomes import RetryOutcome
        from harebell.client.patterns.workers import Workers

        outcome = RetryOutcome(
            self, queue, retry, dead_letter=dead_letter, max_failures=max_failures, on_error=on_error, timeout=timeout
        )
        return Workers(
            self, queue, handler, batch=batch, within=within, workers=workers, prefetch=prefetch, outcome=outcome,
            on_orphan=on_orphan, handler_timeout=handler_timeout, grace=grace, codec=codec, setup=setup,
            cleanup=cleanup, resubscribe=resubscribe, exclusive=exclusive, arguments=arguments, timeout=timeout,
        )  # fmt: skip

    def stream(
        self,
        queue: str,
        *,
        offset: Offset = "next",
        name: str = "",
        offsets: Offsets | None = None,
        resume: Resume = "handed_out",
        store_every: int = 1000,
        store_seconds: float = 5.0,
        prefetch: int = 1000,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> StreamReader:
        """A reader of a stream queue, which continues where it was: `async for delivery in connection.stream("log")`.

        offset         where to begin: "first", "last" (block), "next", a message's number, a datetime, an age ("2h")
        name, offsets  where its position is stored under that name: a `FileOffsets`, a `QueueOffsets`, or anything with
                       their methods. With a stored position it begins behind that, and not at `offset`
        resume         where it continues after an outage: behind the last delivery that was "handed_out", or "settled":
                       at the first one that was not, so that those since then come again
        store_every, store_seconds  how many messages, and seconds, pass between two stores of the position
        prefetch       how many unacknowledged deliveries may be under way; a stream needs a limit
        """
        from harebell.client.patterns.streams.reader import StreamReader

        return StreamReader(
            self, queue, offset=offset, name=name, offsets=offsets, resume=resume, store_every=store_every,
            store_seconds=store_seconds, prefetch=prefetch, arguments=arguments, timeout=timeout,
        )  # fmt: skip

    def super_stream(self, name: str, partitions: int | Sequence[str]) -> SuperStream:
        """A super stream, to declare it, publish to it and read it.

        partitions  how many there are, with the keys "0", "1", ...; or their keys
        """
        from harebell.client.patterns.streams.super_stream import SuperStream

        return SuperStream(self, name, partitions)

    def dead_letters(self, queue: str, *, prefetch: int = 100, timeout: float | None = None) -> DeadLetters:
        """An iterator over a dead-letter queue: each DeadLetter says why it is there; acknowledge its `delivery`."""
        from harebell.client.patterns.dead_letters import DeadLetters
        from harebell.client.patterns.reader import QueueReader

        return DeadLetters(
            QueueReader(
                self, queue, prefetch=prefetch, resubscribe=False, exclusive=False, arguments=None,
                timeout=timeout,
            )
        )  # fmt: skip

    @overload
    def rpc(
        self, exchange: str = ..., *, timeout: float | None = ..., codec: None = ...
    ) -> Rpc[Message | bytes, Delivery]: ...
    @overload
    def rpc(self, exchange: str = ..., *, timeout: float | None = ..., codec: Codec[T]) -> Rpc[object, T]: ...
    def rpc(
        self, exchange: str = "", *, timeout: float | None = None, codec: Codec[Any] | None = None
    ) -> Rpc[Any, Any]:
        """Remote calls: `async with connection.rpc() as rpc: reply = await rpc.call(b"...", "resize")`.

        exchange  where requests go, unless a call says otherwise
        timeout   seconds for a call; the connection's when left out
        codec     encodes requests and decodes replies; these are of its type, those need not be
        """
        from harebell.client.patterns.rpc import Rpc

        return Rpc(self, exchange, timeout=timeout, codec=codec)

    @overload
    def serve(
        self,
        queue: str,
        handler: Callable[[Delivery], Awaitable[Answer] | Answer],
        *,
        workers: int = ...,
        prefetch: int | None = ...,
        on_error: OnError | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: None = ...,
        setup: Setup | None = ...,
        cleanup: Setup | None = ...,
        timeout: float | None = ...,
    ) -> Server: ...
    @overload
    def serve(
        self,
        queue: str,
        handler: Callable[[T, Delivery], object],
        *,
        workers: int = ...,
        prefetch: int | None = ...,
        on_error: OnError | None = ...,
        handler_timeout: float | None = ...,
        grace: float = ...,
        codec: Codec[T],
        setup: Setup | None = ...,
        cleanup: Setup | None = ...,
        timeout: float | None = ...,
    ) -> Server: ...
    def serve(
        self,
        queue: str,
        handler: Callable[..., object],
        *,
        workers: int = 16,
        prefetch: int | None = None,
        on_error: OnError | None = None,
        handler_timeout: float | None = None,
        grace: float = 30,
        codec: Codec[Any] | None = None,
        setup: Setup | None = None,
        cleanup: Setup | None = None,
        timeout: float | None = None,
    ) -> Server:
        """The other end of `rpc`: what the handler returns for a request is the reply, what it raises RemoteError.

        The arguments are those of `consume`; with a codec the reply is a value, too.
        """
        from harebell.client.patterns.server import Server

        return Server(
            self, queue, handler, workers=workers, prefetch=prefetch, on_error=on_error,
            handler_timeout=handler_timeout, grace=grace, codec=codec, setup=setup, cleanup=cleanup, timeout=timeout,
        )  # fmt: skip

    def channel_pool(
        self,
        max_size: int = 10,
        *,
        setup: Callable[[Channel], object] | None = None,
        idle: float | None = 60,
        timeout: float = 30,
    ) -> ChannelPool:
        """Channels to borrow: `async with connection.channel_pool() as pool`, `async with pool.acquire() as channel`.

        The arguments are those of `ChannelPool`.
        """
        from harebell.client.patterns.pools import ChannelPool

        return ChannelPool(self, max_size, setup=setup, idle=idle, timeout=timeout)
