"""The blocking API: remote calls, and the server that answers them, whose handlers run on threads.

    with connection.rpc() as rpc:
        reply = rpc.call(b"...", "resize", timeout=5)

    with connection.serve("resize", handle) as server:
        server.wait()

What a call ends with stands at the top of `harebell.client.patterns.rpc`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from harebell import errors
from harebell.client.blocking.credentials import in_a_thread
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.settler import Settler
from harebell.client.blocking.thread import IoThread
from harebell.client.channel import Channel
from harebell.client.messages import Delivery, Message
from harebell.client.patterns import rpc as asyncio_api, server as asyncio_server, workers as asyncio_workers
from harebell.client.patterns.codec import Codec, message_of
from harebell.client.patterns.handling import check_callable
from harebell.client.patterns.settlements import OneByOne

if TYPE_CHECKING:
    from harebell.client.blocking.connection import Connection

__all__ = ["Rpc", "Server"]

Given = TypeVar("Given")
Reply = TypeVar("Reply")


@documented_by(asyncio_api.Rpc)
class Rpc(Generic[Given, Reply]):
    """Asks, on a channel of its own, for any number of threads. Made by `connection.rpc`; enter it with `with`."""

    def __init__(self, connection: Connection, inner: asyncio_api.Rpc[Any, Delivery], codec: Codec[Any] | None) -> None:
        self._connection = connection
        self._io = connection.io
        self._inner = inner
        self._codec = codec

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    def start(self) -> Self:
        """Open the channel and listen for replies. Done by `with`."""
        self._io.run(self._inner.start)
        return self

    def call(
        self,
        body: Given | Message,
        routing_key: str,
        *,
        exchange: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
    ) -> Reply:
        request = message_of(body, self._codec)
        reply = self._io.run(
            self._inner.call, request, routing_key, exchange=exchange, timeout=timeout, idempotent=idempotent
        )
        return cast(Reply, reply) if self._codec is None else cast(Reply, self._codec.decode(reply))

    def close(self) -> None:
        self._io.run(self._inner.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._io.run(self._inner.__aexit__, kind, error, traceback)


class _Server(asyncio_server.Server):
    """Deliveries that a handler may settle from its thread."""

    io: IoThread

    def _settler(self, channel: Channel) -> OneByOne:
        return OneByOne(channel, Settler(self.io, channel))


@documented_by(asyncio_workers.Workers)
class Server:
    """Answers requests, each on one of `workers` threads. Made by `connection.serve`.

    What the handler returns is the reply; what it raises, too. Only `raise Requeue` gives the request to another one.
    """

    def __init__(
        self,
        connection: Connection,
        queue: str,
        handler: Callable[..., object],
        *,
        workers: int,
        prefetch: int | None,
        on_error: Callable[[Delivery, Exception], object] | None,
        grace: float,
        codec: Codec[Any] | None,
        timeout: float | None,
    ) -> None:
        check_callable("the handler", handler, *(("delivery",) if codec is None else ("value", "delivery")))
        if inspect.iscoroutinefunction(handler):
            raise errors.InvalidArgument(
                f"the handler {handler.__qualname__} is a coroutine function: a blocking server calls plain functions, "
                "on threads; use harebell.connect, or leave out `async`"
            )
        self._connection = connection  # keeps it open
        self._io = io = connection.io
        self._threads = threads = ThreadPoolExecutor(max(workers, 1), f"harebell-{queue}")
        if on_error is not None:
            check_callable("on_error", on_error, "delivery", "error")

        def work(delivery: Delivery) -> Any:
            if codec is None:
                return handler(delivery)
            try:
                value = codec.decode(delivery)
            except errors.UndecodableBody:
                raise
            except Exception as error:
                raise errors.UndecodableBody(f"the codec failed: {error!r}") from error
            return message_of(handler(value, delivery), codec)

        async def handle(delivery: Delivery) -> Any:
            return await io.loop.run_in_executor(threads, work, delivery)

        with io.turn:
            self._inner = _Server(
                connection.inner, queue, handle, workers=workers, prefetch=prefetch,
                on_error=None if on_error is None else in_a_thread(io, on_error), handler_timeout=None, grace=grace,
                codec=None, setup=None, cleanup=None, timeout=timeout,
            )  # fmt: skip
            self._inner.io = io

    @property
    def running(self) -> int:
        return self._inner.running

    @property
    def stopped(self) -> bool:
        return self._inner.stopped

    def start(self) -> Self:
        """Subscribe and begin. NotFound for a missing queue, AccessRefused."""
        self._io.run(self._inner.start)
        return self

    def wait(self) -> None:
        self._io.run(self._inner.wait)

    def run(self) -> None:
        with self:
            self.wait()

    def stop(self, *, grace: float | None = None) -> None:
        """End it gracefully: no more requests, and those in process are answered. Stopping twice is no error.

        grace  seconds for the handlers that are at work; the server's when left out. A thread cannot be ended: a
               handler that takes longer goes on, and its request is answered by another server
        """
        self._io.run(self._inner.stop, grace=grace)
        self._threads.shutdown(wait=False)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it. Raises why it has ended by itself, unless `wait` has."""
        if error is not None and not isinstance(error, Exception):
            io = self._io
            with io.turn:  # an interrupted program does not wait
                io.loop.create_task(self._inner.stop(grace=0))
            self._threads.shutdown(wait=False)
            return
        try:
            self.stop()
            if error is None:
                self.wait()
        except errors.HarebellError:
            if error is None:
                raise
