"""Confirms: in order, one `multiple` where it can be, nacks in their place."""

from __future__ import annotations

import pytest

from harebell.protocol.v091 import Content, Properties, Table, methods as m
from tests.broker.kit import Client, NodeKit


def confirms(client: Client) -> list[tuple[str, int, bool]]:
    found = []
    for _, event in client.events:
        if isinstance(event, (m.BasicAck, m.BasicNack)):
            found.append((event.NAME.removeprefix("basic."), event.delivery_tag, event.multiple))
    client.events.clear()
    return found


def publish(client: Client, *keys: str) -> None:
    """All in one batch."""
    for key in keys:
        client.engine.send_content(1, m.BasicPublish("", key), Properties(), b"x")
    client.pump()


def test_one_multiple_for_a_batch(client: Client) -> None:
    client.declare()
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(client, "q", "nope", "q")
    assert confirms(client) == [("ack", 3, True)]
    publish(client, "q")
    assert confirms(client) == [("ack", 4, False)]


def test_nacks_stand_between_the_acks_of_their_batch(client: Client) -> None:
    client.declare("full", x_max_length=0, x_overflow="reject-publish")
    client.declare("free")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(client, "free", "free", "full", "full", "free", "full")
    assert confirms(client) == [
        ("ack", 2, True), ("nack", 3, False), ("nack", 4, False), ("ack", 5, False), ("nack", 6, False),
    ]  # fmt: skip
    publish(client, "full", "free")
    assert confirms(client) == [("nack", 7, False), ("ack", 8, False)]


