"""The blocking API: remote calls, and the server that answers them, whose handlers run on threads.

    with connection.rpc() as rpc:
        reply = rpc.call(b"...", "resize", timeout=5)

    with connection.serve("resize", handle) as server:
        server.wait()

What a call ends with stands at the top of `harebell.client.patterns.rpc`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from harebell.client.blocking.callbacks import in_a_thread
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.patterns.workers import InThreads, Own, Workers
from harebell.client.callbacks import check_plain
from harebell.client.messages import Delivery, Message
from harebell.client.patterns import rpc as asyncio_api, server as asyncio_server
from harebell.client.patterns.codec import Codec, check_codec, message_of

if TYPE_CHECKING:
    from harebell.client.blocking.connection import Connection

__all__ = ["Rpc", "Server"]

Given = TypeVar("Given")
Reply = TypeVar("Reply")


@documented_by(asyncio_api.Rpc)
class Rpc(Generic[Given, Reply]):
    """Asks, on a channel of its own, for any number of threads. Made by `connection.rpc`; enter it with `with`."""

    def __init__(self, connection: Connection, inner: asyncio_api.Rpc[Any, Delivery], codec: Codec[Any] | None) -> None:
        check_codec(codec)
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


class _Server(InThreads, asyncio_server.Server): ...


class Server(Workers):
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
        if on_error is not None:
            check_plain("on_error", on_error, "delivery", "error")
        self._codec = codec

        def make(handle: Callable[[Any], Any], own: Own, /) -> _Server:
            server = _Server(
                connection.inner, queue, handle, workers=workers, prefetch=prefetch,
                on_error=None if on_error is None else in_a_thread(connection.io, own(on_error)), handler_timeout=None,
                grace=grace, codec=None, setup=None, cleanup=None, timeout=timeout,
            )  # fmt: skip
            server.io = connection.io
            return server

        super().__init__(connection, queue, handler, codec, make, threads=workers)

    def _answer(self, result: object) -> object:
        return result if self._codec is None else message_of(result, self._codec)
