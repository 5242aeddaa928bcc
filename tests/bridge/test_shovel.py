"""Messages from broker to broker: all of them, as they were, whatever is cut on the way."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, Literal, cast

import pytest

import harebell
from harebell import Message
from harebell.bridge import Shovel
from harebell.bridge.window import PATIENCE
from harebell.broker import Broker
from harebell.errors import ShovelEnded
from harebell.protocol.v091 import Content, Properties, Table, methods as m
from harebell.testing import FaultProxy
from tests.bridge.conftest import Make
from tests.bridge.kit import End, message, move, options, plain, proxied, same, until
from tests.client.scripted import Peer, scripted
from tests.fixtures.rabbitmq import EACH

REFUSING: Table = {"x-max-length": 5, "x-overflow": "reject-publish"}


async def test_all_arrive_as_they_were(ends: tuple[End, End]) -> None:
    source, destination = ends
    await source.fill(300)
    shovel = await move(Shovel(options(source, destination), patient=False, until_empty=True))
    assert (shovel.forwarded, shovel.expected, shovel.redials, shovel.pending) == (300, 300, 0, 0)
    assert shovel.state == "terminated"
    assert shovel.last_error is None
    assert await source.ready() == 0
    assert same(await destination.take(), 300)


async def test_no_property_is_decoded_or_lost_by_decoding(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    table = b"\x01bb\xff" + b"\x01ff\x3f\xc0\0\0" + b"\x01xx\0\0\0\x02ab"  # int8, float, byte array
    raw = b"\x20\0" + len(table).to_bytes(4, "big") + table
    source.channel.publish_nowait(b"", "", source.queue, raw_properties=raw)
    await source.until(1)
    await move(Shovel(options(source, destination), patient=False, until_empty=True))
    (delivery,) = await destination.take()
    assert delivery.raw_properties == raw


async def test_large_and_empty_bodies(ends: tuple[End, End]) -> None:
    source, destination = ends
    bodies = [b"", b"x" * 300_000, b"y" * 131_064]
    for body in bodies:
        await source.channel.publish(body, "", source.queue)
    await move(Shovel(options(source, destination), patient=False, until_empty=True))
    assert [delivery.body for delivery in await destination.take()] == bodies


async def test_what_the_source_queue_stamped_stays_behind(end: Make) -> None:
    """x-delivery-count of a redelivery is about the source queue, and not part of the message."""
    source, destination = await end("harebell"), await end("harebell")
    await source.fill(1)
    taken = await source.channel.get(source.queue)
    assert taken is not None
    taken.nack()
    again = await source.channel.get(source.queue)
    assert again is not None
    assert "x-delivery-count" in again.headers
    again.nack()
    await move(Shovel(options(source, destination), patient=False, until_empty=True))
    assert same(await destination.take(), 1)


# -- cuts ----------------------------------------------------------------------------------------------------------


@pytest.mark.repeats
@pytest.mark.parametrize("cut", ["source", "destination"])
async def test_cut_and_cut_again(ends: tuple[End, End], cut: str) -> None:
    """Thousands of messages, connections reset at places of their own: each arrives, and not many twice."""
    source, destination = ends
    count, cuts, prefetch = 3000, 8, 200
    await source.fill(count)
    end = source if cut == "source" else destination
    host, port = end.url.rpartition("@")[2].partition("/")[0].split(":")
    places = random.Random(7)
    async with FaultProxy(host, int(port)) as proxy:
        changes: dict[str, Any] = {"src_prefetch": prefetch, "reconnect_delay": 0.1}
        changes["src_uris" if cut == "source" else "dest_uris"] = (proxied(end.url, proxy),)
        shovel = Shovel(options(source, destination, **changes), until_empty=True)
        running = asyncio.create_task(move(shovel))
        done = 0
        while done < cuts and not running.done():
            await until(lambda: shovel.state == "running" or running.done())
            before = shovel.redials
            with_messages: Literal["to_client", "to_server"] = "to_client" if cut == "source" else "to_server"
            if done % 2:  # in the middle of the messages, or of the few bytes that answer them
                proxy.cut_after(places.randrange(150_000), with_messages)
            else:
                proxy.cut_after(places.randrange(100), "to_server" if cut == "source" else "to_client")
            await until(lambda before=before: shovel.redials > before or running.done())  # type: ignore[misc]
            done += shovel.redials > before
        await running
    assert shovel.redials >= 4, "the cuts were to hit"
    assert await source.ready() == 0
    arrived = await destination.take()
    copies = Counter(delivery.body for delivery in arrived)
    assert set(copies) == {b"%d" % number for number in range(count)}
    assert len(arrived) - count <= shovel.redials * prefetch
    for delivery in arrived:
        assert delivery.properties == message(int(delivery.body)).properties


async def test_a_destination_that_goes_while_nothing_moves(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    host, port = destination.url.rpartition("@")[2].rstrip("/").split(":")
    async with FaultProxy(host, int(port)) as proxy:
        uris = (proxied(destination.url, proxy),)
        shovel = Shovel(options(source, destination, dest_uris=uris, reconnect_delay=0.1))
        running = asyncio.create_task(move(shovel))
        await until(lambda: shovel.state == "running")
        proxy.cut()
        await until(lambda: shovel.redials == 1 and shovel.state == "running")
        assert shovel.last_error is not None
        assert shovel.last_error.startswith("destination: amqp://guest@127.0.0.1:")
        await source.fill(10)
        await destination.until(10)
        shovel.stop()
        await running
    assert same(await destination.take(), 10)


async def test_uris_are_alternatives(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    await source.fill(3)
    dead = "amqp://127.0.0.1:1/"
    shovel = Shovel(
        options(source, destination, src_uris=(dead, source.url), dest_uris=(dead, dead, destination.url)),
        patient=False, until_empty=True,
    )  # fmt: skip
    await move(shovel)
    assert same(await destination.take(), 3)


# -- how many ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 3, 1000])
async def test_delete_after_a_number(ends: tuple[End, End], prefetch: int) -> None:
    source, destination = ends
    await source.fill(10)
    shovel = await move(Shovel(options(source, destination, src_delete_after=4, src_prefetch=prefetch)))
    assert (shovel.forwarded, shovel.left) == (4, 0)
    assert same(await destination.take(), 4)
    left = [delivery.body for delivery in await source.take()]
    assert left == [b"%d" % number for number in range(4, 10)], "what was not asked for is still there, in order"


async def test_delete_after_none_at_all(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    await source.fill(2)
    await move(Shovel(options(source, destination, src_delete_after=0)))
    assert await source.ready() == 2


async def test_delete_after_the_queue_length(ends: tuple[End, End]) -> None:
    source, destination = ends
    await source.fill(20)
    shovel = await move(Shovel(options(source, destination, src_delete_after="queue-length", src_prefetch=7)))
    assert (shovel.expected, shovel.forwarded) == (20, 20)
    assert same(await destination.take(), 20)


async def test_never_goes_on_until_it_is_stopped(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    shovel = Shovel(options(source, destination))
    running = asyncio.create_task(move(shovel))
    for start in (0, 50):
        await source.fill(50, start)
        await destination.until(start + 50)
    shovel.stop()
    await running
    assert same(await destination.take(), 100)


async def test_stopped_in_the_middle_it_loses_and_doubles_nothing(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    await source.fill(3000)
    shovel = Shovel(options(source, destination, src_prefetch=50))
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.forwarded > 200)
    shovel.stop()
    await running
    moved = shovel.forwarded
    assert moved < 3000
    assert same(await destination.take(), moved)
    assert [delivery.body for delivery in await source.take()] == [b"%d" % number for number in range(moved, 3000)]


# -- a destination that does not take them -------------------------------------------------------------------------


async def test_a_full_queue_makes_the_line_wait(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell", arguments=REFUSING)
    await source.fill(20)
    shovel = Shovel(options(source, destination, reconnect_delay=0.1))
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.refusal is not None)
    assert "refused a message" in str(shovel.refusal)
    taken: list[harebell.Delivery] = []
    while len(taken) < 20:
        await destination.until(1)
        taken += await destination.take()
    await until(lambda: shovel.refusal is None)
    shovel.stop()
    await running
    assert Counter(delivery.body for delivery in taken) == Counter(b"%d" % number for number in range(20))
    assert shovel.redials == 0
    assert await source.ready() == 0


@pytest.mark.parametrize("kind", EACH)
async def test_a_full_queue_of_rabbitmq(end: Make, kind: str) -> None:
    source, destination = await end("harebell"), await end(kind, arguments=REFUSING)
    await source.fill(20)
    shovel = Shovel(options(source, destination, reconnect_delay=0.1), until_empty=True)
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.refusal is not None)
    taken: list[harebell.Delivery] = []
    while len(taken) < 20:
        await destination.until(1)
        taken += await destination.take()
    await running
    assert Counter(delivery.body for delivery in taken) == Counter(b"%d" % number for number in range(20))


async def test_a_channel_that_refuses_for_ever_is_replaced(end: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ 3.10 nacks for ever on a channel that published while the leader of a quorum queue died."""
    monkeypatch.setattr("harebell.bridge.window.FIRST_RETRY", 0.001)
    source = await end("harebell")
    arrived: list[bytes] = []

    async def script(peer: Peer) -> None:
        await peer.handshake()
        number = await peer.channel()
        await peer.expect(m.QueueDeclare)
        peer.send(number, m.QueueDeclareOk("there", 0, 0))
        await peer.expect(m.ChannelClose)
        peer.send(number, m.ChannelCloseOk())
        number = await peer.confirming()
        tag = 0
        while isinstance(event := (await peer.next())[1], Content):
            tag += 1
            peer.send(number, m.BasicNack(tag))
        assert isinstance(event, m.ChannelOpen)
        assert tag >= PATIENCE
        another = number + 1
        peer.send(another, m.ChannelOpenOk())
        await peer.expect(m.ConfirmSelect)
        peer.send(another, m.ConfirmSelectOk())
        while len(arrived) < 5:
            where, event = await peer.next()
            if isinstance(event, m.ChannelClose):
                peer.send(number, m.ChannelCloseOk())
            else:
                assert where == another
                assert isinstance(event, Content)
                arrived.append(bytes(event.body))
                peer.send(another, m.BasicAck(len(arrived)))
        await peer.goodbye()

    async with scripted(script) as url:
        await source.fill(5)
        there = options(source, source, dest_uris=(url,), dest_queue="there", reconnect_delay=0.001)
        shovel = await move(Shovel(there, patient=False, until_empty=True))
    assert arrived == [b"%d" % number for number in range(5)]
    assert (shovel.forwarded, shovel.redials, shovel.refusal) == (5, 0, None)


