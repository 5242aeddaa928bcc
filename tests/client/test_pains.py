"""What users of other clients report again and again, on both brokers where it takes a broker.

Only what no other test shows: docs/reference/clients.md has the whole list, each row with its tests.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from urllib.parse import urlsplit

import pytest

import harebell
from harebell import errors
from harebell.client import events as e
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.core.channel import ChannelCore
from harebell.client.messages import Message, Publication
from harebell.client.recovery.policy import Backoff, Recovery
from harebell.client.recovery.subscription import Subscription
from harebell.testing import EmbeddedBroker, FaultProxy, RabbitMQ
from tests.client.outages import FAST, eventually, next_of
from tests.client.scripted import Content, Peer, m, scripted
from tests.fixtures.rabbitmq import EACH


async def test_c02_a_consumer_that_the_broker_cancelled_is_told_and_may_consume_again(
    connection: Connection, channel: Channel, other: Channel, name: str
) -> None:
    await channel.queue_declare(name)
    consumer, others = channel.consume(name), channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    await consumer.start()
    await others.start()
    await other.queue_delete(name)
    with pytest.raises(errors.ConsumerCancelled, match="declare it and consume again"):
        async with asyncio.timeout(60):
            await anext(consumer)
    await channel.queue_declare(name, exclusive=True)
    await channel.publish(b"m", "", name)
    async with asyncio.timeout(60), channel.consume(name) as again:
        (await anext(again)).ack()
    assert channel.test().reconnection_count == connection.test().reconnection_count == 1


PROGRAM = """
import asyncio, logging, sys
import harebell

logging.basicConfig(level=logging.CRITICAL)

async def main(url, how):
    connection = await harebell.connect(url)
    channel = await connection.channel()
    await channel.confirm_select()
    consumer = channel.consume("amq.rabbitmq.reply-to", no_ack=True)
    events = connection.events()
    tasks = [asyncio.ensure_future(anext(consumer)), asyncio.ensure_future(anext(events))]
    await consumer.start()
    if "outage" in how:
        connection.test().block_reconnect()
        connection.test().disconnect_transport()
        tasks.append(asyncio.ensure_future(channel.queue_declare("q")))
        tasks.append(asyncio.ensure_future(channel.publish(b"m", "", "q")))
    await asyncio.sleep(0)
    print("ready", flush=True)
    if "raise" in how:
        raise SystemExit(3)
    return connection, channel, consumer, events, tasks

url, how = sys.argv[1:]
if "loop" in how:  # closed by hand, with everything alive
    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(main(url, how))
    loop.close()
    if "forget" in how:
        del kept
    sys.exit(3)
else:
    asyncio.run(main(url, how))
    sys.exit(3)
"""


@pytest.mark.parametrize("how", ["raise", "raise outage", "return", "return outage", "loop", "loop outage forget"])
def test_c06_a_program_exits_whatever_is_alive(harebell_url: str, how: str) -> None:
    """A live iterator, a redial under way, calls that wait: the process ends by itself, with the status it chose."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, harebell_url, how], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ready\n", done.stderr
    assert done.returncode == 3, done.stderr


async def test_c08_a_confirm_for_nothing_disturbs_no_other() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.confirming()
        for tag in (1, 2, 3):
            await peer.expect(Content)
            peer.send(number, m.BasicAck(99))
            peer.send(number, m.BasicNack(77))
            peer.send(number, m.BasicAck(tag))
            peer.send(number, m.BasicAck(tag))  # said twice
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        for tag in (1, 2, 3):
            confirmation = await channel.publish(b"m", "", "q")
            assert confirmation is not None
            assert (confirmation.publish_tag, confirmation.acked) == (tag, True)


Alarm = tuple[str, Callable[[], Awaitable[object]], Callable[[], Awaitable[object]]]


@pytest.fixture(params=[*EACH, "harebell"])
def alarm(request: pytest.FixtureRequest) -> Iterator[Alarm]:
    """(URL, raise a memory alarm, clear it)"""
    if request.param == "harebell":
        with EmbeddedBroker() as server:
            yield (
                server.url,
                lambda: asyncio.to_thread(server.run, lambda broker: broker.node.raise_alarm("memory")),
                lambda: asyncio.to_thread(server.run, lambda broker: broker.node.clear_alarm("memory")),
            )
        return
    rabbitmq: RabbitMQ = request.getfixturevalue(request.param)
    limit = "{resource_limit, memory, node()}"

    async def set_alarm() -> None:
        await asyncio.to_thread(rabbitmq.evaluate, f"rabbit_alarm:set_alarm({{{limit}, []}})")

    async def clear_alarm() -> None:
        await asyncio.to_thread(rabbitmq.evaluate, f"rabbit_alarm:clear_alarm({limit})")

    try:
        yield rabbitmq.url, set_alarm, clear_alarm
    finally:
        rabbitmq.evaluate(f"rabbit_alarm:clear_alarm({limit})")


