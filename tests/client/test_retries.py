"""Calls on a connection that is lost again and again: each ends by its deadline, in one loop; redials grow rarer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Publication
from harebell.client.recovery.policy import Backoff, Pauses, Recovery
from tests.client.scripted import Content, HungUp, Peer, m

AT_ONCE = Recovery(backoff=Backoff(0, 0))
SECONDS = 0.4  # the timeout of a call
MARGIN = 20.0  # seconds that it may end later, on a busy machine; a deadline that moves with each loss never comes

Call = Callable[[Connection, Channel], Awaitable[object]]


class Lossy:
    """A broker that drops the connection whenever it reads one of these methods.

    cut     the methods; empty at first, so that a test can get ready
    losses  how often it has done so
    """

    def __init__(self) -> None:
        self.cut: tuple[type[m.Method], ...] = ()
        self.url = ""
        self.losses = 0
        self.opened = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            await peer.handshake()
            self.opened += 1
            while True:
                number, event = await peer.next()
                if isinstance(event, Content):  # the one content that clients send
                    event = m.BasicPublish()
                if isinstance(event, self.cut):
                    self.losses += 1
                    return  # which drops the connection
                answer = self.answer(event)
                if answer is not None and not peer.has_read(m.ConnectionClose):  # then nothing else is answered
                    peer.send(number, answer)
        except (HungUp, ConnectionError, asyncio.IncompleteReadError):
            pass

    def answer(self, event: object) -> m.Method | None:
        match event:
            case m.QueueDeclare():
                return m.QueueDeclareOk(event.queue, 0, 0)
            case m.BasicConsume():
                return m.BasicConsumeOk(event.consumer_tag)
            case m.BasicCancel():
                return m.BasicCancelOk(event.consumer_tag)
        replies = m.REPLIES.get(cast("type[m.Method]", type(event)), ())
        return replies[0]() if replies else None


@asynccontextmanager
async def served(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """The URL of a server; its connections are closed at the end of the block."""
    connections: set[asyncio.Task[None]] = set()

    async def tracked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connections.add(task)
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()
            connections.discard(task)

    server = await asyncio.start_server(tracked, "127.0.0.1", 0)
    try:
        yield f"amqp://guest:guest@127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for _ in range(10):  # what was accepted just now gets its task first
            await asyncio.sleep(0)
        ending = list(connections)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)


@asynccontextmanager
async def lossy() -> AsyncIterator[Lossy]:
    broker = Lossy()
    async with served(broker.serve) as broker.url:
        yield broker


def publications() -> list[Publication]:
    return [Publication(b"m", "", "q") for _ in range(3)]


async def publish(connection: Connection, channel: Channel) -> None:
    await channel.confirm_select(on_orphan="retry")
    await channel.publish(b"m", "", "q", timeout=SECONDS)


async def publish_many(connection: Connection, channel: Channel) -> None:
    await channel.confirm_select(on_orphan="retry")
    await channel.publish_many(publications(), timeout=SECONDS)


async def publish_with_a_producer(connection: Connection, channel: Channel) -> None:
    producer = await connection.producer(on_orphan="retry").start()
    try:
        await producer.publish(b"m", "q", timeout=SECONDS)
    finally:
        producer.abandon()


async def publish_soon(connection: Connection, channel: Channel) -> None:
    producer = await connection.producer(on_orphan="retry").start()
    try:
        await producer.publish_soon(b"m", "q", timeout=SECONDS)
        await producer.drain(timeout=SECONDS)
    finally:
        producer.abandon()


async def publish_many_with_a_producer(connection: Connection, channel: Channel) -> None:
    producer = await connection.producer(on_orphan="retry").start()
    try:
        await producer.publish_many(publications(), timeout=SECONDS)
    finally:
        producer.abandon()


async def ask(connection: Connection, channel: Channel) -> None:
    async with connection.rpc() as rpc:
        await rpc.call(b"m", "q", idempotent=True, timeout=SECONDS)


async def borrow(connection: Connection, channel: Channel) -> None:
    async with connection.channel_pool(timeout=SECONDS) as pool:
        await pool.acquire()


# What is called, and the method at which the broker drops the connection each time.
REPEATED: dict[str, tuple[type[m.Method], Call]] = {
    "queue_declare": (m.QueueDeclare, lambda _, channel: channel.queue_declare("q", timeout=SECONDS)),
    "queue_bind": (m.QueueBind, lambda _, channel: channel.queue_bind("q", "amq.direct", timeout=SECONDS)),
    "exchange_declare": (m.ExchangeDeclare, lambda _, channel: channel.exchange_declare("x", timeout=SECONDS)),
    "get": (m.BasicGet, lambda _, channel: channel.get("q", timeout=SECONDS)),
    "qos": (m.BasicQos, lambda _, channel: channel.qos(prefetch_count=1, timeout=SECONDS)),
    "recover": (m.BasicRecover, lambda _, channel: channel.recover(timeout=SECONDS)),
    "tx_select": (m.TxSelect, lambda _, channel: channel.tx_select(timeout=SECONDS)),
    "consume": (m.BasicConsume, lambda _, channel: channel.consume("q", timeout=SECONDS).start()),
    "prefetch": (m.BasicQos, lambda _, channel: channel.consume("q", prefetch=1, timeout=SECONDS).start()),
    "channel": (m.ChannelOpen, lambda connection, _: connection.channel(timeout=SECONDS).__aenter__()),
    "deliveries": (m.BasicConsume, lambda connection, _: connection.deliveries("q", timeout=SECONDS).start()),
    "workers": (m.BasicConsume, lambda connection, _: connection.consume("q", print, timeout=SECONDS).start()),
    "publish": (m.BasicPublish, publish),
    "publish_many": (m.BasicPublish, publish_many),
    "producer.publish": (m.BasicPublish, publish_with_a_producer),
    "producer.publish_soon": (m.BasicPublish, publish_soon),
    "producer.publish_many": (m.BasicPublish, publish_many_with_a_producer),
    "rpc": (m.BasicPublish, ask),
    "channel_pool": (m.ChannelOpen, borrow),
}  # fmt: skip

# What only waits for a channel that is never restored: the connection is lost at each reopening of the channel.
WAITING: dict[str, Call] = {
    "publish without confirms": lambda _, channel: channel.publish(b"m", "", "q", timeout=SECONDS),
    "publish_many without confirms": lambda _, channel: channel.publish_many(publications(), timeout=SECONDS),
    "publish_bulk": lambda _, channel: channel.publish_bulk([b"m"], [b"\0\0"], "", "q", timeout=SECONDS),
    "wait_publish": lambda _, channel: channel.wait_publish(timeout=SECONDS),
    "drain": lambda _, channel: channel.drain(timeout=SECONDS),
    "queue_purge": lambda _, channel: channel.queue_purge("q", timeout=SECONDS),
    "update_secret": lambda connection, _: connection.update_secret("guest", timeout=SECONDS),
    "channel": lambda connection, _: connection.channel(timeout=SECONDS).__aenter__(),
}


async def ends_in_time(call: Awaitable[object]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(errors.DeadlineExceeded):
        async with asyncio.timeout(60):
            await call
    assert SECONDS - 0.1 < loop.time() - began < 2 * SECONDS + MARGIN


@pytest.mark.repeats
@pytest.mark.parametrize("name", REPEATED)
async def test_a_call_that_is_cut_each_time_it_is_made(name: str) -> None:
    cut, call = REPEATED[name]
    async with lossy() as broker, harebell.connect(broker.url, timeout=60, recovery=AT_ONCE) as connection:
        channel = await connection.channel()
        broker.cut = (cut,)
        await ends_in_time(call(connection, channel))
        assert broker.losses
        broker.cut = ()


@pytest.mark.parametrize("name", WAITING)
async def test_a_call_that_waits_for_a_channel_that_is_never_restored(name: str) -> None:
    async with lossy() as broker, harebell.connect(broker.url, timeout=60, recovery=AT_ONCE) as connection:
        channel = await connection.channel()
        broker.cut = (m.ChannelOpen,)
        connection.test().disconnect_transport()
        await ends_in_time(WAITING[name](connection, channel))
        assert broker.losses
        broker.cut = ()


async def test_send_waits_within_its_timeout() -> None:
    async with lossy() as broker, harebell.connect(broker.url, timeout=60, recovery=AT_ONCE) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        channel.confirmations()
        broker.cut = (m.ChannelOpen,)
        connection.test().disconnect_transport()
        await ends_in_time(channel.send(b"m", "", "q", timeout=SECONDS))
        broker.cut = ()


async def test_the_blocking_api_has_the_same_deadlines() -> None:
    async with lossy() as broker:
        broker.cut = ()

        def program() -> None:
            with (
                harebell.blocking.connect(broker.url, timeout=60, recovery=AT_ONCE) as connection,
                connection.channel() as channel,
            ):
                channel.confirm_select(on_orphan="retry")
                broker.cut = (m.BasicPublish,)
                try:
                    with pytest.raises(errors.DeadlineExceeded):
                        channel.publish(b"m", "", "q", timeout=SECONDS)
                    with pytest.raises(errors.DeadlineExceeded):
                        channel.publish_many(publications(), timeout=SECONDS)
                finally:
                    broker.cut = ()

        began = asyncio.get_running_loop().time()
        await asyncio.to_thread(program)
        assert asyncio.get_running_loop().time() - began < 4 * SECONDS + 2 * MARGIN


@pytest.mark.repeats
async def test_a_publication_is_repeated_without_recursion() -> None:
    """As often as it takes: more often than functions may call themselves."""
    losses = 2000
    async with lossy() as broker, harebell.connect(broker.url, timeout=120, recovery=AT_ONCE) as connection:
        channel = await connection.channel()
        await channel.confirm_select(on_orphan="retry")
        publishing = asyncio.create_task(channel.publish(b"m", "", "q"))
        core = type(channel.core)
        for _ in range(losses):
            while not channel.core.publishes.waiters:  # until it is written once more
                await asyncio.sleep(0)
                assert not publishing.done()
            assert isinstance(channel.core, core)
            channel.core.lose(errors.ConnectionLost("cut"))
        assert not publishing.done()
        publishing.cancel()


# -- redialling --------------------------------------------------------------------------------------------------------


class Steady(Backoff):
    """Without jitter, so that pauses can be compared."""

    def delay(self, attempt: int) -> float:
        return min(self.most, self.base * self.factor ** (attempt - 1))


async def pauses(broker: Lossy, connection: Connection, count: int) -> list[float]:
    """The delays of so many redials, the connection being lost at once after each."""
    found: list[float] = []
    events = connection.events()
    connection.test().disconnect_transport()
    async with asyncio.timeout(60):
        async for event in events:
            if isinstance(event, e.Reconnecting):
                found.append(event.delay)
                if len(found) == count:
                    return found
            if isinstance(event, e.Recovered):
                connection.test().disconnect_transport()
    raise AssertionError("the events ended")


async def test_a_connection_that_is_lost_at_once_is_redialled_more_and_more_slowly() -> None:
    recovery = Recovery(backoff=Steady(0.01, 0.16))
    async with lossy() as broker, harebell.connect(broker.url, timeout=60, recovery=recovery) as connection:
        assert await pauses(broker, connection, 7) == [0.01, 0.02, 0.04, 0.08, 0.16, 0.16, 0.16]


async def test_the_pauses_begin_anew_once_the_connection_has_held(monkeypatch: pytest.MonkeyPatch) -> None:
    recovery = Recovery(backoff=Steady(0.01, 30))
    async with lossy() as broker, harebell.connect(broker.url, timeout=60, recovery=recovery) as connection:
        assert await pauses(broker, connection, 3) == [0.01, 0.02, 0.04]
        signal = connection.test().signal_on_reconnect()
        await signal.wait()
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + 31)
        assert await pauses(broker, connection, 2) == [0.01, 0.02]


def test_pauses_grow_over_short_successes_and_begin_anew_after_a_long_one() -> None:
    pauses = Pauses(Steady(1, 8))
    assert [pauses.next(0), pauses.next(1)] == [1, 2]
    pauses.succeeded(10)
    assert pauses.next(17.9) == 4  # it held for less than the longest pause
    pauses.succeeded(20)
    assert pauses.next(28) == 1
    pauses.succeeded(30)
    assert [pauses.next(31), pauses.next(100)] == [2, 4]  # failed attempts in between are no success


def test_pauses_may_begin_with_attempts_that_wait_for_nothing() -> None:
    pauses = Pauses(Steady(1, 8), free=1)
    assert [pauses.next(0), pauses.next(0), pauses.next(0)] == [0, 1, 2]


async def test_a_first_dial_with_many_silent_hosts_keeps_its_deadline() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read()

    async with served(silent) as url:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(errors.DeadlineExceeded):
            await harebell.connect([url] * 20, timeout=SECONDS, recovery=Recovery(first="retry"))
        assert loop.time() - began < SECONDS + MARGIN  # and not 20 times that