async def test_a_full_queue_does_not_keep_it_from_stopping(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell", arguments=REFUSING)
    await source.fill(20)
    shovel = Shovel(options(source, destination))
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.refusal is not None)
    shovel.stop()
    await running
    assert Counter(each.body for each in [*await source.take(), *await destination.take()]) == Counter(
        b"%d" % number for number in range(20)
    )


async def test_what_reaches_no_queue_waits_and_lets_others_pass(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    await destination.channel.exchange_declare("x", "direct")
    await destination.channel.queue_bind(destination.queue, "x", "a")
    await source.channel.exchange_declare("x", "fanout")
    await source.channel.queue_bind(source.queue, "x")
    for key in ("b", "a", "a"):
        await source.channel.publish(key.encode(), "x", key)
    shovel = Shovel(options(source, destination, dest_queue=None, dest_exchange="x", reconnect_delay=0.1))
    running = asyncio.create_task(move(shovel))
    await destination.until(2)
    await until(lambda: shovel.refusal is not None)
    assert "exchange 'x' with routing key 'b' reaches no queue (312 NO_ROUTE)" in str(shovel.refusal)
    await destination.channel.queue_bind(destination.queue, "x", "b")
    await destination.until(3)
    shovel.stop()
    await running
    assert [delivery.body for delivery in await destination.take()] == [b"a", b"a", b"b"]
    assert await source.ready() == 0


async def test_a_destination_that_is_low_on_memory_makes_the_line_wait(end: Make) -> None:
    source = await end("harebell")
    async with Broker() as broker, harebell.connect(broker.url) as connection, connection.channel() as channel:
        await channel.queue_declare("q", durable=True)
        destination = End(broker.url + "?connection_timeout=200", "q", channel)  # each wait ends long before the alarm
        await source.fill(2000)
        broker.node.raise_alarm("memory")
        shovel = Shovel(options(source, destination, src_prefetch=10), until_empty=True)
        running = asyncio.create_task(move(shovel))
        await until(lambda: shovel.state == "running" and shovel.pending > 0)
        blocked = shovel.forwarded
        await asyncio.wait({running}, timeout=1)
        assert shovel.forwarded - blocked < 100
        broker.node.clear_alarm("memory")
        await running
        assert shovel.redials == 0
        assert same(await destination.take(), 2000)


@pytest.mark.parametrize("ack_mode", ["on-publish", "no-ack"])
async def test_modes_that_may_lose_say_how_many(end: Make, ack_mode: str) -> None:
    source, destination = await end("harebell"), await end("harebell", arguments=REFUSING)
    await source.fill(20)
    shovel = await move(Shovel(options(source, destination, ack_mode=ack_mode), until_empty=True))
    assert (shovel.forwarded, shovel.lost) == (5, 15)
    assert await source.ready() == 0
    assert same(await destination.take(), 5)


@pytest.mark.parametrize("ack_mode", ["on-publish", "no-ack"])
async def test_modes_that_may_lose_move_all_when_nothing_goes_wrong(ends: tuple[End, End], ack_mode: str) -> None:
    source, destination = ends
    await source.fill(200)
    shovel = await move(Shovel(options(source, destination, ack_mode=ack_mode), until_empty=True))
    assert (shovel.forwarded, shovel.lost) == (200, 0)
    assert same(await destination.take(), 200)


# -- exchanges -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kinds", [("harebell", "harebell"), *(("harebell", each) for each in EACH), *((each, "harebell") for each in EACH)]
)
async def test_from_an_exchange_to_an_exchange(end: Make, kinds: tuple[str, str]) -> None:
    """To that of the same name, where none is named: so not on one broker, where it would go in circles."""
    source, destination = await end(kinds[0]), await end(kinds[1])
    name = f"x.{source.queue}"
    await source.channel.exchange_declare(name, "topic")
    await destination.channel.exchange_declare(name, "topic")
    await destination.channel.queue_bind(destination.queue, name, "order.*")
    shovel = Shovel(options(source, destination, src_queue=None, src_exchange=name, src_key="order.#", dest_queue=None))
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.state == "running")
    for key in ("order.new", "other", "order.old"):
        await source.channel.publish(key.encode(), name, key)
    await destination.until(2)
    shovel.stop()
    await running
    arrived = await destination.take()
    assert [(each.exchange, each.routing_key) for each in arrived] == [(name, "order.new"), (name, "order.old")]
    for each in (source, destination):
        await each.channel.exchange_delete(name)


