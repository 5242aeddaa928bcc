"""The law of deliveries: no consumer dies in silence, and no acknowledgement covers what the program has not seen.

A *way* is how a program consumes; an *end* is what happens to it meanwhile. `TOLD` says for each pair what the program
is told. `Trial` runs one pair, against any broker: the queue has 30 messages, the program has processed five and holds
the sixth, more lie in its buffer; then the end comes. Afterwards every message is accounted for:

1. What the program acknowledged, without an error, is not in the queue; everything else is, unless the queue is gone.
2. Where it goes on, the program gets all the rest, and acknowledges it.
3. A consumer that ends, and not by the program, is told of by the event ConsumerEnded, and by the log.

`docs/explanation/deliveries.md` shows the table; a test compares both.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import harebell
from harebell import blocking, errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Message
from harebell.client.recovery.policy import Backoff, Recovery

COUNT: Final = 30  # messages
BEFORE: Final = 5  # of these, processed when the end comes
PREFETCH: Final = 10

GOES_ON: Final = "goes on"
WAITS: Final = "waits, then goes on"
ENDS: Final = "ends quietly"

# -- the ways ----------------------------------------------------------------------------------------------------------

WAYS: Final = {
    "iterator": "`async for` over `channel.consume`",
    "each": "`channel.consume(...).each(callback)`",
    "receive": "`consumer.receive`",
    "get": "`channel.get` in a loop",
    "deliveries": "`connection.deliveries`",
    "deliveries, resubscribe": "`connection.deliveries(resubscribe=True)`",
    "workers": "`async with connection.consume(queue, handler)`",
    "workers, resubscribe": "`connection.consume(resubscribe=True)`",
    "batches": "`connection.consume(queue, handler, batch=2)`",
    "serve": "`async with connection.serve(queue, handler)`",
    "stream": "`connection.stream`",
    "blocking": "`for` over `harebell.blocking`'s `channel.consume`",
}

ENDED: Final = "ConsumerCancelled"

TOLD: Final[dict[str, dict[str, str]]] = {
    "the queue is deleted": {
        **dict.fromkeys(WAYS, ENDED),
        "get": "NotFound",
        "deliveries, resubscribe": WAITS,
        "workers, resubscribe": WAITS,
    },
    "the queue is gone after an outage": {
        **dict.fromkeys(WAYS, "NotFound"),
        "deliveries, resubscribe": WAITS,
        "workers, resubscribe": WAITS,
    },
    "an exclusive consumer takes the queue during an outage": {
        **dict.fromkeys(WAYS, "AccessRefused"),
        "stream": "-",
        "get": GOES_ON,
        "deliveries, resubscribe": WAITS,
        "workers, resubscribe": WAITS,
    },
    "the connection is cut": dict.fromkeys(WAYS, GOES_ON),
    "the broker restarts": dict.fromkeys(WAYS, GOES_ON),
    "another call on the channel is refused": dict.fromkeys(WAYS, GOES_ON),
    "another call is refused, with reopen_channels=False": {**dict.fromkeys(WAYS, "NotFound"), "get": "ChannelClosed"},
    "the consumer timeout": {
        **dict.fromkeys(WAYS, ENDED),
        "get": "PreconditionFailed",
        "stream": "-",
        "deliveries, resubscribe": WAITS,
        "workers, resubscribe": WAITS,
    },
    "the connection is cut, with recovery=None": {**dict.fromkeys(WAYS, "ConnectionLost"), "get": "ChannelClosed"},
    "no connection within give_up_after": {**dict.fromkeys(WAYS, "RecoveryGaveUp"), "get": "ChannelClosed"},
    "the program cancels the consumer": {**dict.fromkeys(WAYS, ENDS), "get": "-", "stream": "-"},
    "the program closes the channel": {**dict.fromkeys(WAYS, ENDS), "get": "ChannelClosed"},
    "the program closes the connection": {**dict.fromkeys(WAYS, ENDS), "get": "ChannelClosed"},
    "the task is cancelled": {**dict.fromkeys(WAYS, "CancelledError"), "blocking": "-"},
}

QUICK: Final = Recovery(backoff=Backoff(0.01, 0.05))
RECOVERIES: Final[dict[str, Recovery | None]] = {
    "another call is refused, with reopen_channels=False": Recovery(reopen_channels=False),
    "the connection is cut, with recovery=None": None,
    "no connection within give_up_after": Recovery(backoff=Backoff(0.01, 0.02), give_up_after=0.0),
}


class Program:
    """What the program does with its deliveries: it acknowledges them, and holds the sixth until it is let go."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.seen: list[bytes] = []
        self.acked: list[bytes] = []
        self.holding = asyncio.Event()
        self.release = asyncio.Event()
        self.finished = asyncio.Event()
        self.reader: Any = None  # the consumer, as the program holds it
        self.held: list[Delivery] = []
        self._released = threading.Event()

    def let_go(self) -> None:
        self._released.set()
        self.release.set()
        held, self.held = self.held, []
        for delivery in held:
            self.ack(delivery)

    def holds(self, delivery: Delivery) -> bool:
        """It has come: whether the program holds it."""
        self.seen.append(delivery.body)
        return len(self.seen) == BEFORE + 1

    def ack(self, delivery: Delivery) -> None:
        try:
            delivery.ack()
        except (errors.AcknowledgeOrphans, errors.ChannelClosed):
            return  # told: it comes again
        self.processed(delivery)

    def processed(self, delivery: Delivery) -> None:
        self.acked.append(delivery.body)
        if len(set(self.acked)) == COUNT:
            self.loop.call_soon_threadsafe(self.finished.set)

    async def work(self, delivery: Delivery) -> None:
        if self.holds(delivery):
            self.holding.set()
            await self.release.wait()
        self.ack(delivery)

    def call_back(self, delivery: Delivery) -> None:
        if self.holds(delivery):
            self.holding.set()
        if len(self.seen) > BEFORE and not self.release.is_set():
            self.held.append(delivery)
        else:
            self.ack(delivery)

    def work_in_thread(self, delivery: Delivery) -> None:
        if self.holds(delivery):
            self.loop.call_soon_threadsafe(self.holding.set)
            assert self._released.wait(60)
        self.ack(delivery)


