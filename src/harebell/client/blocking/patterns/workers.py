"""The blocking API: a queue whose messages a handler processes, on threads.

    with connection.consume("work", handle, workers=8, retry=harebell.Retry()) as workers:
        workers.wait()

What becomes of a message, and what ends the consumer, stands at the top of `harebell.client.patterns.workers`; of
batches, in `batches`. What is different here:

1. the handler is a plain function, called on one of `workers` threads; `on_error`, `setup` and `cleanup` are called on
   others. A thread cannot be ended: there is no `handler_timeout`, and a handler that takes longer than the grace goes
   on, while its message is back in the queue;
2. the body of a `with` block is not ended with the consumer: `wait` raises why, or the end of the block;
3. what a handler or `on_error` raises is never raised elsewhere: SystemExit, too, is its failure. Of `setup` and
   `cleanup` it is raised as RuntimeError.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, TypeVarTuple

from harebell import errors
from harebell.client.blocking.callbacks import in_a_thread
from harebell.client.blocking.channel import Channel
from harebell.client.blocking.docs import documented_by
from harebell.client.blocking.settler import Settler
from harebell.client.blocking.thread import IoThread
from harebell.client.callbacks import call_contained, check_plain
from harebell.client.channel import Channel as AsyncChannel
from harebell.client.patterns import workers as asyncio_api
from harebell.client.patterns.codec import Codec, check_codec
from harebell.client.patterns.handling import NotCalled, value_of, values_of
from harebell.client.patterns.reader import Setup
from harebell.client.patterns.settlements import OneByOne

if TYPE_CHECKING:
    from harebell.client.blocking.connection import Connection

__all__ = ["InThreads", "Workers", "of_channel", "workers_of"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class InThreads:
    """Beside an asyncio consumer: its deliveries may be settled from any thread."""

    io: IoThread

    def _settler(self, channel: AsyncChannel) -> OneByOne:
        return OneByOne(channel, Settler(self.io, channel))


def on_threads(io: IoThread, threads: Executor, handler: Callable[[Any], object]) -> Callable[[Any], Awaitable[object]]:
    """The handler for the asyncio consumer, called on one of these threads, in a copy of the context of its message.

    NotCalled once they call nothing more.
    """

    async def call(given: Any) -> object:
        work = functools.partial(call_contained, handler, given)
        try:
            called = io.loop.run_in_executor(threads, copy_context().run, work)
        except RuntimeError as error:  # they have ended, or the interpreter is ending
            raise NotCalled(str(error)) from error
        return await called

    return call


class _Workers(InThreads, asyncio_api.Workers): ...


def workers_of(connection: Connection, queue: str, handler: Any, **options: Any) -> asyncio_api.Workers:
    """The asyncio consumer for a handler, whose deliveries may be settled from any thread."""
    made = _Workers(connection.inner, queue, handler, **options)
    made.io = connection.io
    return made


def of_channel(connection: Connection, function: Callable[[Channel], object]) -> Setup:
    """A function of a blocking channel, for the asyncio client: called in a thread, with the twin of the channel."""
    called = in_a_thread(connection.io, function)

    async def call(inner: AsyncChannel) -> None:
        settler = inner.core.settler
        twin = Channel(connection, inner)
        inner.core.settler = settler  # the consumer's, and not what a plain channel's deliveries have
        await called(twin)

    return call


class Making(Protocol):
    """Makes the asyncio consumer for this handler. `own` marks the program's other functions as the consumer's."""

    def __call__(self, handler: Callable[[Any], Awaitable[object]], own: Own, /) -> asyncio_api.Workers: ...


class Own(Protocol):
    """The same function, whose calls know that they are inside of the consumer."""

    def __call__(self, function: Callable[[*Ts], T], /) -> Callable[[*Ts], T]: ...


@documented_by(asyncio_api.Workers)
class Workers:
    """A consumer with a handler, on threads, made by `connection.consume`. Enter it with `with`, or `run()`."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        handler: Callable[..., object],
        codec: Codec[Any] | None,
        make: Making,
        *,
        threads: int,
        batches: bool = False,
    ) -> None:
        names = ("values", "deliveries") if batches else ("value", "delivery")
        check_codec(codec)
        check_plain("the handler", handler, *names[codec is None :])
        self._connection = connection  # keeps it open
        self._io = io = connection.io
        self._threads = pool = ThreadPoolExecutor(max(threads, 1), f"harebell-{queue}")
        self._here = threading.local()  # has an attribute on threads that run a function of the program's for it
        read: Callable[[Codec[Any], Any], Any] = values_of if batches else value_of
        answer = self._answer

        @functools.wraps(handler)
        def work(given: Any) -> object:
            result = handler(given) if codec is None else handler(read(codec, given), given)
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise errors.InvalidArgument(f"the handler gave {type(result).__name__}, which nobody awaits here")
            return answer(result)

        with io.turn:
            self._inner = make(on_threads(io, pool, self._own(work)), self._own)

    def _own(self, function: Callable[[*Ts], T], /) -> Callable[[*Ts], T]:
        here = self._here

        @functools.wraps(function)
        def call(*args: *Ts) -> T:
            here.inside = True
            try:
                return function(*args)
            finally:
                here.inside = False

        return call

    def _answer(self, result: object) -> object:
        """What becomes of what the handler returns. Called on its thread."""
        return None

    @property
    def running(self) -> int:
        return self._inner.running

    @property
    def stopped(self) -> bool:
        return self._inner.stopped

    def start(self) -> Self:
        self._io.run_or_undo(lambda started: self._leave(), self._inner.start)
        return self

    def wait(self) -> None:
        self._io.run(self._inner.wait)

    def run(self) -> None:
        try:
            with self:
                self.wait()
        except BaseException as error:
            if not isinstance(error, Exception):
                self._leave()  # for a signal that came before the block was entered
            raise

    def stop(self, *, grace: float | None = None) -> None:
        """End it gracefully: no new messages, and handlers finish. Stopping twice is no error.

        grace  seconds for the handlers that are at work; the consumer's when left out. A thread cannot be ended: a
               handler that takes longer goes on, and its messages are back in the queue

        A handler, or another function of this consumer, that calls this only begins the end: it cannot wait for itself.
        `run`, `wait` or the block waits.
        """
        if getattr(self._here, "inside", False):
            self._io.run(self._inner.take_no_more)
            return
        self._io.run(self._inner.stop, grace=grace)
        self._threads.shutdown(wait=False)

    def _leave(self) -> None:
        """End it without waiting, for an interrupted program: what is in process goes back."""
        with self._io.turn:
            ending = self._io.loop.create_task(self._inner.stop(grace=0))
            # Not before: until then a message may still need a thread.
            ending.add_done_callback(lambda ended: self._threads.shutdown(wait=False))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it. Raises why it has ended by itself, unless `wait` has."""
        if error is not None and not isinstance(error, Exception):
            self._leave()
            return
        try:
            self.stop()
            if error is None:
                self.wait()
        except errors.HarebellError:
            if error is None:
                raise
