"""Remote calls over direct reply-to; against both brokers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

import harebell
from harebell import errors
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Delivery, Message
from harebell.client.patterns.rpc import Rpc
from harebell.protocol.v091.fields import Table
from tests.client.outages import eventually, ready
from tests.client.patterns.test_workers import Seen

PlainRpc = Rpc[Message | bytes, Delivery]


@pytest.fixture
async def rpc(connection: Connection) -> AsyncIterator[PlainRpc]:
    async with connection.rpc(timeout=60) as rpc:
        yield rpc


async def shout(delivery: Delivery) -> bytes:
    return delivery.body.upper()


async def test_call_and_reply(connection: Connection, rpc: PlainRpc, queue: str) -> None:
    async with connection.serve(queue, shout):
        reply = await rpc.call(b"hello", queue)
        assert reply.body == b"HELLO"
        assert (await rpc.call(Message(b"m", headers={"a": 1}), queue)).body == b"M"
    assert rpc.waiting == 0


async def test_many_at_once_each_with_its_own_reply(connection: Connection, rpc: PlainRpc, queue: str) -> None:
    waiting: list[asyncio.Event] = []

    async def backwards(delivery: Delivery) -> bytes:
        mine = asyncio.Event()
        waiting.append(mine)
        if len(waiting) == 20:
            for event in reversed(waiting):  # the last one is answered first
                event.set()
        await mine.wait()
        return delivery.body

    async with connection.serve(queue, backwards, workers=20):
        bodies = [b"%d" % n for n in range(20)]
        assert [r.body for r in await asyncio.gather(*(rpc.call(body, queue) for body in bodies))] == bodies


async def test_nobody_is_there(rpc: PlainRpc, name: str) -> None:
    with pytest.raises(errors.Unroutable, match="is a server there"):
        await rpc.call(b"m", f"{name}.nowhere")
    assert rpc.waiting == 0


async def test_a_late_reply_is_dropped(connection: Connection, rpc: PlainRpc, channel: Channel, queue: str) -> None:
    with pytest.raises(errors.DeadlineExceeded, match=r"no reply from .* within 0\.01 s"):
        await rpc.call(b"late", queue, timeout=0.01)
    await ready(channel, queue, 0)  # nobody wants it done any more: it has expired
    with pytest.raises(errors.DeadlineExceeded):
        await rpc.call(Message(b"kept", expiration="60000"), queue, timeout=0.01)
    async with connection.serve(queue, shout, workers=1):
        assert (await rpc.call(b"next", queue)).body == b"NEXT"
    assert await channel.message_count(queue) == 0


async def test_the_error_of_the_handler(connection: Connection, rpc: PlainRpc, channel: Channel, queue: str) -> None:
    told = Seen()

    async def fail(delivery: Delivery) -> bytes:
        if delivery.body == b"reject":
            raise harebell.Reject("not that")
        if delivery.body == b"wrong":
            return "text"  # type: ignore[return-value]
        raise ValueError("too cold")

    async with connection.serve(queue, fail, on_error=lambda delivery, _: told.add(delivery.body)):
        with pytest.raises(errors.RemoteError, match="ValueError: too cold") as caught:
            await rpc.call(b"m", queue)
        assert caught.value.kind == "ValueError"
        with pytest.raises(errors.RemoteError, match="Reject: not that"):
            await rpc.call(b"reject", queue)
        with pytest.raises(errors.RemoteError, match="InvalidArgument: a message is"):
            await rpc.call(b"wrong", queue)
        await channel.publish(b"no reply wanted", "", queue)
        assert await told.count(4) == [b"m", b"reject", b"wrong", b"no reply wanted"]
    assert await channel.message_count(queue) == 0


async def test_another_server_may_take_it(connection: Connection, rpc: PlainRpc, queue: str) -> None:
    first: list[bytes] = []

    async def handle(delivery: Delivery) -> bytes:
        if not first:
            first.append(delivery.body)
            raise harebell.Requeue
        return b"second"

    async with connection.serve(queue, handle):
        assert (await rpc.call(b"m", queue)).body == b"second"


@dataclasses.dataclass
class Sum:
    numbers: list[int]


async def test_typed_calls(connection: Connection, queue: str) -> None:
    async def add(asked: Sum, delivery: Delivery) -> int:
        return sum(asked.numbers)

    plain = harebell.JSON()
    async with connection.serve(queue, add, codec=harebell.JSON(Sum)), connection.rpc(codec=plain) as rpc:
        assert await rpc.call(Sum([1, 2]), queue) == 3
        with pytest.raises(errors.RemoteError, match="UndecodableBody"):
            await rpc.call([1, 2], queue)


@pytest.mark.parametrize("idempotent", [False, True])
async def test_an_outage_while_the_reply_is_awaited(
    connection: Connection, rpc: PlainRpc, other: Channel, broker_url: str, queue: str, idempotent: bool
) -> None:
    arrived = asyncio.Event()

    async def handle(delivery: Delivery) -> bytes:
        if not arrived.is_set():
            arrived.set()
            await asyncio.Event().wait()
        return b"done"

    async with harebell.connect(broker_url) as steady, steady.serve(queue, handle, workers=2, grace=0):
        calling = asyncio.ensure_future(rpc.call(b"m", queue, idempotent=idempotent))
        await arrived.wait()
        await eventually(lambda: _confirmed(rpc))  # else it is an orphan, as in the next test
        await connection.test().force_reconnect()
        if idempotent:
            assert (await calling).body == b"done"
        else:
            with pytest.raises(errors.PublishOrphaned, match="may or may not have been worked on"):
                await calling
        assert (await rpc.call(b"m", queue)).body == b"done"


async def _confirmed(rpc: PlainRpc) -> bool:
    await asyncio.sleep(0)
    return not rpc._channel.core.publishes.waiters


async def test_an_outage_before_the_confirm(connection: Connection, rpc: PlainRpc, queue: str) -> None:
    calling = asyncio.ensure_future(rpc.call(b"m", queue))
    await asyncio.sleep(0)
    connection.recovery.availability.transport.engine.data_to_send()
    await connection.test().force_reconnect()
    with pytest.raises(errors.PublishOrphaned, match="may or may not have been worked on"):
        await calling


async def test_a_call_during_an_outage_waits(
    connection: Connection, rpc: PlainRpc, broker_url: str, queue: str
) -> None:
    async with harebell.connect(broker_url) as steady, steady.serve(queue, shout):
        with connection.test().reconnect_blocked():
            calling = asyncio.ensure_future(rpc.call(b"m", queue))
            with pytest.raises(errors.DeadlineExceeded, match="the connection is reconnecting"):
                await rpc.call(b"m", queue, timeout=0.01)
            assert not calling.done()
        assert (await calling).body == b"M"


async def test_closing_ends_what_waits(connection: Connection, queue: str) -> None:
    async with connection.rpc() as rpc:
        calling = asyncio.ensure_future(rpc.call(b"m", queue))
        await asyncio.sleep(0)
    with pytest.raises(errors.PublishOrphaned, match="the rpc was closed"):
        await calling
    with pytest.raises(errors.LocalProtocolError, match="not started"):
        await connection.rpc().call(b"m", queue)


async def test_a_cancelled_call_leaves_nothing(connection: Connection, rpc: PlainRpc, queue: str) -> None:
    calling = asyncio.ensure_future(rpc.call(b"m", queue))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert rpc.waiting == 0
    async with connection.serve(queue, shout):
        assert (await rpc.call(b"next", queue)).body == b"NEXT"


async def test_a_request_that_is_refused(connection: Connection, rpc: PlainRpc, channel: Channel, name: str) -> None:
    full: Table = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await channel.queue_declare(name, exclusive=True, arguments=full)
    await channel.confirm_select()
    await channel.publish(b"m", "", name)
    with pytest.raises(errors.Nacked, match="refused the request"):
        await rpc.call(b"m", name)


async def test_the_end_of_the_connection_ends_calls(broker_url: str, queue: str) -> None:
    connection = await harebell.connect(broker_url)
    rpc = await connection.rpc().start()
    calling = asyncio.ensure_future(rpc.call(b"m", queue))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(errors.PublishOrphaned):
        await calling
    with pytest.raises(errors.ChannelClosed):
        await rpc.call(b"m", queue)
    await rpc.close()


async def test_who_is_cancelled_waits_for_no_network(connection: Connection, channel: Channel, queue: str) -> None:
    async def both() -> None:
        async with connection.rpc() as rpc, connection.serve(queue, shout):
            assert (await rpc.call(b"m", queue)).body == b"M"
            inside.set()
            await asyncio.Event().wait()

    inside = asyncio.Event()
    task = asyncio.ensure_future(both())
    await inside.wait()
    with connection.test().reconnect_blocked():
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
