"""What time does to messages and queues, with a clock of the test's own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from harebell.broker.v091.channel import Channel
from harebell.protocol.v091 import Content, methods as m
from tests.broker.kit import Client, NodeKit

DYING: dict[str, Any] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}


def bodies(client: Client, queue: str) -> list[bytes]:
    found = []
    while (got := client.get(queue)) is not None:
        found.append(got.body)
    return found


def headers(content: Content | None) -> dict[str, Any]:
    assert content is not None
    return content.decode_properties().headers or {}


# -- TTL ---------------------------------------------------------------------------------------------------------


def test_messages_expire_wherever_they_stand(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("dead")
    client.declare(**DYING)
    for body, expiration in ((b"stays", None), (b"late", "200"), (b"soon", "100"), (b"stays too", None)):
        client.publish("q", body, expiration=expiration)
    kit.pass_time(99)
    assert client.count() == 4
    kit.pass_time(1)
    assert client.count() == 3
    kit.pass_time(100)
    assert bodies(client, "dead") == [b"soon", b"late"]
    assert bodies(client, "q") == [b"stays", b"stays too"]


def test_an_expired_message_is_never_delivered_even_when_its_timer_is_late(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_message_ttl=100)
    client.publish("q", b"1")
    kit.clock.now += 100  # and no timer has run
    assert client.get() is None
    client.publish("q", b"2")
    kit.clock.now += 100
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    assert client.deliveries() == []


@pytest.mark.parametrize("how", ["queue", "message"])
@pytest.mark.parametrize("room", [True, False])
def test_a_time_of_zero_is_enough_for_a_ready_consumer(kit: NodeKit, how: str, room: bool) -> None:
    client = kit.client()
    client.declare("dead")
    arguments: dict[str, Any] = {**DYING, **({"x_message_ttl": 0} if how == "queue" else {})}
    client.declare(**arguments)
    client.call(m.BasicQos(0, 1), m.BasicQosOk)
    if room:
        client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    for body in (b"1", b"2"):
        client.publish("q", body, expiration="0" if how == "message" else None)
    assert [body for *_, body in client.deliveries()] == ([b"1"] if room else [])
    assert client.count("dead") == (1 if room else 2)
    assert client.count() == 0


def test_a_time_of_zero_does_not_jump_the_queue(client: Client) -> None:
    client.declare()
    client.call(m.BasicQos(0, 1), m.BasicQosOk)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    for body, expiration in ((b"1", None), (b"2", None), (b"3", "0")):
        client.publish("q", body, expiration=expiration)
    client.send(1, m.BasicAck(1))
    client.send(1, m.BasicAck(2))
    assert [body for *_, body in client.deliveries()] == [b"1", b"2"]


def test_deliveries_leave_no_timers_behind(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_message_ttl=1_000_000, x_expires=1_000_000)
    client.call(m.BasicConsume("q", "c", no_ack=True), m.BasicConsumeOk)
    before = len(kit.node.timers)
    for _ in range(100):
        client.publish("q")
    assert len(client.deliveries()) == 100
    assert len(kit.node.timers) <= before + 1


def test_a_queue_goes_when_nobody_used_it(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_expires=100)
    for _ in range(3):
        kit.pass_time(99)
        assert client.get() is None
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    kit.pass_time(1000)
    client.call(m.BasicCancel("c"), m.BasicCancelOk)
    kit.pass_time(99)
    assert "q" in kit.node.vhosts["/"].queues
    kit.pass_time(1)
    assert "q" not in kit.node.vhosts["/"].queues


# -- what comes back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_delivery_limit_and_count(client: Client, kind: str) -> None:
    client.declare("dead")
    client.declare(x_queue_type=kind, x_delivery_limit=2, **DYING)
    client.publish("q", b"1", headers={"a": 1})
    counts = []
    for tag in (1, 2, 3):
        counts.append(headers(client.get(no_ack=False)))
        client.send(1, m.BasicNack(tag, requeue=True))
    assert counts == [{"a": 1}, {"a": 1, "x-delivery-count": 1}, {"a": 1, "x-delivery-count": 2}]
    assert client.count() == 0
    assert headers(client.get("dead"))["x-death"][0]["reason"] == "delivery_limit"


@pytest.mark.parametrize(("kind", "limit", "times"), [("quorum", None, 21), ("classic", None, 50), ("quorum", -1, 50)])
def test_how_often_a_message_comes_without_a_limit_of_its_own(
    client: Client, kind: str, limit: int | None, times: int
) -> None:
    limits: dict[str, Any] = {} if limit is None else {"x_delivery_limit": limit}
    client.declare(x_queue_type=kind, **limits)
    client.publish("q", b"1")
    for tag in range(1, 51):
        if client.get(no_ack=False) is None:
            assert tag == times + 1
            return
        client.send(1, m.BasicNack(tag, requeue=True))
    assert times == 50


def test_delayed_retry(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_delayed_retry_type="all", x_delayed_retry_min=100, x_delayed_retry_max=250)
    client.publish("q", b"1")
    client.publish("q", b"2")
    for tag, delay in ((1, 100), (3, 200), (4, 250), (5, 250)):
        got = client.get(no_ack=False)
        assert got is not None
        assert got.body == b"1"
        if tag == 1:
            assert client.get(no_ack=False) is not None
        client.send(1, m.BasicNack(tag, requeue=True))
        kit.pass_time(delay - 1)
        assert client.count() == 0
        kit.pass_time(1)
        assert client.count() == 1


def test_delayed_retry_wakes_a_consumer_and_forgets_a_deleted_queue(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_delayed_retry_type="all", x_delayed_retry_min=100)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    client.publish("q", b"1")
    client.send(1, m.BasicNack(1, requeue=True))
    kit.pass_time(100)
    assert client.deliveries() == [(1, False, b"1"), (2, True, b"1")]
    client.send(1, m.BasicNack(2, requeue=True))
    client.send(1, m.QueueDelete("q"))
    client.events.clear()
    kit.pass_time(1000)
    assert client.deliveries() == []


@pytest.mark.parametrize(
    ("kind", "how", "delayed"),
    [
        ("failed", m.BasicReject(1, requeue=True), True),
        ("failed", m.ChannelClose(200, ""), True),
        ("failed", m.BasicNack(1, requeue=True), False),
        ("failed", m.BasicRecover(requeue=True), False),
        ("returned", m.BasicReject(1, requeue=True), False),
        ("returned", m.ChannelClose(200, ""), False),
        ("returned", m.BasicNack(1, requeue=True), True),
        ("returned", m.BasicRecover(requeue=True), True),
        ("all", m.BasicReject(1, requeue=True), True),
        ("all", m.BasicNack(1, requeue=True), True),
        ("disabled", m.BasicReject(1, requeue=True), False),
        ("disabled", m.BasicNack(1, requeue=True), False),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "NAME", None),
)
def test_delayed_retry_types(kit: NodeKit, kind: str, how: m.Method, delayed: bool) -> None:
    client, other = kit.client(), kit.client()
    client.declare(x_delayed_retry_type=kind, x_delayed_retry_min=100)
    client.publish("q", b"1")
    client.get(no_ack=False)
    client.send(1, how)
    assert other.count() == (not delayed)
    kit.pass_time(100)
    assert other.count() == 1


def test_a_rejection_in_a_transaction_is_one_for_delayed_retry_too(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_delayed_retry_type="failed", x_delayed_retry_min=100)
    client.publish("q", b"1")
    client.call(m.TxSelect(), m.TxSelectOk)
    client.get(no_ack=False)
    client.send(1, m.BasicReject(1, requeue=True))
    client.call(m.TxCommit(), m.TxCommitOk)
    assert client.count() == 0
    kit.pass_time(100)
    assert client.count() == 1


def test_a_consumer_that_is_too_slow_failed(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_delayed_retry_type="failed", x_delayed_retry_min=50_000, x_consumer_timeout=1000)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    client.publish("q", b"1")
    kit.pass_time(2000)
    assert len(client.take(m.BasicCancel)) == 1
    assert delayed(kit) == 1


def delayed(kit: NodeKit, queue: str = "q") -> int:
    return kit.node.vhosts["/"].queues[queue].delayed_count


def back_later(kit: NodeKit, client: Client, body: bytes = b"1") -> None:
    """A message in the queue `q` that comes back after 100 ms."""
    client.publish("q", body)
    client.get(no_ack=False)
    channel = next(iter(kit.node.connections)).channels[1]
    assert isinstance(channel, Channel)
    client.send(1, m.BasicNack(channel.tag, requeue=True))


def test_what_is_delayed_counts_towards_the_limit_and_is_purged(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_delayed_retry_type="all", x_delayed_retry_min=100, x_max_length=2, x_overflow="reject-publish")
    back_later(kit, client)
    assert (client.count(), delayed(kit)) == (0, 1)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("q", b"2")
    client.publish("q", b"3")
    assert (len(client.take(m.BasicAck)), len(client.take(m.BasicNack))) == (1, 1)
    assert client.call(m.QueuePurge("q"), m.QueuePurgeOk).message_count == 2
    kit.pass_time(100)
    assert (client.count(), delayed(kit)) == (0, 0)


def test_a_queue_with_a_delayed_message_is_not_empty(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_delayed_retry_type="all", x_delayed_retry_min=100)
    back_later(kit, client)
    assert client.call(m.QueueDelete("q", if_empty=True), m.ChannelClose).reply_code == 406


def test_a_delayed_message_expires_in_time(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("dead")
    client.declare(
        x_delayed_retry_type="all", x_delayed_retry_min=1000, x_message_ttl=300,
        x_dead_letter_exchange="", x_dead_letter_routing_key="dead",
    )  # fmt: skip
    back_later(kit, client)
    kit.pass_time(299)
    assert (client.count("dead"), delayed(kit)) == (0, 1)
    kit.pass_time(1)
    assert (client.count("dead"), delayed(kit)) == (1, 0)


# -- consumer timeout --------------------------------------------------------------------------------------------


def test_what_nobody_acknowledged_in_time_goes_back_and_the_consumer_with_it(kit: NodeKit) -> None:
    slow, other = kit.client(), kit.client()
    slow.declare(x_consumer_timeout=1000)
    slow.call(m.BasicQos(0, 2), m.BasicQosOk)
    slow.call(m.BasicConsume("q", "slow"), m.BasicConsumeOk)
    slow.publish("q", b"1")
    kit.pass_time(700)
    slow.publish("q", b"2")
    slow.deliveries()
    kit.pass_time(300)
    slow.receive()
    assert slow.take(m.BasicCancel) == []  # it is seen at the next look, a quarter of the timeout later at most
    kit.pass_time(300)
    assert [each.consumer_tag for each in slow.take(m.BasicCancel)] == ["slow"]
    other.send(1, m.BasicConsume("q", "c"))
    assert other.deliveries() == [(1, True, b"1")]
    other.events.clear()
    slow.send(1, m.BasicAck(2))  # the other one was in time
    assert slow.events == []
    assert other.count() == 0


def test_who_acknowledges_in_time_is_left_alone(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_consumer_timeout=1000)
    client.call(m.BasicConsume("q", "c"), m.BasicConsumeOk)
    for tag in range(1, 6):
        client.publish("q")
        kit.pass_time(900)
        client.send(1, m.BasicAck(tag))
    assert len(client.deliveries()) == 5
    assert client.events == []


def test_a_client_that_knows_no_cancel_loses_its_channel(kit: NodeKit) -> None:
    client = kit.client(capabilities={})
    client.declare(x_consumer_timeout=1000)
    client.publish("q", b"1")
    assert client.get(no_ack=False) is not None
    kit.pass_time(1500)
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 406
    assert "Timeout value used: 1000 ms" in close.reply_text
    other = kit.client()
    assert other.count() == 1


def test_the_timeout_of_all_queues_is_half_an_hour(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    client.publish("q", b"1")
    assert client.get(no_ack=False) is not None
    kit.pass_time(1_800_000)
    assert client.count() == 0
    kit.pass_time(120_000)
    assert client.count() == 1


def test_consumers_that_share_a_window_take_turns(client: Client) -> None:
    queues = [f"q{number}" for number in range(10)]
    client.send(1, m.BasicQos(0, 1, True))
    for queue in queues:
        client.declare(queue)
        for _ in range(30):
            client.publish(queue, queue.encode())
        client.send(1, m.BasicConsume(queue, consumer_tag=queue))
    served = Counter[bytes]()
    while sum(served.values()) < 100:
        ((tag, _, body),) = client.deliveries()
        served[body] += 1
        client.send(1, m.BasicAck(tag))
    assert len(served) == len(queues)
    assert max(served.values()) - min(served.values()) <= 2
