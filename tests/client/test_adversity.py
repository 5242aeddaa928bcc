"""What a broker does not do on demand: a scripted one closes, stalls, blocks, crumbles its frames and goes silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import harebell
from harebell import errors
from harebell.client.blocking import connect as connect_blocking
from harebell.client.connection import Connection
from harebell.client.events import Recovered, Unblocked
from harebell.client.messages import Publication, QueueInfo
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.client.transport import protocol as wire
from harebell.protocol.v091 import Properties, methods as m
from tests.client.scripted import Content, HungUp, Peer, scripted


async def until(holds: Callable[[], bool]) -> None:
    """Give the loop turns until it holds; a test that never gets there fails."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  the state of the client under test, for which it has no event
            await asyncio.sleep(0)


# -- opening and losing a connection -------------------------------------------------------------------------------


async def refuse(peer: Peer) -> None:
    await peer.header()
    peer.send(0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US"))
    await peer.expect(m.ConnectionStartOk)
    peer.send(0, m.ConnectionClose(403, "ACCESS_REFUSED - Login was refused", 0, 0))
    await peer.expect(m.ConnectionCloseOk)


async def hang_up_during_login(peer: Peer) -> None:
    await peer.header()
    peer.send(0, m.ConnectionStart(0, 9, {}, b"PLAIN", b"en_US"))
    await peer.expect(m.ConnectionStartOk)


async def hang_up_at_once(peer: Peer) -> None:
    await peer.header()


def answer_with(answer: bytes) -> Callable[[Peer], Awaitable[None]]:
    async def script(peer: Peer) -> None:
        await peer.header()
        peer.writer.write(answer)
        with pytest.raises(HungUp):
            await peer.next()

    return script


TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x0a"
BROKEN_FRAME = b"\1\0\0\0\0\0\4\0\x0a\0\x0a\0"


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
@pytest.mark.parametrize(
    "script, error, word",
    [
        (refuse, errors.AccessRefused, "Login was refused"),
        (hang_up_during_login, errors.ConnectionLost, "wrong password"),
        (hang_up_at_once, errors.ConnectionLost, "no AMQP broker there"),
        (answer_with(b"AMQP\x00\x01\x00\x00"), errors.RemoteProtocolError, "does not speak AMQP 0-9-1"),
        (answer_with(b"HTTP/1.1 400 Bad Request\r\n\r\n"), errors.RemoteProtocolError, "540 .*'HTTP/1.': a web server"),
        (answer_with(TLS_ALERT), errors.RemoteProtocolError, "540 .*: it wants TLS, use amqps://"),
        (answer_with(BROKEN_FRAME), errors.RemoteProtocolError, "501 FRAME_ERROR - type 1"),
    ],
)
async def test_a_connection_that_does_not_open(
    script: Callable[[Peer], Awaitable[None]], error: type[Exception], word: str, face: str
) -> None:
    async with scripted(script) as url:
        with pytest.raises(error, match=word):
            if face == "asyncio":
                await harebell.connect(url, timeout=60, recovery=None)
            else:
                await asyncio.to_thread(connect_blocking, url, timeout=60, recovery=None)


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_a_silent_broker_meets_the_deadline(face: str) -> None:
    async def silent(peer: Peer) -> None:
        await peer.header()
        with pytest.raises((HungUp, ConnectionError)):
            await peer.next()

    async with scripted(silent) as url:
        with pytest.raises(errors.DeadlineExceeded, match=r"0\.1 s"):
            if face == "asyncio":
                await harebell.connect(url, timeout=0.1)
            else:
                await asyncio.to_thread(connect_blocking, url, timeout=0.1)


async def test_connecting_can_be_cancelled() -> None:
    reached = asyncio.Event()

    async def silent(peer: Peer) -> None:
        await peer.header()
        reached.set()
        with pytest.raises((HungUp, ConnectionError)):
            await peer.next()

    async with scripted(silent) as url:
        task = asyncio.ensure_future(_connected(url))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def _connected(url: str) -> Connection:
    return await harebell.connect(url)


async def close_during_a_call(peer: Peer) -> None:
    await peer.handshake()
    await peer.channel()
    await peer.expect(m.QueueDeclare)
    peer.send(0, m.ConnectionClose(320, "CONNECTION_FORCED - broker forced connection closure", 0, 0))
    await peer.expect(m.ConnectionCloseOk)


async def cut_during_a_call(peer: Peer) -> None:
    await peer.handshake()
    await peer.channel()
    await peer.expect(m.QueueDeclare)


async def answer_something_else(peer: Peer) -> None:
    await peer.handshake()
    number = await peer.channel()
    await peer.expect(m.QueueDeclare)
    peer.send(number, m.QueueBindOk())
    close = await peer.expect(m.ConnectionClose)
    assert close.reply_code == 503


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
@pytest.mark.parametrize(
    "script, error, word",
    [
        (close_during_a_call, errors.ConnectionForced, "forced connection closure"),
        (cut_during_a_call, errors.ConnectionLost, "without a word"),
        (answer_something_else, errors.RemoteProtocolError, "queue.bind-ok .* where queue.declare awaits"),
    ],
)
async def test_a_connection_that_ends_in_the_middle_of_a_call(
    script: Callable[[Peer], Awaitable[None]], error: type[Exception], word: str, face: str
) -> None:
    def block(url: str) -> None:
        with connect_blocking(url, timeout=60, recovery=None) as connection:
            channel = connection.channel()
            with pytest.raises(error, match=word):
                channel.queue_declare("q")
            with pytest.raises(errors.ChannelClosed, match=word):
                channel.queue_declare("q")

    async with scripted(script) as url:
        if face == "blocking":
            await asyncio.to_thread(block, url)
            return
        async with harebell.connect(url, timeout=60, recovery=None) as connection:
            channel = await connection.channel()
            with pytest.raises(error, match=word):
                await channel.queue_declare("q")
            with pytest.raises(errors.ChannelClosed, match=word):
                await channel.queue_declare("q")
            assert isinstance(await connection.wait_closed(), error)


async def test_confirms_that_never_come_fail_with_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        await peer.confirming()
        for _ in range(20):
            await peer.expect(Content)

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        results = await asyncio.gather(
            *[channel.publish(b"m", "", "q") for _ in range(10)],
            channel.publish_many([Publication(b"m", "", "q")] * 10),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [errors.PublishOrphaned] * 11


async def test_frames_in_crumbs() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        consume = await peer.expect(m.BasicConsume)
        peer.engine.send_method(number, m.BasicConsumeOk(consume.consumer_tag))
        for tag in range(1, 4):
            peer.engine.send_content(
                number, m.BasicDeliver(consume.consumer_tag, tag, False, "x", "k"), Properties(message_id="i"), b"body"
            )
        for byte in peer.engine.data_to_send():
            peer.writer.write(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        consumer = channel.consume("q", no_ack=True)
        for tag in range(1, 4):
            delivery = await anext(consumer)
            assert (delivery.delivery_tag, delivery.body, delivery.properties.message_id) == (tag, b"body", "i")


async def test_an_entity_that_costs_the_connection_is_not_said_again() -> None:
    """RabbitMQ answers an unknown exchange type (a plugin that is gone) with 503, which ends the connection."""
    connections = 0

    async def script(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        number_of_connection = connections
        await peer.handshake()
        number = await peer.channel()
        if number_of_connection == 1:
            await peer.expect(m.ExchangeDeclare)
            peer.send(number, m.ExchangeDeclareOk())
            await peer.expect(m.ExchangeDeclare)
            peer.send(number, m.ExchangeDeclareOk())
        elif number_of_connection == 2:
            assert (await peer.expect(m.ExchangeDeclare)).exchange == "fine"
            peer.send(number, m.ExchangeDeclareOk())
            assert (await peer.expect(m.ExchangeDeclare)).exchange == "odd"
            peer.send(0, m.ConnectionClose(503, "COMMAND_INVALID - unknown exchange type 'x-odd'", 40, 10))
            await peer.expect(m.ConnectionCloseOk)
        else:
            assert (await peer.expect(m.ExchangeDeclare)).exchange == "fine"
            peer.send(number, m.ExchangeDeclareOk())
            while True:
                number, event = await peer.next()
                if isinstance(event, m.ChannelOpen):
                    peer.send(number, m.ChannelOpenOk())
                elif isinstance(event, m.ChannelClose):
                    peer.send(number, m.ChannelCloseOk())
                elif isinstance(event, m.ConnectionClose):
                    peer.send(0, m.ConnectionCloseOk())
                    return

    async with scripted(script) as url:
        recovery = Recovery(backoff=Backoff(0, 0))
        async with harebell.connect(url, timeout=60, recovery=recovery) as connection:
            events = connection.events()
            channel = await connection.channel()
            await channel.exchange_declare("fine")
            await channel.exchange_declare("odd", "x-odd")
            async for event in events:
                if isinstance(event, Recovered):
                    assert [skip.entity for skip in event.skipped] == ["exchange 'odd'"]
                    assert isinstance(event.skipped[0].error, errors.CommandInvalid)
                    break
            assert connections == 3


# -- heartbeats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_a_broker_without_a_pulse_is_given_up(face: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake(heartbeat=1)
        with pytest.raises((HungUp, ConnectionError)):  # heartbeats of the client's are no event
            await peer.next()

    def block(url: str) -> None:
        connection = connect_blocking(url, timeout=60, recovery=None)
        assert "two heartbeats" in str(connection.wait_closed())
        connection.close()

    async with scripted(script) as url:
        if face == "blocking":
            await asyncio.to_thread(block, url)
        else:
            connection = await harebell.connect(url, timeout=60, recovery=None)
            assert "two heartbeats" in str(await connection.wait_closed())
            await connection.close()


async def test_heartbeats_are_sent_while_nothing_else_is() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake(heartbeat=1)
        assert await peer.reader.readexactly(16) == b"\x08\0\0\0\0\0\0\xce" * 2
        peer.send(0, m.ConnectionClose(320, "CONNECTION_FORCED - done", 0, 0))
        await peer.goodbye()

    async with scripted(script) as url:
        connection = await harebell.connect(url, timeout=60, recovery=None)
        assert isinstance(await connection.wait_closed(), errors.ConnectionForced)


# -- connection.blocked and channel.flow -----------------------------------------------------------------------------


async def test_blocked_holds_publishers_back_and_nothing_else() -> None:
    checked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        peer.send(0, m.ConnectionBlocked("low on memory"))
        await peer.expect(m.QueueDeclare)
        peer.send(number, m.QueueDeclareOk("q", 0, 0))
        await checked.wait()
        peer.send(0, m.ConnectionUnblocked())
        for body in (b"one", b"two"):
            assert (await peer.expect(Content)).body == body
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        await channel.queue_declare("q")
        assert connection.blocked == "low on memory"
        events = connection.events()
        with pytest.raises(errors.DeadlineExceeded, match="low on memory"):
            await channel.publish(b"late", "", "q", timeout=0.05)
        with pytest.raises(errors.DeadlineExceeded, match="low on memory"):
            await channel.publish_many([Publication(b"late", "", "q")], timeout=0.05)
        one = asyncio.ensure_future(channel.publish(b"one", "", "q"))
        two = asyncio.ensure_future(channel.publish_many([Publication(b"two", "", "q")]))
        await asyncio.sleep(0)
        assert not one.done()
        checked.set()
        await asyncio.gather(one, two)
        assert connection.blocked is None
        assert isinstance(await anext(events), Unblocked)


async def test_blocked_holds_the_blocking_face_back_too() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        peer.send(0, m.ConnectionBlocked("low on memory"))
        await peer.expect(m.QueueDeclare)
        peer.send(number, m.QueueDeclareOk("q", 0, 0))
        await peer.expect(m.QueuePurge)
        peer.send(number, m.QueuePurgeOk(0))
        peer.send(0, m.ConnectionUnblocked())
        assert (await peer.expect(Content)).body == b"at last"
        await peer.goodbye()

    def block(url: str) -> None:
        with connect_blocking(url, timeout=60, recovery=None) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            with pytest.raises(errors.DeadlineExceeded, match="low on memory"):
                channel.publish(b"late", "", "q", timeout=0.05)
            channel.queue_purge("q")
            channel.publish(b"at last", "", "q")

    async with scripted(script) as url:
        await asyncio.to_thread(block, url)


async def test_flow_holds_one_channel_back() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.channel()
        peer.send(number, m.ChannelFlow(False))
        assert (await peer.expect(m.ChannelFlowOk)).active is False
        assert (await peer.expect(Content)).body == b"other"
        peer.send(number, m.ChannelFlow(True))
        assert (await peer.expect(m.ChannelFlowOk)).active is True
        assert (await peer.expect(Content)).body == b"held"
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel, other = await connection.channel(), await connection.channel()
        await until(lambda: not channel.core.active)
        held = asyncio.ensure_future(channel.publish(b"held", "", "q"))
        await asyncio.sleep(0)
        await other.publish(b"other", "", "q")
        await held


# -- cancelling and deadlines in every phase -------------------------------------------------------------------------


async def _cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_call_leaves_the_channel_usable() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.expect(m.QueueDeclare)
        asked.set()
        await cancelled.wait()
        peer.send(number, m.QueueDeclareOk("first", 1, 0))  # late
        assert (await peer.expect(m.QueueDeclare)).queue == "second"
        peer.send(number, m.QueueDeclareOk("second", 2, 0))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        task = asyncio.create_task(channel.queue_declare("first"))
        await asked.wait()
        await _cancelled(task)
        second = asyncio.ensure_future(channel.queue_declare("second"))
        cancelled.set()
        assert await second == QueueInfo("second", 2, 0)


async def test_a_call_cancelled_before_it_is_written_is_answered_and_dropped() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        for count in (1, 2):
            await peer.expect(m.QueueDeclare)
            peer.send(number, m.QueueDeclareOk("q", count, 0))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        task = asyncio.create_task(channel.queue_declare("q"))
        await asyncio.sleep(0)
        await _cancelled(task)
        assert await channel.queue_declare("q") == QueueInfo("q", 2, 0)


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_a_call_past_its_deadline_leaves_the_channel_usable(face: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.expect(m.QueueDeclare)
        await peer.expect(m.QueueDeclare)
        peer.send(number, m.QueueDeclareOk("q", 1, 0))
        peer.send(number, m.QueueDeclareOk("q", 2, 0))
        await peer.goodbye()

    def block(url: str) -> None:
        with connect_blocking(url, timeout=60, recovery=None) as connection:
            channel = connection.channel()
            with pytest.raises(errors.DeadlineExceeded, match=r"queue\.declare"):
                channel.queue_declare("q", timeout=0.05)
            assert channel.queue_declare("q") == QueueInfo("q", 2, 0)

    async with scripted(script) as url:
        if face == "blocking":
            await asyncio.to_thread(block, url)
            return
        async with harebell.connect(url, timeout=60, recovery=None) as connection:
            channel = await connection.channel()
            with pytest.raises(errors.DeadlineExceeded, match=r"queue\.declare"):
                await channel.queue_declare("q", timeout=0.05)
            assert await channel.queue_declare("q") == QueueInfo("q", 2, 0)


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_the_answer_to_an_abandoned_get_goes_back_to_the_queue(face: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.expect(m.BasicGet)
        await peer.expect(m.QueuePurge)  # by now the get has been given up
        peer.send_content(number, m.BasicGetOk(7, False, "", "q", 0), b"m")
        peer.send(number, m.QueuePurgeOk(0))
        nack = await peer.expect(m.BasicNack)
        assert (nack.delivery_tag, nack.multiple, nack.requeue) == (7, False, True)
        await peer.goodbye()

    def block(url: str) -> None:
        with connect_blocking(url, timeout=60, recovery=None) as connection:
            channel = connection.channel()
            with pytest.raises(errors.DeadlineExceeded):
                channel.get("q", timeout=0.05)
            channel.queue_purge("q")

    async with scripted(script) as url:
        if face == "blocking":
            await asyncio.to_thread(block, url)
            return
        async with harebell.connect(url, timeout=60, recovery=None) as connection:
            channel = await connection.channel()
            with pytest.raises(errors.DeadlineExceeded):
                await channel.get("q", timeout=0.05)
            await channel.queue_purge("q")


async def test_an_abandoned_consume_is_cancelled_and_its_deliveries_go_back() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        consume = await peer.expect(m.BasicConsume)
        again = await peer.expect(m.BasicConsume)  # the second attempt, under a tag of its own
        assert again.consumer_tag != consume.consumer_tag
        peer.send(number, m.BasicConsumeOk(consume.consumer_tag))
        cancel = await peer.expect(m.BasicCancel)  # not before the consume-ok: RabbitMQ 3.10 would break down
        assert cancel.consumer_tag == consume.consumer_tag
        peer.send_content(number, m.BasicDeliver(consume.consumer_tag, 1, False, "", "q"), b"m")
        peer.send(number, m.BasicCancelOk(consume.consumer_tag))
        assert (await peer.expect(m.BasicNack)).delivery_tag == 1
        peer.send(number, m.BasicConsumeOk(again.consumer_tag))
        peer.send_content(number, m.BasicDeliver(again.consumer_tag, 2, True, "", "q"), b"m")
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        consumer = channel.consume("q", timeout=0.05)
        with pytest.raises(errors.DeadlineExceeded):
            await consumer.start()
        consumer._timeout = None
        assert (await anext(consumer)).delivery_tag == 2


async def test_a_delivery_of_the_channel_before_is_left_out() -> None:
    """RabbitMQ 4.0 may send it on the next channel of this number, which a nack of its tag would close."""
    given_back = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        peer.send_content(number, m.BasicDeliver("of the one before", 546, False, "", "q"), b"m")
        consume = await peer.expect(m.BasicConsume)
        peer.send(number, m.BasicConsumeOk(consume.consumer_tag))
        peer.send_content(number, m.BasicDeliver(consume.consumer_tag, 1, False, "", "q"), b"m")
        ack = await peer.expect(m.BasicAck)
        assert (ack.delivery_tag, ack.multiple) == (1, False)
        peer.send_content(number, m.BasicDeliver("nobody's", 2, False, "", "q"), b"m")
        assert (await peer.expect(m.BasicNack)).delivery_tag == 2
        given_back.set()
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        consumer = channel.consume("q")
        (await anext(consumer)).ack()
        await given_back.wait()


async def test_a_cancelled_publish_leaves_the_count_right() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.confirming()
        await peer.expect(Content)
        asked.set()
        await peer.expect(Content)
        peer.send(number, m.BasicNack(1))
        peer.send(number, m.BasicAck(2))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        task = asyncio.create_task(channel.publish(b"1", "", "q"))
        await asked.wait()
        await _cancelled(task)
        confirmation = await channel.publish(b"2", "", "q")
        assert confirmation is not None
        assert confirmation.publish_tag == 2


async def test_a_cancelled_publish_many_leaves_the_count_right() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.confirming()
        for _ in range(11):
            await peer.expect(Content)
        peer.send(number, m.BasicAck(11, True))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        with pytest.raises(errors.DeadlineExceeded, match="0 of 10 sent were confirmed"):
            await channel.publish_many([Publication(b"m", "", "q")] * 20, window=10, timeout=0.1)
        confirmation = await channel.publish(b"m", "", "q")
        assert confirmation is not None
        assert confirmation.publish_tag == 11


async def test_a_channel_whose_opening_is_given_up_is_closed() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number, event = await peer.next()
        assert isinstance(event, m.ChannelOpen)
        _, event = await peer.next()
        assert isinstance(event, m.ChannelClose)
        peer.send_unchecked(number, m.ChannelOpenOk())
        peer.send(number, m.ChannelCloseOk())
        assert await peer.channel() == number
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        with pytest.raises(errors.DeadlineExceeded, match=r"channel\.open"):
            await connection.channel(timeout=0.05)
        await until(lambda: not connection.recovery.availability.transport.channels)
        await connection.channel()


async def test_both_ends_close_a_channel_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.expect(m.ChannelClose)
        peer.send_unchecked(number, m.ChannelClose(406, "PRECONDITION_FAILED - x", 60, 80))
        peer.send(number, m.ChannelCloseOk())
        # The engine takes the client's close-ok, on a channel it believes closed, for a protocol error; the bytes do.
        assert await peer.reader.readexactly(12) == b"\x01\x00\x01\x00\x00\x00\x04\x00\x14\x00\x29\xce"
        await peer.channel()
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        await channel.close()
        await connection.channel()


async def test_closing_does_not_wait_for_ever() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        await peer.expect(m.ConnectionClose)
        with pytest.raises((HungUp, ConnectionError)):
            await peer.next()

    async with scripted(script) as url:
        connection = await harebell.connect(url, timeout=60, recovery=None)
        await connection.close(timeout=0.05)
        assert not connection.is_open


async def test_a_cancelled_program_says_goodbye_without_waiting() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        await peer.channel()
        await peer.expect(m.ChannelClose)
        await peer.expect(m.ConnectionClose)

    entered = asyncio.Event()

    async def program(url: str) -> None:
        async with harebell.connect(url, timeout=60, recovery=None) as connection, connection.channel():
            entered.set()
            await asyncio.Event().wait()

    async with scripted(script) as url:
        task: asyncio.Task[object] = asyncio.create_task(program(url))
        await entered.wait()
        await _cancelled(task)


# -- back-pressure -----------------------------------------------------------------------------------------------------

RETURNED = 400
BIG = b"x" * 20_000


async def answer_at_length(peer: Peer) -> None:
    """Reads nothing more while its own answers, as long as the publications, are not taken."""
    await peer.handshake()
    number = await peer.confirming()
    for tag in range(1, RETURNED + 1):
        content = await peer.expect(Content)
        peer.send_content(number, m.BasicReturn(312, "NO_ROUTE", "", "q"), content.body)
        peer.send(number, m.BasicAck(tag))
        await peer.writer.drain()
    await peer.goodbye()


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_a_broker_that_reads_only_while_it_is_read_from(face: str) -> None:
    publications = [Publication(BIG, "", "q", True)] * RETURNED

    def block(url: str) -> None:
        with connect_blocking(url, timeout=60) as connection:
            channel = connection.channel()
            channel.confirm_select()
            with pytest.raises(errors.Unroutable, match=f"{RETURNED} of {RETURNED}"):
                channel.publish_many(publications, timeout=60)

    async with scripted(answer_at_length, receive_buffer=4096) as url:
        if face == "blocking":
            await asyncio.to_thread(block, url)
            return
        async with harebell.connect(url, timeout=60, recovery=None) as connection:
            channel = await connection.channel()
            await channel.confirm_select()
            with pytest.raises(errors.Unroutable, match=f"{RETURNED} of {RETURNED}"):
                await channel.publish_many(publications, timeout=60)


async def test_publishers_wait_for_a_broker_that_does_not_read() -> None:
    go_on = asyncio.Event()
    body, count = b"x" * 50_000, 400  # 20 MB, more than socket buffers take

    async def script(peer: Peer) -> None:
        await peer.handshake()
        await peer.channel()
        await go_on.wait()
        for _ in range(count):
            await peer.expect(Content)
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        sent = 0

        async def publish() -> None:
            nonlocal sent
            for _ in range(count):
                await channel.publish(body, "", "q")
                sent += 1

        task = asyncio.create_task(publish())
        await until(lambda: connection.recovery.availability.transport.writing_paused)
        assert sent < count
        assert connection.recovery.availability.transport.engine.pending < 2 * 3  # a method and a body each
        with pytest.raises(errors.DeadlineExceeded, match="held back"):
            await channel.publish(body, "", "q", timeout=0.05)
        go_on.set()
        await task
        assert sent == count


async def test_unread_deliveries_stop_the_reading_until_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from harebell.client.recovery import subscription as subscription_module

    monkeypatch.setattr(subscription_module, "MAX_BUFFERED_MESSAGES", 100)
    count = 20_000
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        tag = (await peer.expect(m.BasicConsume)).consumer_tag
        peer.send(number, m.BasicConsumeOk(tag))
        await asked.wait()
        for n in range(1, count + 1):
            peer.send_content(number, m.BasicDeliver(tag, n, False, "", "q"), b"x" * 1000)
            await peer.writer.drain()
        for _ in range(20):
            await peer.expect(Content)
        await peer.expect(m.QueuePurge)
        peer.send(number, m.QueuePurgeOk(3))
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        async with channel.consume("q", no_ack=True) as consumer:
            asked.set()
            await until(lambda: connection.recovery.availability.transport.reading_paused)
            assert consumer.buffered < count
            buffered = consumer.buffered
            for _ in range(20):
                await channel.publish(b"", "", "q")  # what needs no answer starts no reading
                await asyncio.sleep(0)
            assert consumer.buffered == buffered
            assert connection.recovery.availability.transport.reading_paused
            purged = asyncio.ensure_future(channel.queue_purge("q"))  # an answer behind deliveries nobody takes
            assert await purged == 3
            taken = [(await anext(consumer)).delivery_tag for _ in range(count)]
        assert taken == list(range(1, count + 1))


async def test_a_large_backlog_does_not_starve_other_tasks() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        tag = (await peer.expect(m.BasicConsume)).consumer_tag
        peer.engine.send_method(number, m.BasicConsumeOk(tag))
        for n in range(1, 5001):
            peer.engine.send_content(number, m.BasicDeliver(tag, n, False, "", "q"), Properties(), b"")
        peer.writer.write(peer.engine.data_to_send())
        await peer.goodbye()

    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        async with channel.consume("q") as consumer:
            await until(lambda: consumer.buffered == 5000)
            task: asyncio.Task[object] = asyncio.create_task(bystander())
            for _ in range(5000):
                (await anext(consumer)).ack()
            assert turns >= 10
            await _cancelled(task)


# -- records of the wire -----------------------------------------------------------------------------------------------


async def test_acks_of_one_turn_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        consumer_tag = (await peer.expect(m.BasicConsume)).consumer_tag
        peer.send(number, m.BasicConsumeOk(consumer_tag))
        for tag in range(1, 101):
            peer.send_content(number, m.BasicDeliver(consumer_tag, tag, False, "", "q"), b"")
        for tag in range(1, 101):
            assert (await peer.expect(m.BasicAck)).delivery_tag == tag
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        writes = 0
        flush_now = wire.AsyncCore.flush_now

        def counted(core: wire.AsyncCore) -> None:
            nonlocal writes
            writes += 1
            flush_now(core)

        consumer = channel.consume("q")
        deliveries = [await anext(consumer) for _ in range(100)]
        monkeypatch.setattr(wire.AsyncCore, "flush_now", counted)
        for delivery in deliveries:
            delivery.ack()
        assert writes == 0
        await asyncio.sleep(0)
        assert writes == 1


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_publishing_into_a_connection_that_was_cut(face: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        await peer.channel()
        await peer.expect(Content)
        peer.writer.transport.abort()

    def block(url: str) -> None:
        with connect_blocking(url, timeout=60, recovery=None) as connection:
            channel = connection.channel()
            with pytest.raises((errors.ConnectionLost, errors.ChannelClosed)):
                while True:
                    channel.publish(b"m", "", "q")
            with pytest.raises(errors.ChannelClosed):
                channel.publish(b"m", "", "q")

    async with scripted(script) as url:
        if face == "blocking":
            await asyncio.to_thread(block, url)
            return
        async with harebell.connect(url, timeout=60, recovery=None) as connection:
            channel = await connection.channel()
            with pytest.raises((errors.ConnectionLost, errors.ChannelClosed)):
                while True:
                    await channel.publish(b"m", "", "q")


async def test_two_tasks_that_start_a_consumer_subscribe_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        tag = (await peer.expect(m.BasicConsume)).consumer_tag
        peer.send(number, m.BasicConsumeOk(tag))
        for n in (1, 2):
            peer.send_content(number, m.BasicDeliver(tag, n, False, "", "q"), b"")
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        consumer = (await connection.channel()).consume("q")
        first, second = await asyncio.gather(anext(consumer), anext(consumer))
        assert {first.delivery_tag, second.delivery_tag} == {1, 2}


async def test_what_the_program_raised_is_not_hidden_by_a_close_that_fails() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        tag = (await peer.expect(m.BasicConsume)).consumer_tag
        peer.send(number, m.BasicConsumeOk(tag))
        await peer.expect(m.BasicCancel)

    async with scripted(script) as url:
        with pytest.raises(ValueError, match="the program's own"):
            async with harebell.connect(url, timeout=60, recovery=None) as connection, connection.channel() as channel:
                async with channel.consume("q"):
                    raise ValueError("the program's own")


async def test_a_program_that_fails_ends() -> None:
    """No task of the client's is left to wait for: an error leaves through asyncio.run, whatever is under way."""

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        tag = (await peer.expect(m.BasicConsume)).consumer_tag
        peer.send(number, m.BasicConsumeOk(tag))
        with pytest.raises((HungUp, ConnectionError)):
            while True:
                await peer.next()

    async def program(url: str) -> None:
        connection = await harebell.connect(url, timeout=60, recovery=None)
        consumer = (await connection.channel()).consume("q")
        await consumer.start()
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        assert not waiting.done()
        connection.recovery.availability.transport.abort()
        raise ValueError("the program's own")

    async with scripted(script) as url:
        with pytest.raises(ValueError, match="the program's own"):
            await asyncio.to_thread(asyncio.run, program(url))