async def test_c08_publishers_wait_for_a_blocked_broker_and_for_no_longer_than_they_said(
    alarm: Alarm, name: str
) -> None:
    """Over a reconnect too: the broker tells the new connection as well."""
    url, set_alarm, clear_alarm = alarm
    async with harebell.connect(url, timeout=60, recovery=FAST) as connection, connection.channel() as channel:
        events = connection.events()
        await channel.queue_declare(name, exclusive=True)
        await channel.confirm_select()
        await set_alarm()
        first = asyncio.ensure_future(channel.publish(b"first", "", name))  # RabbitMQ tells who publishes
        await next_of(events, e.Blocked)
        assert connection.blocked is not None
        with pytest.raises(errors.DeadlineExceeded, match="low on memory"):
            await channel.publish(b"late", "", name, timeout=0.01)
        # RabbitMQ does not read from who is blocked, hence keeps the queue for the dead connection as long.
        connection.test().disconnect_transport()
        await next_of(events, e.Recovered)
        waiting = asyncio.ensure_future(channel.publish_many([Publication(b"many", "", name)] * 10))
        await asyncio.sleep(0)
        await clear_alarm()
        assert await waiting == 10
        results = await asyncio.gather(first, return_exceptions=True)
        assert isinstance(results[0], harebell.Confirmation | errors.PublishOrphaned)
        assert connection.blocked is None


async def test_c09_an_error_says_whether_the_message_may_have_arrived(broker_url: str, name: str) -> None:
    """Never sent: ConnectionLost. Sent, and not answered: PublishOrphaned. Neither is silent."""
    recovery = Recovery(backoff=Backoff(0, 0), calls="fail")
    async with harebell.connect(broker_url, recovery=recovery) as connection, connection.channel() as channel:
        await channel.queue_declare(name, auto_delete=True)
        await channel.confirm_select()
        sent = asyncio.ensure_future(channel.publish(b"sent", "", name))
        await asyncio.sleep(0)
        with connection.test().reconnect_blocked():
            unsent = asyncio.ensure_future(channel.publish(b"never sent", "", name))
            results = await asyncio.gather(sent, unsent, return_exceptions=True)
            signal = connection.test().signal_on_reconnect()
        assert [type(result) for result in results] == [errors.PublishOrphaned, errors.ConnectionLost]
        await signal.wait()
        found = set()
        while (delivery := await channel.get(name, no_ack=True)) is not None:
            found.add(delivery.body)
        assert found <= {b"sent"}
        await channel.queue_delete(name)


