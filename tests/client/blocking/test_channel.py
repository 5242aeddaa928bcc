"""The blocking API against both brokers: what it shares with the asyncio API, called without await."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from harebell import errors
from harebell.client.blocking import Channel, Connection, Consumer, connect
from harebell.client.messages import Delivery, Message, Publication, QueueInfo, Returned
from harebell.protocol.v091 import Properties
from tests.client.outages import FAST


@pytest.fixture
def blocking(broker_url: str) -> Iterator[Connection]:
    with connect(broker_url, timeout=60, recovery=FAST) as connection:
        yield connection


@pytest.fixture
def queue(blocking: Connection, name: str) -> Iterator[str]:
    blocking.channel().queue_declare(name)
    yield name
    if blocking.is_open:
        blocking.channel().queue_delete(name)


@pytest.fixture
def ch(blocking: Connection) -> Channel:
    return blocking.channel()


def numbered(queue: str, count: int) -> Iterator[Publication]:
    return (Publication(str(n).encode(), "", queue) for n in range(count))


def receive(channel: Channel, consumer: Consumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        batch = consumer.receive(timeout=60)
        assert batch, f"only {len(bodies)} of {count} came"
        bodies += [delivery.body for delivery in batch]
        channel.ack(batch[-1].delivery_tag, multiple=True)
    return bodies


def test_publish_and_receive_everything_in_order(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    assert ch.publish_many(numbered(queue, 3000), window=500, timeout=60) == 3000
    assert ch.queue_declare(queue, passive=True) == QueueInfo(queue, 3000, 0)
    with ch.consume(queue, prefetch=400) as consumer:
        assert receive(ch, consumer, 3000) == [str(n).encode() for n in range(3000)]
        assert consumer.receive(timeout=0.01) == []
    assert consumer.receive(timeout=60) == []  # it has ended


def test_iterate_and_acknowledge_each(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish_many(numbered(queue, 2000))
    bodies = []
    for delivery in ch.consume(queue, prefetch=500):
        bodies.append(delivery.body)
        delivery.ack()
        if len(bodies) == 2000:
            break
    assert bodies == [str(n).encode() for n in range(2000)]
    assert ch.queue_declare(queue, passive=True).message_count == 0


def test_properties_and_addresses_survive(ch: Channel, queue: str, name: str) -> None:
    exchange = f"{name}.x"
    ch.exchange_declare(exchange, "topic")
    ch.queue_bind(queue, exchange, "a.#")
    message = Message(b"\0body", content_type="text/plain", headers={"n": 1, "deep": {"list": [1, "x"]}}, priority=3)
    ch.publish(message, exchange, "a.b")
    (delivery,) = ch.consume(queue).receive(timeout=60)
    assert (delivery.body, delivery.body_size) == (b"\0body", 5)
    assert (delivery.exchange, delivery.routing_key, delivery.redelivered) == (exchange, "a.b", False)
    assert delivery.properties == message.properties
    assert delivery.headers == message.headers
    delivery.ack()
    ch.queue_unbind(queue, exchange, "a.#")
    ch.exchange_delete(exchange)


def test_receive_gives_no_more_than_was_asked_for(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish_many(numbered(queue, 10))
    consumer = ch.consume(queue)
    assert next(consumer).body == b"0"
    sizes = [1]
    while sum(sizes) < 10:
        sizes.append(len(consumer.receive(max_messages=3, timeout=60)))
    assert max(sizes) <= 3
    with pytest.raises(errors.InvalidArgument):
        consumer.receive(max_messages=0)


def test_get_ack_nack_reject(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish(b"m", "", queue)
    for give_back in (
        lambda d: d.nack(),
        lambda d: d.reject(requeue=True),
        lambda d: ch.nack(d.delivery_tag, requeue=True),
    ):
        delivery = ch.get(queue)
        assert delivery is not None
        give_back(delivery)
    last = ch.get(queue)
    assert last is not None
    assert last.redelivered
    last.ack()
    assert ch.get(queue) is None
    ch.publish(b"m", "", queue)
    assert ch.get(queue, no_ack=True) is not None
    ch.close()


def test_a_missing_queue_costs_the_call_alone(blocking: Connection, ch: Channel, name: str) -> None:
    other = blocking.channel()
    with pytest.raises(errors.NotFound, match=name) as caught:
        ch.queue_declare(name, passive=True)
    assert f"channel {ch.number} on queue.declare" in caught.value.__notes__[0]
    ch.queue_declare(name, auto_delete=True)
    other.queue_delete(name)
    assert not ch.is_closed


def test_without_recovery_the_broker_closes_a_channel_for_good(broker_url: str, name: str) -> None:
    with connect(broker_url, timeout=60, recovery=None) as connection, connection.channel() as channel:
        with pytest.raises(errors.NotFound):
            channel.queue_declare(name, passive=True)
        assert channel.is_closed
        assert isinstance(channel.closed_reason, errors.NotFound)
        with pytest.raises(errors.ChannelClosed, match=name) as later:
            channel.queue_declare(name)
        assert isinstance(later.value.__cause__, errors.NotFound)
        with pytest.raises(errors.ChannelClosed, match=name):
            channel.publish(b"", "", name)
        with pytest.raises(errors.ChannelClosed, match=name):
            channel.publish_many(())
        assert connection.channel().number == channel.number


def test_an_ack_that_cannot_be_right_is_refused_at_once(ch: Channel, name: str) -> None:
    ch.queue_declare(name, exclusive=True)
    ch.publish(b"m", "", name)
    with ch.consume(name) as consumer:
        with pytest.raises(errors.LocalProtocolError, match="4711, which never came"):
            ch.ack(4711)
        delivery = next(consumer)
        delivery.reject()
        with pytest.raises(errors.LocalProtocolError, match=r"settled before \(reject\(requeue=False\)\)"):
            delivery.ack()
    assert ch.test().reconnection_count == 1


def test_multiple_leaves_out_what_other_threads_have_not_got(ch: Channel, name: str) -> None:
    """A thread takes many deliveries at a time, and hands them out one by one."""
    for queue in (name, f"{name}.2"):
        ch.queue_declare(queue, exclusive=True)
    ch.confirm_select()
    ch.publish_many([Publication(b"%d" % n, "", name) for n in range(20)])
    ch.publish_many([Publication(b"%d" % n, "", f"{name}.2") for n in range(20)])
    with ch.consume(name) as one:
        assert next(one).body == b"0"  # the other 19 came with it
        while one.buffered < 19:
            ch.queue_inspect(name)
        with ch.consume(f"{name}.2") as other:
            last = [next(other) for _ in range(20)][-1]
            last.ack(multiple=True)
    deadline = time.monotonic() + 60
    while ch.queue_inspect(name).message_count < 19:  # RabbitMQ requeues some time after the cancel
        assert time.monotonic() < deadline
    assert ch.queue_inspect(f"{name}.2").message_count == 0


def test_unroutable(ch: Channel, name: str) -> None:
    ch.confirm_select()
    with pytest.raises(errors.Unroutable, match=name) as caught:
        ch.publish(b"lost", "", name, mandatory=True)
    returned = caught.value.returned
    assert isinstance(returned, Returned)
    assert (returned.reply_code, returned.body, returned.routing_key) == (312, b"lost", name)
    assert ch.is_open


def test_one_unroutable_of_many(ch: Channel, queue: str, name: str) -> None:
    ch.confirm_select()
    batch = [*numbered(queue, 50), Publication(b"lost", "", f"{name}.none", True), *numbered(queue, 49)]
    with pytest.raises(errors.Unroutable, match="1 of 100"):
        ch.publish_many(batch)
    assert ch.queue_declare(queue, passive=True).message_count == 99


def test_returns_without_confirms(ch: Channel, name: str) -> None:
    returned: SimpleQueue[Returned] = SimpleQueue()
    ch.on_return = returned.put
    assert ch.on_return == returned.put
    assert ch.publish(b"lost", "", name, mandatory=True) is None
    assert returned.get(timeout=60).body == b"lost"
    ch.on_return = None


def test_receive_waits_no_longer_than_its_timeout(ch: Channel, queue: str) -> None:
    consumer = ch.consume(queue)
    begun = time.monotonic()
    assert consumer.receive(timeout=0.05) == []
    assert time.monotonic() >= begun + 0.05


def test_a_deleted_queue_ends_its_consumer(blocking: Connection, ch: Channel, queue: str) -> None:
    consumer = ch.consume(queue)
    consumer.start()
    blocking.channel().queue_delete(queue)
    with pytest.raises(errors.ConsumerCancelled, match=queue):
        consumer.receive(timeout=60)
    with pytest.raises(errors.ConsumerCancelled, match=queue):
        next(consumer)


def test_cancel_gives_back_what_was_not_received(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish_many(numbered(queue, 100))
    consumer = ch.consume(queue)
    first = next(consumer)  # others were taken ahead with it
    consumer.cancel()
    consumer.cancel()
    assert consumer.buffered == 0
    first.ack()
    assert len(receive(ch, ch.consume(queue), 99)) == 99
    assert ch.queue_declare(queue, passive=True).message_count == 0


def test_cancel_may_leave_what_came_to_be_received(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish_many(numbered(queue, 100))
    consumer = ch.consume(queue, prefetch=70)
    first = next(consumer)
    consumer.cancel(requeue=False)
    left = list(consumer)
    assert consumer.receive(timeout=0) == []
    assert [int(d.body) for d in (first, *left)] == list(range(1 + len(left)))
    assert ch.queue_declare(queue, passive=True).message_count == 99 - len(left)


def test_recover(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish(b"m", "", queue)
    consumer = ch.consume(queue)
    (first,) = consumer.receive(timeout=60)
    ch.recover(requeue=True)
    (second,) = consumer.receive(timeout=60)
    assert (first.redelivered, second.redelivered) == (False, True)
    second.ack()


def test_an_error_of_the_source_comes_after_what_it_gave(ch: Channel, queue: str) -> None:
    def source() -> Iterator[Publication]:
        yield from numbered(queue, 700)
        raise ZeroDivisionError

    for _ in range(2):  # without confirms, and with them
        with pytest.raises(ZeroDivisionError):
            ch.publish_many(source())
        ch.confirm_select()
    assert ch.publish_many(numbered(queue, 1), window=1) == 1
    assert ch.publish_many(numbered(queue, 20), window=3) == 20
    with pytest.raises(errors.InvalidArgument, match="window"):
        ch.publish_many(numbered(queue, 1), window=0)
    with pytest.raises(errors.DeadlineExceeded, match="publish_many"):
        ch.publish_many(numbered(queue, 1), timeout=0)
    assert ch.queue_declare(queue, passive=True).message_count == 1421


def test_purge_and_delete_count(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish_many(numbered(queue, 7))
    assert ch.queue_purge(queue) == 7
    ch.publish_many(numbered(queue, 3))
    with pytest.raises(errors.PreconditionFailed):
        ch.queue_delete(queue, if_empty=True)


def test_exchange_to_exchange(ch: Channel, queue: str, name: str) -> None:
    ch.exchange_declare(f"{name}.a", "fanout", auto_delete=True)
    ch.exchange_declare(f"{name}.b", "fanout")
    ch.exchange_bind(f"{name}.b", f"{name}.a")
    ch.queue_bind(queue, f"{name}.b")
    ch.confirm_select()
    ch.publish(b"m", f"{name}.a", mandatory=True)
    assert ch.queue_declare(queue, passive=True).message_count == 1
    ch.exchange_unbind(f"{name}.b", f"{name}.a")
    ch.exchange_delete(f"{name}.b")


def test_large_bodies_cross_frames(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    bodies = [bytes([n]) * (300_000 + n) for n in range(20)]
    assert ch.publish_many(Publication(body, "", queue) for body in bodies) == 20
    assert receive(ch, ch.consume(queue), 20) == bodies


def test_a_refused_login(broker_url: str) -> None:
    with pytest.raises(errors.AccessRefused, match="ACCESS_REFUSED"):
        connect(broker_url.replace("guest:guest", "guest:wrong"), timeout=60)
    gc.collect()  # a socket that was left open would warn here


def test_a_missing_vhost(broker_url: str) -> None:
    url = broker_url.rstrip("/").removesuffix("/%2F")
    with pytest.raises((errors.NotAllowed, errors.AccessRefused), match="nowhere"):
        connect(f"{url}/nowhere", timeout=60)


def test_nobody_there() -> None:
    with pytest.raises(errors.ConnectionLost, match="localhost:1"):
        connect("amqp://localhost:1/", timeout=5)


def test_a_closed_connection(broker_url: str) -> None:
    connection = connect(broker_url, timeout=60)
    channel = connection.channel()
    connection.close()
    connection.close()
    channel.close()
    assert connection.is_closed
    for call in (connection.channel, channel.confirm_select, lambda: channel.ack(1)):
        with pytest.raises(errors.ChannelClosed, match="closed by this client"):
            call()


def test_the_frame_size_agreed_on_is_kept(broker_url: str, name: str) -> None:
    with connect(f"{broker_url}?frame_max=4096&channel_max=2", timeout=60) as connection:
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True)
        channel.publish(Message(b"x" * 50_000, properties=Properties(message_id="m")), "", name)
        delivery = channel.get(name, no_ack=True)
        assert delivery is not None
        assert delivery.body == b"x" * 50_000
        connection.channel()
        with pytest.raises(errors.InvalidArgument, match="2 channels"):
            connection.channel()


def test_a_publication_that_cannot_be_encoded_sends_nothing_of_itself(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    with pytest.raises(errors.LocalProtocolError, match="256"):
        ch.publish(b"m", "", "k" * 256)
    with pytest.raises(errors.LocalProtocolError, match="content_type"):
        ch.publish(Message(b"m", content_type="c" * 256), "", queue)
    with pytest.raises(errors.InvalidArgument):
        ch.publish_many([Publication("text", "", queue)])  # type: ignore[arg-type]
    assert ch.publish(b"m", "", queue) is not None
    assert ch.queue_declare(queue, passive=True).message_count == 1


def test_leaving_a_stream_early_costs_nobody_the_connection(ch: Channel, queue: str) -> None:
    name = f"{queue}-stream"
    ch.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    try:
        ch.confirm_select()
        ch.publish_many(Publication(Message(b"%d" % n), "", name) for n in range(20))
        with ch.consume(name, prefetch=20, arguments={"x-stream-offset": "first"}) as consumer:
            assert next(consumer).body == b"0"
        assert ch.queue_declare(name, passive=True).name == name
    finally:
        ch.queue_delete(name)


def test_recover_makes_old_tags_orphans(ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish_many(numbered(queue, 4))
    consumer = ch.consume(queue)
    old = consumer.receive(1, timeout=60)
    ch.recover(requeue=True)
    bodies: set[bytes] = set()
    while len(bodies) < 4:
        for delivery in consumer.receive(timeout=60):
            assert delivery.redelivered
            bodies.add(delivery.body)
            delivery.ack()
    with pytest.raises(errors.AcknowledgeOrphans, match="1 tags orphaned"):
        old[0].ack()
    assert ch.queue_declare(queue, passive=True).message_count == 0


def test_each_delivery_to_a_function(blocking: Connection, ch: Channel, queue: str) -> None:
    ch.confirm_select()
    ch.publish_many(numbered(queue, 10))
    seen = []

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        if len(seen) == 7:
            delivery.nack()
            raise LookupError("enough")
        delivery.ack()

    with pytest.raises(LookupError, match="enough"):
        ch.consume(queue, prefetch=8).each(handle)
    assert len(seen) == 7
    left = blocking.channel()
    rest = left.consume(queue)
    assert len(receive(left, rest, 4)) == 4
    rest.cancel()
    consumer = ch.consume(queue)
    consumer.start()
    ch.close()
    consumer.each(handle)  # ends as the iteration does