async def _iterate(program: Program, channel: Channel, queue: str) -> None:
    program.reader = channel.consume(queue, prefetch=PREFETCH)
    async for delivery in program.reader:
        await program.work(delivery)


async def _each(program: Program, channel: Channel, queue: str) -> None:
    program.reader = channel.consume(queue, prefetch=PREFETCH)
    await program.reader.each(program.call_back)


async def _receive(program: Program, channel: Channel, queue: str) -> None:
    program.reader = channel.consume(queue, prefetch=PREFETCH)
    while batch := await program.reader.receive(3, timeout=60):
        for delivery in batch:
            await program.work(delivery)


async def _get(program: Program, channel: Channel, queue: str) -> None:
    while True:
        delivery = await channel.get(queue)
        if delivery is not None:
            await program.work(delivery)


async def _deliveries(program: Program, connection: Connection, queue: str, resubscribe: bool) -> None:
    async with connection.deliveries(queue, prefetch=PREFETCH, resubscribe=resubscribe) as program.reader:
        async for delivery in program.reader:
            await program.work(delivery)


async def _stream(program: Program, connection: Connection, queue: str) -> None:
    async with connection.stream(queue, offset="first", prefetch=PREFETCH) as program.reader:
        async for delivery in program.reader:
            await program.work(delivery)


async def _workers(program: Program, connection: Connection, queue: str, resubscribe: bool, quiet: bool) -> None:
    workers = connection.consume(queue, program.work, workers=1, prefetch=PREFETCH, resubscribe=resubscribe)
    await _block(program, workers, quiet)