async def test_c10_the_same_message_id_twice_and_one_of_them_unroutable(channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    keys = [queue, f"{queue}.none"] * 20
    results = await asyncio.gather(
        *[channel.publish(Message(b"m", message_id="1"), "", key, mandatory=True) for key in keys],
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [harebell.Confirmation, errors.Unroutable] * 20


async def test_c11_confirms_of_several_with_holes_and_of_what_is_settled_already() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.confirming()
        for _ in range(8):
            await peer.expect(Content)
        peer.send(number, m.BasicAck(4))
        peer.send(number, m.BasicNack(2))
        peer.send(number, m.BasicAck(4, True))  # its own number is settled: the others up to it are not
        peer.send(number, m.BasicAck(7))
        peer.send(number, m.BasicAck(0, True))  # all the rest
        await peer.goodbye()

    async with scripted(script) as url, harebell.connect(url, timeout=60, recovery=None) as connection:
        channel = await connection.channel()
        await channel.confirm_select()
        results = await asyncio.gather(*[channel.publish(b"m", "", "q") for _ in range(8)], return_exceptions=True)
        ends = ["nacked" if isinstance(result, errors.Nacked) else result.acked for result in results]  # type: ignore[union-attr]
        assert ends == [True, "nacked", True, True, True, True, True, True]
        assert not channel.core.publishes.waiters


@pytest.mark.parametrize("recovers", [True, False])
async def test_c13_a_commit_past_its_deadline_costs_no_connection(broker_url: str, name: str, recovers: bool) -> None:
    """RabbitMQ takes no other method on the channel until it has answered: 504, and the connection is gone."""
    address = urlsplit(broker_url)
    recovery = FAST if recovers else None
    async with FaultProxy(address.hostname or "", address.port or 0) as proxy:
        url = f"amqp://guest:guest@{proxy.host}:{proxy.port}/"
        async with harebell.connect(url, timeout=60, recovery=recovery) as connection, connection.channel() as channel:
            await channel.queue_declare(name, exclusive=True)
            await channel.tx_select()
            await channel.publish(b"late", "", name)
            with proxy.stalled("to_client"), pytest.raises(errors.DeadlineExceeded, match=r"tx\.commit"):
                await channel.tx_commit(timeout=0.01)
            if recovers:
                await channel.publish(b"next", "", name)
                await channel.tx_commit()
            else:
                with pytest.raises(errors.ChannelClosed, match="given up"):
                    await channel.tx_rollback()
            async with connection.channel() as other:
                found = set()
                while (delivery := await other.get(name, no_ack=True)) is not None:
                    found.add(delivery.body)
            assert found == ({b"late", b"next"} if recovers else {b"late"})
            assert connection.test().reconnection_count == 1


async def test_c14_acks_from_two_connections_ago(connection: Connection, channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    await channel.publish(b"m", "", queue)
    consumer = channel.consume(queue)
    old: list[harebell.Delivery] = []
    for _ in range(3):
        async with asyncio.timeout(60):
            old.append(await anext(consumer))
        await connection.test().force_reconnect()
    async with asyncio.timeout(60):
        last = await anext(consumer)
    for delivery in old:
        with pytest.raises(errors.AcknowledgeOrphans):
            delivery.ack()
    await channel.queue_declare(queue, passive=True)
    assert channel.test().reconnection_count == 4  # by the test alone: no stale ack has reached the broker
    last.ack()
    await consumer.cancel()
    assert (await channel.queue_declare(queue, passive=True)).message_count == 0


async def test_c17_reconnects_leave_nothing_behind(connection: Connection, channel: Channel, queue: str) -> None:
    """Channels that were closed are not opened again, and what stood on lost ones goes."""

    def everything() -> list[list[object]]:
        gc.collect()
        objects = gc.get_objects()
        return [[o for o in objects if issubclass(type(o), kind)] for kind in (Channel, ChannelCore, Subscription)]

    def alive() -> list[int]:
        """How many there are, without those of earlier tests."""
        return [len({*map(id, now)} - {*map(id, then)}) for now, then in zip(everything(), others, strict=True)]

    own = [channel, *connection.recovery.availability.transport.channels.values()]
    others = [[o for o in group if o not in own] for group in everything()]
    kept = await connection.channel()
    consumer = kept.consume(queue)
    await consumer.start()
    await connection.test().force_reconnect()
    before = alive()
    for _ in range(20):
        for _ in range(5):
            async with connection.channel() as another, another.consume(queue):
                pass
        await connection.test().force_reconnect()
        await kept.test().force_reconnect()
    del another
    assert alive() == before
    assert len(connection.recovery.channels) == len(connection.recovery.availability.transport.channels) == before[0]
    assert (await kept.queue_declare(queue, passive=True)).consumer_count == 1
    await consumer.cancel()


async def test_c17_no_ack_consumers_make_no_task_for_a_message(channel: Channel, queue: str) -> None:
    await channel.confirm_select()
    async with channel.consume(queue, no_ack=True) as consumer:

        async def all_came() -> bool:  # RabbitMQ may confirm a message before it delivers it
            await channel.queue_declare(queue, passive=True)
            return consumer.buffered == 500

        before = len(asyncio.all_tasks())
        await channel.publish_many([Publication(b"m", "", queue)] * 500)
        await eventually(all_came)
        assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("how", ["stalled", "half-closed"])
async def test_c20_a_program_leaves_a_dead_network_in_its_own_time(broker_url: str, how: str) -> None:
    """Close does not wait for a broker that has gone silent longer than it was told to."""

    address = urlsplit(broker_url)
    async with FaultProxy(address.hostname or "", address.port or 0) as proxy:
        connection = await harebell.connect(f"amqp://guest:guest@{proxy.host}:{proxy.port}/", timeout=60, recovery=FAST)
        channel = await connection.channel()
        if how == "stalled":
            proxy.stall()
        else:
            proxy.half_close("to_server")
        asked = asyncio.ensure_future(channel.queue_declare("q", passive=True))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await connection.close(timeout=0.05)
            with pytest.raises(errors.HarebellError):
                await asked
        assert connection.is_closed
        proxy.resume()
