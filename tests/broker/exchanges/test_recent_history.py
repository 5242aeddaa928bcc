"""Exchanges that keep messages: for a while, or for who is bound later."""

from __future__ import annotations

from typing import Any

from harebell.protocol.v091 import methods as m
from tests.broker.kit import Client, NodeKit


def delayed(client: Client, kind: str = "direct", **arguments: Any) -> None:
    table = {"x-delayed-type": kind, **arguments}
    client.call(m.ExchangeDeclare("x", "x-delayed-message", arguments=table), m.ExchangeDeclareOk)


def test_a_message_comes_after_its_delay(kit: NodeKit) -> None:
    client = kit.client()
    delayed(client)
    client.declare()
    client.call(m.QueueBind("q", "x", "k"), m.QueueBindOk)
    client.publish("k", b"late", "x", headers={"x-delay": 200, "a": 1})
    client.publish("k", b"soon", "x", headers={"x-delay": 100})
    client.publish("k", b"now", "x")
    assert client.count() == 1
    kit.pass_time(99)
    assert client.count() == 1
    kit.pass_time(1)
    assert client.count() == 2
    kit.pass_time(100)
    got = [client.get() for _ in range(3)]
    assert [each.body for each in got if each] == [b"now", b"soon", b"late"]
    assert got[2] is not None
    assert got[2].decode_properties().headers == {"a": 1, "x-delay": -200}


def test_the_time_to_live_counts_from_the_release(kit: NodeKit) -> None:
    client = kit.client()
    delayed(client)
    client.declare()
    client.call(m.QueueBind("q", "x", "k"), m.QueueBindOk)
    client.publish("k", b"1", "x", headers={"x-delay": 100}, expiration="50")
    kit.pass_time(149)
    assert client.count() == 1
    kit.pass_time(1)
    assert client.count() == 0


def test_bindings_count_when_the_time_is_over_and_a_deleted_exchange_forgets(kit: NodeKit) -> None:
    client = kit.client()
    delayed(client)
    client.publish("k", b"1", "x", headers={"x-delay": 100})
    client.declare()
    client.call(m.QueueBind("q", "x", "k"), m.QueueBindOk)
    kit.pass_time(100)
    assert client.count() == 1
    client.publish("k", b"2", "x", headers={"x-delay": 100})
    client.call(m.ExchangeDelete("x"), m.ExchangeDeleteOk)
    kit.pass_time(100)
    assert client.count() == 1


def test_dead_letters_are_delayed_too(kit: NodeKit) -> None:
    client = kit.client()
    delayed(client)
    client.declare(x_dead_letter_exchange="x")
    client.declare("again")
    client.call(m.QueueBind("again", "x", "q"), m.QueueBindOk)
    client.publish("q", b"1", headers={"x-delay": 100})
    assert client.get(no_ack=False) is not None
    client.send(1, m.BasicReject(1, requeue=False))
    assert client.count("again") == 0
    kit.pass_time(100)
    assert client.count("again") == 1


def test_a_newly_bound_queue_gets_what_the_exchange_remembers(kit: NodeKit) -> None:
    client = kit.client()
    history = m.ExchangeDeclare("x", "x-recent-history", arguments={"x-recent-history-length": 2})
    client.call(history, m.ExchangeDeclareOk)
    for number in range(3):
        client.publish("", b"%d" % number, "x", expiration="100" if number == 2 else None)
    client.declare()
    client.call(m.QueueBind("q", "x", ""), m.QueueBindOk)
    assert client.count() == 2
    kit.pass_time(100)
    assert client.count() == 1
    got = client.get()
    assert got is not None
    assert got.body == b"1"
    client.call(m.QueueBind("q", "x", ""), m.QueueBindOk)  # the same binding again is no new one
    assert client.count() == 0
