"""Keys by which a queue drops duplicates: each publication of a producer has one, its own where it brings one."""

from __future__ import annotations

import harebell
from harebell.client.channel import Channel
from harebell.client.connection import Connection
from harebell.client.messages import Message, Publication
from harebell.client.patterns.deduplication import HEADER, Keys, with_key
from tests.client.outages import bodies


def test_a_message_is_not_changed_and_keeps_its_own_key() -> None:
    message = Message(b"m", headers={"n": 1}, priority=3)
    keyed = with_key(message, "k")
    assert message.headers == {"n": 1}
    assert (keyed.headers, keyed.properties.priority, keyed.body) == ({"n": 1, HEADER: "k"}, 3, b"m")
    assert with_key(keyed, "another") is keyed
    assert with_key(b"m", "k").headers == {HEADER: "k"}


def test_no_two_keys_are_equal() -> None:
    made = [keys.stamp(b"").headers[HEADER] for keys in (Keys(), Keys()) for _ in range(3)]
    assert len(set(made)) == 6


async def test_each_way_of_a_producer_gives_a_key(connection: Connection, channel: Channel, queue: str) -> None:
    async with connection.producer(deduplicate=True) as producer:
        await producer.publish(b"0", queue)
        await producer.publish_soon(b"1", queue)
        await producer.publish_many([Publication(b"2", "", queue), Publication(Message(b"3"), "", queue)])
        await producer.publish(Message(b"4", headers={HEADER: "own"}), queue)
    found = [await channel.get(queue, no_ack=True) for _ in range(5)]
    keys = [delivery.headers[HEADER] for delivery in found if delivery]
    assert len(set(keys)) == 5
    assert keys[-1] == "own"


async def test_retried_publications_arrive_once(harebell_url: str, name: str) -> None:
    async with harebell.connect(harebell_url) as connection, connection.channel() as channel:
        await channel.queue_declare(name, arguments={"x-message-deduplication": True})
        async with connection.producer(deduplicate=True, codec=harebell.JSON()) as producer:
            for n in range(2):
                await producer.publish(n, name)
            again = Message(b"x", headers={HEADER: "same"})
            for _ in range(2):
                await producer.publish(again, name)
        assert await bodies(channel, name) == [b"0", b"1", b"x"]
        await channel.queue_delete(name)