async def test_with_a_routing_key_of_its_own(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    await source.fill(1)
    shovel = Shovel(
        options(source, destination, dest_queue=None, dest_exchange="amq.direct", dest_key="k"), until_empty=True
    )
    await destination.channel.queue_bind(destination.queue, "amq.direct", "k")
    await move(shovel)
    (delivery,) = await destination.take()
    assert (delivery.exchange, delivery.routing_key) == ("amq.direct", "k")


# -- what cannot be ------------------------------------------------------------------------------------------------


async def test_missing_queues_are_declared_unless_predeclared(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    shovel = Shovel(options(source, destination, src_queue="new", dest_queue="newer", src_delete_after="queue-length"))
    await move(shovel)
    assert await source.ready("new") == 0
    assert await destination.ready("newer") == 0


@pytest.mark.parametrize("at", ["src", "dest"])
async def test_a_queue_that_is_missing_ends_one_that_is_not_patient(ends: tuple[End, End], at: str) -> None:
    source, destination = ends
    changes: dict[str, Any] = {f"{at}_queue": "not.there", f"{at}_predeclared": True}
    with pytest.raises(ShovelEnded, match=r"404 NOT_FOUND - no queue 'not.there' in vhost '/'") as caught:
        await move(Shovel(options(source, destination, **changes), patient=False))
    assert str(caught.value).startswith("source" if at == "src" else "destination")


async def test_a_queue_that_is_missing_is_waited_for_with_patience(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    await source.fill(5)
    shovel = Shovel(
        options(source, destination, dest_queue="later", dest_predeclared=True, reconnect_delay=0.05), until_empty=True
    )
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.last_error is not None)
    assert "no queue 'later'" in str(shovel.last_error)
    await destination.channel.queue_declare("later", durable=True)
    await running
    assert same(await destination.take("later"), 5)


async def test_a_refused_login(ends: tuple[End, End]) -> None:
    source, destination = ends
    url = destination.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(ShovelEnded, match="403 ACCESS_REFUSED") as caught:
        await move(Shovel(options(source, destination, dest_uris=(url,)), patient=False))
    assert "wrong" not in str(caught.value)


async def test_a_vhost_that_is_missing(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    with pytest.raises(ShovelEnded, match="530 NOT_ALLOWED"):
        await move(Shovel(options(source, destination, src_uris=(source.url + "nope",)), patient=False))


async def test_nobody_there(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    with pytest.raises(ShovelEnded, match=r"source: amqp://guest@127\.0\.0\.1:1/ cannot be reached"):
        await move(Shovel(options(source, destination, src_uris=("amqp://127.0.0.1:1/",)), patient=False))


async def test_without_reconnect_delay_the_first_loss_is_the_end(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    shovel = Shovel(options(source, destination, reconnect_delay=0))
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.state == "running")
    await source.channel.queue_delete(source.queue)
    with pytest.raises(ShovelEnded, match=r"cancelled|404 NOT_FOUND"):  # which, says how far its subscription had come
        await running
    assert shovel.state == "terminated"


@pytest.mark.parametrize("kind", EACH)
async def test_what_can_never_be_moved_is_tried_less_and_less_often(end: Make, kind: str) -> None:
    """A user_id that the destination refuses closes its channel, each time before anything has moved."""
    source, destination = await end("harebell"), await end(kind)
    source.channel.publish_nowait(b"1", "", source.queue, raw_properties=Properties(user_id="guest").encode())
    await source.until(1)
    shovel = Shovel(options(source, destination, dest_properties={"user_id": "nobody"}, reconnect_delay=0.8))
    running = asyncio.create_task(move(shovel))
    await until(lambda: shovel.redials >= 4)
    attempts = shovel.attempts
    shovel.stop()
    await running
    assert "406 PRECONDITION_FAILED - user_id property set to 'nobody'" in str(shovel.last_error)
    assert shovel.forwarded == 0
    assert await source.ready() == 1
    assert attempts >= 3, "each wait was longer than the one before"


@pytest.mark.parametrize("kind", EACH)
async def test_a_user_id_that_the_destination_refuses_can_be_overwritten(end: Make, kind: str) -> None:
    source, destination = await end("harebell"), await end(kind)
    await source.channel.publish(Message(b"1", user_id="guest"), "", source.queue)
    shovel = Shovel(options(source, destination, dest_properties={"user_id": "guest", "priority": 9}), until_empty=True)
    await move(shovel)
    (delivery,) = await destination.take()
    assert (delivery.properties.user_id, delivery.properties.priority) == ("guest", 9)


# -- streams -------------------------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is at its end after a shorter silence."""
    monkeypatch.setattr("harebell.bridge.session.QUIET", 0.5)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("kind", ["harebell", *EACH])
async def test_a_stream_from_its_beginning(end: Make, kind: str) -> None:
    source = await end(kind, arguments={"x-queue-type": "stream"})
    destination = await end("harebell")
    await source.fill(500, make=plain)
    from_first = {"src_consumer_arguments": {"x-stream-offset": "first"}}
    shovel = await move(Shovel(options(source, destination, **from_first), until_empty=True))
    assert shovel.forwarded == 500
    arrived = await destination.take()
    assert [each.body for each in arrived] == [b"%d" % number for number in range(500)]
    for number, each in enumerate(arrived):
        assert each.headers == plain(number).headers, "without x-stream-offset, which is about the source"


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("kind", ["harebell", *EACH])
async def test_a_stream_is_read_on_after_a_loss(end: Make, kind: str) -> None:
    source, destination = await end(kind, arguments={"x-queue-type": "stream"}), await end("harebell")
    await source.fill(2000, make=plain)
    host, port = destination.url.rpartition("@")[2].partition("/")[0].split(":")
    async with FaultProxy(host, int(port)) as proxy:
        shovel = Shovel(
            options(
                source, destination, src_prefetch=100, reconnect_delay=0.1,
                src_consumer_arguments={"x-stream-offset": 500}, dest_uris=(proxied(destination.url, proxy),),
            ),
            until_empty=True,
        )  # fmt: skip
        running = asyncio.create_task(move(shovel))
        for moved in (100, 600):
            await until(lambda moved=moved: shovel.forwarded >= moved)  # type: ignore[misc]
            proxy.cut(reset=True)
        await running
    assert shovel.redials == 2
    arrived = await destination.take()
    assert {int(each.body) for each in arrived} == set(range(500, 2000))
    assert len(arrived) <= 1500 + 2 * 100


async def test_to_a_stream(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell", arguments={"x-queue-type": "stream"})
    await source.fill(100)
    await move(Shovel(options(source, destination), until_empty=True))
    assert await destination.ready() == 100


# -- headers -------------------------------------------------------------------------------------------------------


async def test_forward_headers(end: Make) -> None:
    source, destination = await end("harebell"), await end("harebell")
    await source.fill(1)
    about: Table = {"shovelled-by": "me", "shovel-type": "dynamic", "shovel-name": "n", "shovel-vhost": "/"}
    asked = options(source, destination, dest_forward_headers=True, dest_timestamp_header=True)
    await move(Shovel(asked, about=about, until_empty=True))
    back = options(destination, source, dest_forward_headers=True)
    await move(Shovel(back, about=about, until_empty=True))
    (delivery,) = await source.take()
    headers = dict(delivery.headers)
    second, first = cast("list[Table]", headers.pop("x-shovelled"))
    assert first == {
        **about,
        "src-uri": source.url.replace("guest:guest@", ""),
        "dest-uri": destination.url.replace("guest:guest@", ""),
        "src-queue": source.queue,
        "dest-queue": destination.queue,
    }
    assert second["src-queue"] == destination.queue
    assert isinstance(headers.pop("x-shovelled-timestamp"), int)
    assert headers == message(0).headers
