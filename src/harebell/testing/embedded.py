"""A Harebell broker in a thread of this process, for tests of any AMQP software, blocking clients too.

    with EmbeddedBroker() as server:
        pika.BlockingConnection(pika.URLParameters(server.url))

It is the real broker on a free port of this machine, started in some ten milliseconds, with an event loop of its own:
the broker still runs while a test blocks its thread or closes its loop. A test with an event loop may also use
`async with Broker()` in it. The module `rabbitmq` does the same with a RabbitMQ.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Final, Self, TypeVar

from harebell.broker import Broker
from harebell.errors import InvalidArgument, LocalProtocolError

__all__ = ["EmbeddedBroker"]

T = TypeVar("T")

PATIENCE: Final = 60.0  # seconds for steps that take milliseconds on an idle machine
FAREWELL: Final = 10.0  # seconds in which a step that was given up ends


class EmbeddedBroker:
    """A broker in its own thread. `start` and `close` it, or use it in a `with` block.

    make  returns the Broker: the class itself, or `lambda: Broker(data=folder, events=True)`; called at each start

    `stop` and `start` may alternate: the port stays, the data only where `make` says `data`. All of this blocks; a
    coroutine uses `await asyncio.to_thread(server.restart)`: clients in its loop have to answer connection.close.
    Raises what `Broker.start` raises, and TimeoutError when the broker does not answer; InvalidArgument for a `make`
    that cannot be called. A start or a stop that is interrupted, as by Ctrl-C, leaves no broker behind.

    A forked child may use `url` and `port`, to connect. The broker is the parent's: `stop`, `close` and the end of the
    `with` block do nothing in the child, and the rest raises LocalProtocolError.
    """

    def __init__(self, make: Callable[[], Broker] = Broker) -> None:
        if not callable(make):
            raise InvalidArgument(
                f"make is {make!r}: what makes a broker at each start is needed, as in `lambda: Broker(data=folder)`"
            )
        self._make = make
        self._port: int | None = None
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0  # the one with the thread

    @property
    def is_running(self) -> bool:
        """Whether clients can connect."""
        return self._broker is not None

    @property
    def broker(self) -> Broker:
        """The Broker object; it belongs to another thread, so use it only inside `run`."""
        self._check_process()
        return self._shown()

    def _shown(self) -> Broker:
        if self._broker is None:
            raise LocalProtocolError("this broker is not running: call start(), or use it in a `with` block")
        return self._broker

    @property
    def _inherited(self) -> bool:
        """Whether the thread is the parent's: this process was forked."""
        return self._thread is not None and self._process != os.getpid()

    def _check_process(self) -> None:
        if self._inherited:
            raise LocalProtocolError(
                "this broker was started before a fork, in the parent process, which runs it: start another "
                "EmbeddedBroker in this process, or connect to its url"
            )

    @property
    def url(self) -> str:
        """The URL for clients, with user and password guest."""
        return self._shown().url

    @property
    def port(self) -> int:
        """The AMQP port, on 127.0.0.1 and ::1. RuntimeError when `make` asked for none."""
        port = self._shown().port
        if port is None:
            raise RuntimeError("this broker listens on no port: connect with sock=server.open_socket()")
        return port

    def run(self, function: Callable[[Broker], T]) -> T:
        """Call the function with the broker, in its loop, and return the result: `run(lambda b: b.set_policy(...))`."""
        broker = self.broker

        async def call() -> T:
            return function(broker)

        return self._await(call())

    def open_socket(self) -> socket.socket:
        """A socket connected to the broker without a port, for `harebell.connect(sock=...)`."""
        return self._await(self.broker.open_socket())

    def start(self) -> None:
        """Start the broker; returns when clients can connect."""
        self._check_process()
        if self._broker is not None:
            raise LocalProtocolError("this broker is already running")
        if self._loop is None:
            self._process = os.getpid()
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="harebell broker", daemon=True)
            self._thread.start()
        try:
            self._await(self._start())
        except BaseException:
            self.close()
            raise

    async def _start(self) -> None:
        broker = self._make()
        if self._port is not None:
            broker.port = self._port
        await broker.start()
        self._port, self._broker = broker.port, broker  # at once: whoever waits may be interrupted

    def stop(self) -> None:
        """Stop the broker cleanly: clients get 320, confirmed messages are on disk. May be called again."""
        if self._broker is not None and not self._inherited:
            broker, self._broker = self._broker, None
            self._await(broker.stop())

    def restart(self) -> None:
        """`stop` and `start`, on the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker for good. May be called at any time, and again."""
        if self._inherited:
            return
        try:
            self.stop()
        finally:
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(PATIENCE)
                self._loop.close()
                self._loop = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _await(self, work: Coroutine[object, object, T]) -> T:
        """Wait for the work. When that is interrupted, or takes too long, the work is cancelled and ends first.

        Otherwise a broker that nobody knows would keep its port and its folder.
        """
        loop, begun, ended = self._loop, threading.Event(), threading.Event()
        assert loop is not None  # the caller has checked that

        async def tell() -> T:
            begun.set()
            try:
                return await work
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(tell(), loop)
        try:
            return future.result(PATIENCE)
        except BaseException:
            begun.wait(FAREWELL)  # a task that is cancelled before its first step does not come to its end here
            future.cancel()
            ended.wait(FAREWELL)
            raise
