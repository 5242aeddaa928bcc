"""publish_bulk against both brokers: many messages at once, each of which is told apart by its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

import harebell
from harebell import errors
from harebell.client.blocking import Channel, Connection, connect
from harebell.client.messages import Confirmation, OnOrphan
from harebell.protocol.v091 import Properties
from harebell.testing import EmbeddedBroker, FaultProxy
from tests.client.outages import FAST

NONE = Properties().encode()


@pytest.fixture
def blocking(broker_url: str) -> Iterator[Connection]:
    with connect(broker_url, timeout=60, recovery=None) as connection:
        yield connection


@pytest.fixture
def ch(blocking: Connection) -> Channel:
    channel = blocking.channel()
    channel.confirm_select()
    return channel


def bodies_of(channel: Channel, queue: str) -> list[bytes]:
    bodies = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        bodies.append(delivery.body)
    return bodies


def test_all_arrive_in_order_with_their_properties(ch: Channel, name: str) -> None:
    ch.queue_declare(name, exclusive=True)
    raws = [Properties(message_id=str(n)).encode() for n in range(3)]
    large = b"x" * 300_000  # more than a frame holds
    bulk = ch.publish_bulk([b"", b"1", large], raws, "", name)
    bulk.wait(timeout=60)
    assert (bulk.count, bulk.settled, bulk.acked, bulk.nacked, bulk.unanswered) == (3, 3, 3, [], [])
    for body in (b"", b"1", large):
        delivery = ch.get(name, no_ack=True)
        assert delivery is not None
        assert (delivery.body, delivery.properties.message_id) == (body, str((b"", b"1", large).index(body)))


def test_each_has_its_address_and_comes_back_to_its_place(ch: Channel, name: str) -> None:
    ch.queue_declare(name, exclusive=True)
    keys = [name, "nowhere", name, "nowhere", name]
    bulk = ch.publish_bulk([b"%d" % n for n in range(5)], [NONE] * 5, [""] * 5, keys, mandatory=True)
    bulk.wait(timeout=60)
    assert {place: returned.body for place, returned in bulk.returns.items()} == {1: b"1", 3: b"3"}
    assert bulk.acked == 5
    assert bodies_of(ch, name) == [b"0", b"2", b"4"]


def test_what_a_full_queue_refuses(ch: Channel, name: str) -> None:
    ch.queue_declare(name, exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    other = f"{name}.other"
    ch.queue_declare(other, exclusive=True)
    ch.publish(b"full", "", name)
    bulk = ch.publish_bulk([b"a", b"b", b"c"], [NONE] * 3, "", [other, name, other])
    bulk.wait(timeout=60)
    assert (bulk.acked, bulk.nacked, bulk.unanswered) == (2, [1], [])
    assert bodies_of(ch, other) == [b"a", b"c"]


def test_without_confirms_nothing_is_waited_for(blocking: Connection, name: str) -> None:
    channel = blocking.channel()
    channel.queue_declare(name, exclusive=True)
    channel.tx_select()
    bulk = channel.publish_bulk([b"a", b"b"], [NONE] * 2, "", name)
    bulk.wait()
    assert (bulk.settled, bulk.acked) == (2, 0)
    assert channel.statistics().published == 2
    assert bodies_of(channel, name) == []
    channel.tx_commit()
    assert bodies_of(channel, name) == [b"a", b"b"]


def test_a_closed_channel_says_why_and_what_has_no_answer(ch: Channel, name: str) -> None:
    bulk = ch.publish_bulk([b"a", b"b"], [NONE] * 2, f"{name}.missing", "key")
    with pytest.raises(errors.NotFound, match="missing"):
        bulk.wait(timeout=60)
    assert bulk.unanswered == [0, 1]
    with pytest.raises(errors.ChannelClosed):
        ch.publish_bulk([b"a"], [NONE], "", "key")


@pytest.mark.parametrize("arguments", [([b"a"], []), ([b"a"], [NONE], ["x", "y"]), ([b"a"], [NONE], "", [])])
def test_what_does_not_fit_together_is_refused(ch: Channel, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(errors.InvalidArgument):
        ch.publish_bulk(*arguments)
    with pytest.raises(errors.LocalProtocolError, match="at most 255"):  # and nothing of it is written or numbered
        ch.publish_bulk([b"a", b"b"], [NONE] * 2, "", ["key", "k" * 256])
    ch.publish_bulk([b"a"], [NONE], "", "key").wait(timeout=60)


def test_listeners_hear_of_each(ch: Channel, name: str) -> None:
    ch.queue_declare(name, exclusive=True)
    heard: SimpleQueue[Confirmation] = SimpleQueue()
    ch.notify_publish(heard.put)
    ch.publish_bulk([b"a", b"b"], [NONE] * 2, "", name).wait(timeout=60)
    ch.publish(b"c", "", name)
    assert [heard.get(timeout=60).publish_tag for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("policy", ["raise", "retry"])
async def test_a_loss_orphans_what_is_under_way(policy: OnOrphan) -> None:
    with EmbeddedBroker() as server:
        async with FaultProxy("127.0.0.1", server.port) as proxy:
            url = f"amqp://guest:guest@{proxy.host}:{proxy.port}"
            async with harebell.connect(url, recovery=FAST) as connection, connection.channel() as channel:
                await channel.queue_declare("q", durable=True)
                await channel.confirm_select(on_orphan=policy)
                first = await channel.publish_bulk([b"a"] * 3, [NONE] * 3, "", "q")
                await first.wait(timeout=60)
                proxy.stall("to_client")
                second = await channel.publish_bulk([b"b"] * 3, [NONE] * 3, "", "q")
                with pytest.raises(errors.DeadlineExceeded, match="0 of 3"):
                    await second.wait(timeout=0.05)
                proxy.cut()
                proxy.resume()
                await second.wait(timeout=60)
                assert (second.acked, second.unanswered) == ((0, [0, 1, 2]) if policy == "raise" else (3, []))
                third = await channel.publish_bulk([b"c"], [NONE], "", "q", timeout=60)  # on the next connection
                await asyncio.wait_for(third.wait(), 60)
                assert third.acked == 1