async def _batches(program: Program, connection: Connection, queue: str, quiet: bool) -> None:
    async def handle(deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            await program.work(delivery)

    await _block(program, connection.consume(queue, handle, batch=2, within=0, prefetch=PREFETCH), quiet)


async def _serve(program: Program, connection: Connection, queue: str, quiet: bool) -> None:
    async def answer(delivery: Delivery) -> bytes:
        await program.work(delivery)
        return b""

    await _block(program, connection.serve(queue, answer, workers=1, prefetch=PREFETCH), quiet)


async def _block(program: Program, workers: harebell.Workers, quiet: bool) -> None:
    """The body of the block waits for something else, and is ended all the same."""
    program.reader = workers
    async with workers:
        if quiet:  # ended by the program: that does not end the body
            await workers.wait()
        else:
            await asyncio.Event().wait()


def _block_a_thread(program: Program, channel: blocking.Channel, queue: str) -> None:
    program.reader = channel.consume(queue, prefetch=PREFETCH)
    for delivery in program.reader:
        program.work_in_thread(delivery)


# -- a trial -----------------------------------------------------------------------------------------------------------


class Trial:
    """One way and one end.

    url      of the broker
    queue    a durable queue that does not exist yet; deleted by `run`
    act      what only the broker can do: "restart" it, or let the consumer timeout "expire"
    """

    def __init__(
        self, way: str, end: str, url: str, queue: str, act: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self.way = way
        self.end = end
        self.told = TOLD[end][way]
        self._url = url
        self._queue = queue
        self._act = act
        self._exits = AsyncExitStack()
        self._events: list[e.Event] = []

    async def run(self) -> None:
        async with asyncio.timeout(90), self._exits:
            self._other = await self._exits.enter_async_context(
                harebell.connect(self._url, timeout=60, recovery=Recovery(backoff=Backoff(0.01, 0.05), first="retry"))
            )
            self._observer = await self._other.channel()
            await self._declare()
            await self._fill(range(COUNT))
            await self._consume()
            await self._observer.queue_delete(self._queue)

    async def _declare(self) -> None:
        arguments: Any = {"x-queue-type": "stream"} if self.way == "stream" else {}
        await self._observer.queue_declare(self._queue, durable=True, arguments=arguments)
        await self._observer.confirm_select(on_orphan="retry")

    async def _fill(self, numbers: range) -> None:
        for n in numbers:
            await self._observer.publish(Message(b"%d" % n, delivery_mode=2), "", self._queue)

    async def _consume(self) -> None:
        program = self.program = Program()
        recovery = RECOVERIES.get(self.end, QUICK)
        if self.way == "blocking":
            await self._open_blocking(recovery)
            consuming = asyncio.ensure_future(asyncio.to_thread(_block_a_thread, program, self._thread, self._queue))
        else:
            self.connection = await harebell.connect(self._url, timeout=60, recovery=recovery)
            self.channel = await self.connection.channel()
            consuming = asyncio.ensure_future(self._way())
        watching = asyncio.ensure_future(self._watch())
        holding = asyncio.ensure_future(program.holding.wait())
        try:
            await asyncio.wait([consuming, holding], return_when="FIRST_COMPLETED")
            assert not consuming.done(), consuming.exception()
            await self._buffered()
            await self._happen(consuming)
            program.let_go()
            outcome = await self._outcome(consuming)
        finally:
            program.let_go()
            consuming.cancel()
            holding.cancel()
            await asyncio.wait([consuming])
            if self.way == "blocking":
                await asyncio.to_thread(self._blocking.close)
            else:
                await _close(self.connection)
            await watching
        self._judge(outcome)
        await self._account()

    async def _open_blocking(self, recovery: Recovery | None) -> None:
        connection = await asyncio.to_thread(blocking.connect, self._url, timeout=60, recovery=recovery)
        self._thread = await asyncio.to_thread(connection.channel)
        self._blocking = connection
        self.connection, self.channel = connection.inner, self._thread.inner

    def _way(self) -> Any:
        program, connection, queue = self.program, self.connection, self._queue
        match self.way.split(", "):
            case ["iterator"]:
                return _iterate(program, self.channel, queue)
            case ["each"]:
                return _each(program, self.channel, queue)
            case ["receive"]:
                return _receive(program, self.channel, queue)
            case ["get"]:
                return _get(program, self.channel, queue)
            case ["deliveries", *more]:
                return _deliveries(program, connection, queue, bool(more))
            case ["stream"]:
                return _stream(program, connection, queue)
            case ["workers", *more]:
                return _workers(program, connection, queue, bool(more), self.told == ENDS)
            case ["batches"]:
                return _batches(program, connection, queue, self.told == ENDS)
            case _:
                return _serve(program, connection, queue, self.told == ENDS)

    async def _watch(self) -> None:
        if self.way == "blocking":
            events = self._blocking.events()
            while True:
                event = await asyncio.to_thread(next, events, None)
                if event is None:
                    return
                self._events.append(event)
        async for event in self.connection.events():
            self._events.append(event)

    @property
    def consuming_channel(self) -> Channel:
        """The channel that the deliveries come on."""
        reader = self.program.reader
        for _ in range(2):
            reader = getattr(reader, "_reader", reader)
        own = getattr(reader, "channel", None)
        return own if isinstance(own, Channel) else self.channel

    async def _buffered(self) -> None:
        """Wait until more lie in the program's buffer."""
        if self.way != "get":
            while self.consuming_channel.subscriptions.buffered < 3 and self.way != "each":  # `each` takes them at once
                await self._observer.queue_inspect(self._queue)

    # -- what happens --------------------------------------------------------------------------------------------------

    async def _happen(self, consuming: asyncio.Future[None]) -> None:
        connection, observer = self.connection, self._observer
        match self.end:
            case "the queue is deleted":
                await observer.queue_delete(self._queue)
                if self.way != "get":
                    await self._event(e.ConsumerEnded)
                self.program.let_go()
                await self._comes_back()
            case "the queue is gone after an outage":
                async with self._outage():
                    await observer.queue_delete(self._queue)
                self.program.let_go()
                await self._comes_back()
            case "an exclusive consumer takes the queue during an outage":
                await self._taken()
            case "the connection is cut" | "the connection is cut, with recovery=None":
                await self._in_loop(connection.test().disconnect_transport)
            case "no connection within give_up_after":
                await self._in_loop(connection.test().disconnect_transport)
            case "the broker restarts":
                assert self._act is not None
                await self._act("restart")
            case "another call on the channel is refused" | "another call is refused, with reopen_channels=False":
                if self.way == "blocking":
                    await asyncio.to_thread(self._refused, self._thread.queue_inspect)
                else:
                    try:
                        await self.consuming_channel.queue_inspect(f"{self._queue}.missing")
                    except errors.NotFound:
                        pass
            case "the consumer timeout":
                assert self._act is not None
                await self._act("expire")
                if self.way == "get":
                    while await observer.message_count(self._queue) < COUNT - BEFORE:
                        pass
                else:
                    await self._event(e.ConsumerEnded)
                await self._act("relax")
            case "the program cancels the consumer":
                stop = self.program.reader.stop if hasattr(self.program.reader, "stop") else self.program.reader.cancel
                stopping = asyncio.ensure_future(self._call(stop))
                await asyncio.sleep(0)
                self.program.let_go()
                await stopping
            case "the program closes the channel":
                await self._call(self._thread.close if self.way == "blocking" else self.consuming_channel.close)
            case "the program closes the connection":
                await self._call(self._blocking.close if self.way == "blocking" else connection.close)
            case "the task is cancelled":
                consuming.cancel()
                await asyncio.wait([consuming])

    def _refused(self, call: Callable[[str], object]) -> None:
        try:
            call(f"{self._queue}.missing")
        except errors.NotFound:
            pass

    async def _call(self, call: Callable[[], Any]) -> None:
        if self.way == "blocking":
            await asyncio.to_thread(call)
        else:
            await call()

    async def _in_loop(self, call: Callable[[], object]) -> None:
        """A harness's method, in the loop of the connection."""
        if self.way == "blocking":
            await asyncio.to_thread(self._in_turn, call)
        else:
            call()

    def _in_turn(self, call: Callable[[], object]) -> None:
        with self._blocking.io.turn:
            call()

    @asynccontextmanager
    async def _outage(self) -> AsyncIterator[None]:
        harness = self.connection.test()
        await self._in_loop(harness.block_reconnect)
        await self._in_loop(harness.disconnect_transport)
        try:
            yield
        finally:
            await self._in_loop(harness.unblock_reconnect)

    async def _event(self, kind: type[e.Event]) -> None:
        while not any(isinstance(event, kind) for event in self._events):  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def _comes_back(self) -> None:
        """A queue of that name is declared again by somebody else, once that is waited for."""
        if self.told == WAITS:
            await self._event(e.ConsumerEnded)
            await self._declare()
            await self._fill(range(COUNT))

    async def _taken(self) -> None:
        async with self._outage():
            while True:  # until the broker has noticed the cut
                other = await self._other.channel()
                self._rival = other.consume(self._queue, exclusive=True, prefetch=1)
                try:
                    await self._rival.start()
                    break
                except errors.AccessRefused:
                    await other.close()
        self.program.let_go()
        if self.told == WAITS:
            await self._event(e.ConsumerEnded)
            await other.close()
        elif self.way == "get":
            await other.close()
        else:
            self._exits.push_async_callback(other.close)

    # -- what came of it -----------------------------------------------------------------------------------------------

    async def _outcome(self, consuming: asyncio.Future[None]) -> str:
        finished = asyncio.ensure_future(self.program.finished.wait())
        either: list[asyncio.Future[Any]] = [consuming, finished]
        await asyncio.wait(either, return_when="FIRST_COMPLETED")
        if not consuming.done():
            return GOES_ON
        finished.cancel()
        if consuming.cancelled():
            return "CancelledError"
        error = consuming.exception()
        return ENDS if error is None else type(error).__name__

    def _judge(self, outcome: str) -> None:
        wanted = GOES_ON if self.told == WAITS else self.told
        assert outcome == wanted, f"{self.way}, {self.end}: {outcome}, and not {wanted}"
        ended = [event for event in self._events if isinstance(event, e.ConsumerEnded)]
        by_itself = self.told not in (GOES_ON, ENDS, "CancelledError") and self.way != "get"
        assert [event.queue for event in ended] == [self._queue] * by_itself
        if by_itself:
            assert type(ended[0].error).__name__ == self.told or ended[0].resubscribing

    async def _account(self) -> None:
        """Every message is in the queue, or was acknowledged; where the queue was deleted, there are none."""
        program = self.program
        everything = {b"%d" % n for n in range(COUNT)}
        acked = set(program.acked)
        assert acked <= set(program.seen) <= everything
        if self.told in (GOES_ON, WAITS):
            assert acked == everything
        if self.end in ("the queue is deleted", "the queue is gone after an outage") and self.told != WAITS:
            return
        if self.way == "stream":  # takes nothing out, and hands nothing out twice
            assert program.seen == [b"%d" % n for n in range(len(program.seen))]
            return
        if self.end.startswith("an exclusive consumer") and self.told == "AccessRefused":
            await self._exits.aclose()
            self._other = await self._exits.enter_async_context(harebell.connect(self._url, timeout=60))
            self._observer = await self._other.channel()
        left: set[bytes] = set()
        while len(left | acked) < COUNT:  # RabbitMQ requeues some time after a channel is gone
            delivery = await self._observer.get(self._queue, no_ack=True)
            if delivery is not None:
                assert delivery.body not in left
                left.add(delivery.body)
        assert await self._observer.message_count(self._queue) == 0
        late = program.seen[BEFORE:] if self.end == "the consumer timeout" else []
        # An acknowledgement that a loss cut, or that came too late: the channel was lost for it, which is told.
        assert left & acked <= {b"%d" % BEFORE, *program.acked[-1:], *late}


async def _close(connection: Connection) -> None:
    if not connection.is_closed:
        connection.test().unblock_reconnect()
        await connection.close()


def table() -> str:
    """The table of `docs/explanation/deliveries.md`."""
    lines = ["| | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]
    lines += [f"| {end} | " + " | ".join(_cell(told[way]) for way in WAYS) + " |" for end, told in TOLD.items()]
    return "\n".join(lines) + "\n"


def _cell(told: str) -> str:
    return told if told in (GOES_ON, WAITS, ENDS, "-") else f"`{told}`"