def test_an_error_takes_no_confirms_away(client: Client) -> None:
    """What one write published before it is confirmed, then the channel is closed."""
    limited: Table = {"x-max-length": 0, "x-overflow": "reject-publish"}
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    client.call(m.QueueDeclare("full", arguments=limited), m.QueueDeclareOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for exchange, key in (("", "q"), ("", "full"), ("", "q"), ("nope", "q"), ("", "q")):
        client.engine.send_content(1, m.BasicPublish(exchange, key), Properties(), b"x")
    client.pump()
    assert type(client.events[-1][1]) is m.ChannelClose
    assert confirms(client) == [("ack", 1, False), ("nack", 2, False), ("ack", 3, False)]


def test_an_error_confirms_nothing_that_waits_for_the_disk(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("s", x_queue_type="stream")
    client.declare()
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(client, "q", "s")
    for exchange, key in (("", "s"), ("nope", "q")):
        client.engine.send_content(1, m.BasicPublish(exchange, key), Properties(), b"x")
    client.pump()
    kit.run_sync()
    client.receive()
    assert [type(event) for _, event in client.events] == [m.ChannelClose]


def test_a_commit_waits_for_the_disk_and_for_nothing_else(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("s", x_queue_type="stream")
    client.declare()
    client.call(m.TxSelect(), m.TxSelectOk)
    publish(client, "q")
    client.call(m.TxCommit(), m.TxCommitOk)
    publish(client, "s", "q")
    client.send(1, m.TxCommit())
    assert client.events == []
    kit.run_sync()
    client.receive()
    assert [event for _, event in client.events] == [m.TxCommitOk()]


def test_commit_ok_comes_after_the_returns(client: Client) -> None:
    client.call(m.TxSelect(), m.TxSelectOk)
    client.engine.send_content(1, m.BasicPublish("", "nope", mandatory=True), Properties(), b"x")
    client.send(1, m.TxCommit())
    (_, returned), (_, done) = client.events
    assert isinstance(returned, Content)
    assert isinstance(returned.decode_method(), m.BasicReturn)
    assert done == m.TxCommitOk()


def test_a_partial_commit_closes_the_channel(client: Client) -> None:
    client.declare("full", x_max_length=0, x_overflow="reject-publish")
    client.declare()
    client.call(m.TxSelect(), m.TxSelectOk)
    publish(client, "q", "full")
    close = client.call(m.TxCommit(), m.ChannelClose)
    assert (close.reply_code, close.reply_text) == (406, "PRECONDITION_FAILED - partial tx completion")


@pytest.mark.parametrize("arguments", [{"x-queue-type": "stream"}, {"x-max-length": 5}, {}])
def test_a_commit_to_a_queue_that_was_deleted_meanwhile(kit: NodeKit, client: Client, arguments: Table) -> None:
    client.call(m.QueueDeclare("gone", durable=True, arguments=arguments), m.QueueDeclareOk)
    client.call(m.TxSelect(), m.TxSelectOk)
    body = b"x" * 100_000
    for _ in range(100):  # more than a segment holds
        client.publish("gone", body)
    client.call(m.QueueDelete("gone"), m.QueueDeleteOk)
    client.send(1, m.TxCommit())
    kit.run_syncs()
    client.receive()
    assert client.take(m.TxCommitOk)
    assert kit.node.batch.failed is None


def test_a_stream_that_dies_before_it_is_written_counts_as_confirmed(kit: NodeKit, client: Client) -> None:
    """Published and deleted in one batch: there is nothing left to write, so nothing to wait for."""
    client.declare("s", x_queue_type="stream")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.engine.send_content(1, m.BasicPublish("", "s"), Properties(), b"x")
    client.send(1, m.QueueDelete("s", no_wait=True))
    assert confirms(client) == [("ack", 1, False)]


def test_a_stream_that_dies_while_its_sync_is_pending_counts_as_confirmed(kit: NodeKit, client: Client) -> None:
    other = kit.client()
    client.declare("s", x_queue_type="stream")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    publish(client, "s", "s")
    assert confirms(client) == []
    other.call(m.QueueDelete("s"), m.QueueDeleteOk)
    kit.run_sync()
    client.receive()
    assert confirms(client) == [("ack", 2, True)]


def test_one_of_two_streams_dies(kit: NodeKit, client: Client) -> None:
    """The other one still has to be on disk before the confirm."""
    for name in ("s", "t"):
        client.declare(name, x_queue_type="stream")
        client.call(m.QueueBind(name, "amq.fanout", ""), m.QueueBindOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.engine.send_content(1, m.BasicPublish("amq.fanout", ""), Properties(), b"x")
    client.send(1, m.QueueDelete("s", no_wait=True))
    assert confirms(client) == []
    kit.run_sync()
    client.receive()
    assert confirms(client) == [("ack", 1, False)]


@pytest.mark.parametrize("arguments", [{}, {"x-max-length": 5}])
def test_a_classic_queue_that_dies_in_the_batch_counts_as_confirmed(client: Client, arguments: Table) -> None:
    client.call(m.QueueDeclare("gone", arguments=arguments), m.QueueDeclareOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.engine.send_content(1, m.BasicPublish("", "gone"), Properties(), b"x")
    client.send(1, m.QueueDelete("gone", no_wait=True))
    assert confirms(client) == [("ack", 1, False)]


@pytest.mark.parametrize("selected", [m.ConfirmSelect(), m.TxSelect()], ids=lambda method: method.NAME)
@pytest.mark.parametrize("copies", ["CC", "BCC"])
@pytest.mark.parametrize("key", ["nonesuch", "transient"])
def test_a_copy_is_on_disk_before_the_confirm(kit: NodeKit, key: str, copies: str, selected: m.Method) -> None:
    """The queue in CC or BCC is durable, what the routing key names is not."""
    client = kit.client()
    client.declare()
    client.call(m.QueueDeclare("transient"), m.QueueDeclareOk)
    client.send(1, selected)
    kit.run_syncs()
    client.receive()
    client.events.clear()
    client.publish(key, b"1", headers={copies: ["q"]}, delivery_mode=2)
    if isinstance(selected, m.TxSelect):
        client.send(1, m.TxCommit())
    assert client.events == []
    while not client.events:
        kit.run_sync()
        client.receive()
    assert [type(event) for _, event in client.events] in ([m.BasicAck], [m.TxCommitOk])
