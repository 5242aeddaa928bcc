"""The blocking API: a connection. What it does is done by the asyncio connection, on the process's I/O thread.

Calls that only forward are generated (`forwarded_connection`).
"""

from __future__ import annotations

import socket
import ssl
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from harebell.client import connection as asyncio_api
from harebell.client.blocking.callbacks import Callbacks, in_a_thread
from harebell.client.blocking.channel import Channel
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.events import Events
from harebell.client.blocking.forwarded_connection import ForwardedConnection
from harebell.client.blocking.harness import ConnectionHarness
from harebell.client.blocking.thread import IoThread, io_thread
from harebell.client.callbacks import check_plain
from harebell.client.channel import Channel as AsyncChannel
from harebell.client.connection import DEFAULT_RECOVERY
from harebell.client.messages import Delivery, Message, OnNack, OnOrphan
from harebell.client.middleware.registry import Middlewares
from harebell.client.recovery.policy import Recovery
from harebell.client.transport.dialling import Credentials, Dial, check_credentials, check_dial
from harebell.client.url import ConnectionParameters
from harebell.protocol.v091 import TableLike

if TYPE_CHECKING:
    from harebell.client.blocking.patterns.dead_letters import DeadLetters
    from harebell.client.blocking.patterns.pools import ChannelPool
    from harebell.client.blocking.patterns.producer import Producer, Relay
    from harebell.client.blocking.patterns.reader import QueueReader
    from harebell.client.blocking.patterns.rpc import Rpc, Server
    from harebell.client.blocking.patterns.workers import Own, Workers
    from harebell.client.patterns.codec import Codec
    from harebell.client.patterns.outbox import Outbox
    from harebell.client.patterns.retry import Retry
    from harebell.client.patterns.workers import Workers as AsyncWorkers

__all__ = ["Connection", "connect", "opening"]

T = TypeVar("T")


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
) -> Connection:
    """An open connection, to be used as a context manager or closed by the caller; any thread may use it.

    url          amqp://user:password@host:port/vhost or amqps://..., with the query of `harebell.client.url`; several
                 of them are tried in turn, and after a loss the other ones first
    timeout      seconds for connecting, and for each call that does not say otherwise, the wait for a lost connection
                 included; 30 when the URL says nothing
    heartbeat    seconds; wins over the URL's; 0 takes what the broker proposes
    context      a TLS context of your own, for amqps; wins over the URL's files
    sock         a connected socket to use; the URL then gives all but the address, and the connection cannot come back
    dial         called with host and port at each dial, in some thread, for a connected socket: through a proxy, a
                 tunnel. TLS and the login are the client's
    dial_timeout  seconds for each host, login included; left out, `timeout` for a single one and 5 for each of several
    credentials  called at each dial, in some thread, for (user name, password or token)
    client_properties  what the client says about itself, beside its own product, version and platform, or in place of
                 them; the broker shows it
    locale       of the broker's texts; en_US when left out, and brokers have no other
    recovery     how the connection comes back; None: it ends with its transport
    middleware   what stands around the calls and events of the connection and its channels, as it is registered now; it
                 is called on the I/O thread, as the asyncio API calls it, and must not block

    Raises InvalidArgument for a URL that cannot be understood, ConnectionLost when nobody answers there, AccessRefused
    for a refused login, NotAllowed for a vhost that is missing, DeadlineExceeded; LocalProtocolError inside a running
    event loop.
    """
    io = io_thread()
    inner = io.run_or_undo(
        _hang_up,
        opening,
        io,
        url,
        timeout=timeout,
        heartbeat=heartbeat,
        context=context,
        sock=sock,
        dial=dial,
        dial_timeout=dial_timeout,
        credentials=credentials,
        client_properties=client_properties,
        locale=locale,
        recovery=recovery,
        middleware=middleware,
    )
    return Connection(io, inner)


async def opening(
    io: IoThread, url: Any, *, dial: Dial | None = None, credentials: Credentials | None = None, **options: Any
) -> asyncio_api.Connection:
    """An asyncio connection on the I/O thread, with what `connect` was given."""
    check_dial(dial)  # here, because in_a_thread makes a function of any arguments
    check_credentials(credentials)
    inner = await asyncio_api.connect(
        url,
        dial=None if dial is None else in_a_thread(io, dial),
        credentials=None if credentials is None else in_a_thread(io, credentials),
        **options,
    )
    io.connections.add(inner)
    return inner


def _hang_up(inner: asyncio_api.Connection) -> None:
    """Close it without waiting for the broker's answer."""
    inner.recovery.hang_up()


def _leave(inner: AsyncChannel) -> None:
    """Close it without waiting for the broker's answer."""
    inner.recovery.say_goodbye()


@documented_by(asyncio_api.Connection)
class Connection(ForwardedConnection):
    """A connection to a broker, over every transport that carries it. Made by `connect`."""

    def __init__(self, io: IoThread, inner: asyncio_api.Connection) -> None:
        callbacks = Callbacks(io)
        super().__init__(io, inner, callbacks)
        with io.turn:
            inner.recovery.over.add_done_callback(lambda over: callbacks.end())

    def events(self) -> Events:
        """What happens to the connection from now on: `for event in connection.events()`."""
        with self.io.turn:
            return Events(self, self.io, self.inner.events())

    def test(self) -> ConnectionHarness:
        return ConnectionHarness(self.io, self.inner.test())

    def channel(self, *, timeout: float | None = None, middleware: Middlewares | None = None) -> Channel:
        """A new channel, open, to be used as a context manager or closed by the caller.

        middleware  what stands around the calls and events of this channel, inside what `connect` was given
        """

        async def opened() -> AsyncChannel:
            return await self.inner.channel(timeout=timeout, middleware=middleware)

        return Channel(self, self.io.run_or_undo(_leave, opened))

    # -- what stands above its channels ------------------------------------------------------------------------------

    # Each module is loaded when it is first used.

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
        """Publishing with confirms: `with connection.producer("orders") as producer`.

        exchange    where to publish, unless a publication says otherwise
        window      how many publications may be unconfirmed; further ones wait
        on_orphan   what becomes of a publication that was written and gets no answer, as for `channel.confirm_select`
        on_nack     what becomes of one that the broker refuses, as there
        mandatory   have what reaches no queue raise Unroutable, unless a publication says otherwise; False where nobody
                    may listen, as behind a fanout exchange
        timeout     seconds for a publication, and for the confirms at the end; the connection's when left out
        on_blocked  called, on a thread of its own, with the reason when the broker blocks publishers, and with None
                    when it takes more again
        deduplicate  give each publication a key of its own in the header x-deduplication-header, unless it has one: a
                    queue with `x-message-deduplication` takes it once, however often it is published
        codec       bodies are values of its type, and it encodes them, on the calling thread
        """
        from harebell.client.blocking.patterns.producer import Producer

        with self.io.turn:
            inner = self.inner.producer(
                exchange, window=window, on_orphan=on_orphan, on_nack=on_nack, mandatory=mandatory, timeout=timeout,
                on_blocked=None if on_blocked is None else self.callbacks.later("on_blocked", on_blocked, "reason"),
                deduplicate=deduplicate,
            )  # fmt: skip
        return Producer(self, inner, codec)

    def relay(
        self, outbox: Outbox, *, window: int = 1000, interval: float = 0.5, timeout: float | None = None
    ) -> Relay:
        """Publish what an outbox holds: `with connection.relay(outbox)`, or `relay.run()` on a thread.

        outbox    a `SQLiteOutbox`, a `PostgresOutbox`, or what has their four coroutines; these run on the I/O thread,
                  and must not block
        window    how many publications may be unconfirmed
        interval  seconds between two looks into the outbox; `relay.wake()` has it look at once
        timeout   seconds for up to 500 publications; those that are not confirmed by then are published again
        """
        from harebell.client.blocking.patterns.producer import Relay

        with self.io.turn:
            inner = self.inner.relay(outbox, window=window, interval=interval, timeout=timeout)
        return Relay(self, inner)

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
        """An iterator over what a queue delivers, on a channel of its own: `for d in connection.deliveries("q")`.

        prefetch     how many unacknowledged deliveries may be under way; 0: no limit
        resubscribe  when the broker cancels the consumer, declare the queue again and go on
        timeout      seconds for subscribing; waiting for a delivery has no deadline
        """
        from harebell.client.blocking.patterns.reader import QueueReader

        return QueueReader(
            self, queue, prefetch=prefetch, resubscribe=resubscribe, exclusive=exclusive, arguments=arguments,
            timeout=timeout,
        )  # fmt: skip

    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[Delivery], None],
        *,
        batch: None = ...,
        within: None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: Callable[[Delivery, Exception], object] | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        grace: float = ...,
        codec: None = ...,
        setup: Callable[[Channel], object] | None = ...,
        cleanup: Callable[[Channel], object] | None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[T, Delivery], None],
        *,
        batch: None = ...,
        within: None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: Callable[[Delivery, Exception], object] | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        grace: float = ...,
        codec: Codec[T],
        setup: Callable[[Channel], object] | None = ...,
        cleanup: Callable[[Channel], object] | None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[list[Delivery]], None],
        *,
        batch: int,
        within: float | None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: Callable[[Delivery, Exception], object] | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        grace: float = ...,
        codec: None = ...,
        setup: Callable[[Channel], object] | None = ...,
        cleanup: Callable[[Channel], object] | None = ...,
        resubscribe: bool = ...,
        exclusive: bool = ...,
        arguments: TableLike | None = ...,
        timeout: float | None = ...,
    ) -> Workers: ...
    @overload
    def consume(
        self,
        queue: str,
        handler: Callable[[list[T], list[Delivery]], None],
        *,
        batch: int,
        within: float | None = ...,
        workers: int | None = ...,
        prefetch: int | None = ...,
        retry: Retry | None = ...,
        dead_letter: str | None = ...,
        max_failures: int | None = ...,
        on_error: Callable[[Delivery, Exception], object] | None = ...,
        on_orphan: Callable[[Delivery], object] | None = ...,
        grace: float = ...,
        codec: Codec[T],
        setup: Callable[[Channel], object] | None = ...,
        cleanup: Callable[[Channel], object] | None = ...,
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
        on_error: Callable[[Delivery, Exception], object] | None = None,
        on_orphan: Callable[[Delivery], object] | None = None,
        grace: float = 30,
        codec: Codec[Any] | None = None,
        setup: Callable[[Channel], object] | None = None,
        cleanup: Callable[[Channel], object] | None = None,
        resubscribe: bool = False,
        exclusive: bool = False,
        arguments: TableLike | None = None,
        timeout: float | None = None,
    ) -> Workers:
        """A queue whose messages a handler processes: `with connection.consume("work", handle) as workers`, or
        `connection.consume("work", handle).run()`.

        handler        a plain function, called on a thread with each Delivery, with a codec: with the value and the
                       Delivery. It returns: ack. It raises: as `harebell.client.patterns.workers` says
        batch          call the handler with lists of deliveries (with a codec: of values, and of deliveries), of at
                       most that many; None: with one at a time. A batch that fails is tried one by one
        within         seconds that a batch waits for more, counted from its first delivery; 0.5 when left out
        workers        how many threads, each with a message, or a batch; left out, 16, or one for batches
        prefetch       how many unacknowledged deliveries may be under way; twice those that are processed at a time
                       when left out
        retry          what becomes of a message whose handler failed; None: it is rejected
        dead_letter    a queue for messages that are given up; it is declared, durable
        max_failures   without both, and where the queue was not declared here with a dead-letter exchange: after so
                       many failures in a row the consumer ends with HandlerFailed, and the messages stay in the queue.
                       None: go on, and reject every message that fails
        on_error       called, on a thread, with the delivery and the error of each failure
        on_orphan      called, on a thread of its own, with a delivery that was processed and could not be acknowledged
                       after an outage: it comes again
        grace          seconds that handlers have to finish when the consumer is stopped
        codec          decodes the body, on the handler's thread; one that it cannot read is given up at once
        setup, cleanup  called, on a thread, with the consumer's channel before it subscribes (again, too), and after
                       the last handler has ended
        resubscribe    when the broker cancels the consumer, declare the queue again and go on
        timeout        seconds for subscribing and for moving a message
        """
        from harebell.client.blocking.patterns.workers import Workers, of_channel, workers_of
        from harebell.client.patterns.outcomes import RetryOutcome

        for what, function, names in (
            ("on_error", on_error, ("delivery", "error")), ("on_orphan", on_orphan, ("delivery",)),
            ("setup", setup, ("channel",)), ("cleanup", cleanup, ("channel",)),
        ):  # fmt: skip
            if function is not None:
                check_plain(what, function, *names)
        threads = workers if workers is not None else 16 if batch is None else 1
        later = self.callbacks.later

        def make(handle: Callable[[Any], Any], own: Own, /) -> AsyncWorkers:
            outcome = RetryOutcome(
                self.inner, queue, retry, dead_letter=dead_letter, max_failures=max_failures,
                on_error=None if on_error is None else in_a_thread(self.io, own(on_error)), timeout=timeout,
            )  # fmt: skip
            return workers_of(
                self, queue, handle, batch=batch, within=within, workers=threads, prefetch=prefetch, outcome=outcome,
                on_orphan=None if on_orphan is None else later("on_orphan", own(on_orphan), "delivery"),
                handler_timeout=None, grace=grace, codec=None,
                setup=None if setup is None else of_channel(self, own(setup)),
                cleanup=None if cleanup is None else of_channel(self, own(cleanup)),
                resubscribe=resubscribe, exclusive=exclusive, arguments=arguments, timeout=timeout,
            )  # fmt: skip

        return Workers(self, queue, handler, codec, make, threads=threads, batches=batch is not None)

    def dead_letters(self, queue: str, *, prefetch: int = 100, timeout: float | None = None) -> DeadLetters:
        """An iterator over a dead-letter queue: each DeadLetter says why it is there; acknowledge its `delivery`."""
        from harebell.client.blocking.patterns.dead_letters import DeadLetters

        return DeadLetters(self, queue, prefetch, timeout)

    @overload
    def rpc(
        self, exchange: str = ..., *, timeout: float | None = ..., codec: None = ...
    ) -> Rpc[Message | bytes, Delivery]: ...
    @overload
    def rpc(self, exchange: str = ..., *, timeout: float | None = ..., codec: Codec[T]) -> Rpc[object, T]: ...
    def rpc(
        self, exchange: str = "", *, timeout: float | None = None, codec: Codec[Any] | None = None
    ) -> Rpc[Any, Any]:
        """Remote calls: `with connection.rpc() as rpc: reply = rpc.call(b"...", "resize")`.

        exchange  where requests go, unless a call says otherwise
        timeout   seconds for a call; the connection's when left out
        codec     encodes requests and decodes replies, on the calling thread; these are of its type, those need not be
        """
        from harebell.client.blocking.patterns.rpc import Rpc

        with self.io.turn:
            inner = self.inner.rpc(exchange, timeout=timeout)
        return Rpc(self, inner, codec)

    def serve(
        self,
        queue: str,
        handler: Callable[..., object],
        *,
        workers: int = 16,
        prefetch: int | None = None,
        on_error: Callable[[Delivery, Exception], object] | None = None,
        grace: float = 30,
        codec: Codec[Any] | None = None,
        timeout: float | None = None,
    ) -> Server:
        """The other end of `rpc`: what the handler returns for a request is the reply, what it raises RemoteError.

        handler   a plain function, called on a thread with each Delivery, with a codec: with the value and the Delivery
        workers   how many threads
        prefetch  how many requests may be under way; twice the workers when left out
        on_error  called, on a thread, with the delivery and the error of each failure
        grace     seconds that handlers have to finish when the server is stopped
        codec     decodes requests and encodes replies, on the handler's thread
        timeout   seconds for subscribing and for publishing a reply
        """
        from harebell.client.blocking.patterns.rpc import Server

        return Server(
            self, queue, handler, workers=workers, prefetch=prefetch, on_error=on_error, grace=grace, codec=codec,
            timeout=timeout,
        )  # fmt: skip

    def channel_pool(
        self,
        max_size: int = 10,
        *,
        setup: Callable[[Channel], object] | None = None,
        idle: float | None = 60,
        timeout: float = 30,
    ) -> ChannelPool:
        """Channels to borrow: `with connection.channel_pool() as pool`, `with pool.acquire() as channel`.

        The arguments are those of `ChannelPool`.
        """
        from harebell.client.blocking.patterns.pools import ChannelPool

        return ChannelPool(self, max_size, setup=setup, idle=idle, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            # An interrupted program does not wait for the network: close is written, then the transport closes.
            with self.io.turn:
                _hang_up(self.inner)
            return
        self.close()

    def __del__(self) -> None:
        if self.io.usable and not self.inner.is_closed:
            warnings.warn(f"unclosed connection to {self.parameters.peer}", ResourceWarning, source=self, stacklevel=1)
            self.io.loop.call_soon_threadsafe(_hang_up, self.inner)
