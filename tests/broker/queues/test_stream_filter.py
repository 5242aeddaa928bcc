"""Filters of stream consumers: what comes is what was asked for, and all of it, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harebell.broker import slices
from harebell.broker.queues.stream_filter import StreamFilter, stream_filter
from harebell.errors import PreconditionFailed
from harebell.protocol.v091 import FieldValue, Properties, Table, encode_content, methods as m
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled

VALUE = "x-stream-filter-value"
WHERE = "queue 's' in vhost '/'"


@pytest.fixture
def kit(tmp_path: Path) -> Any:
    kit = NodeKit(tmp_path / "data", sync=False)
    yield kit
    kit.stop()


def publish(client: Client, value: FieldValue, body: bytes = b"") -> None:
    client.publish("s", body, headers=None if value is None else {VALUE: value, "other": "x"})


def consume(client: Client, prefetch: int = 100, **arguments: FieldValue) -> None:
    table = {"x-stream-offset": "first", **{name.replace("_", "-"): value for name, value in arguments.items()}}
    client.call(m.BasicQos(0, prefetch), m.BasicQosOk)
    client.send(1, m.BasicConsume("s", "c", arguments=table))
    client.receive()


def seen(client: Client) -> list[bytes]:
    client.receive()
    return [body for *_, body in client.deliveries()]


def fill(kit: NodeKit) -> Client:
    client = kit.client()
    client.declare("s", x_queue_type="stream")
    for body, value in ((b"0", "a"), (b"1", "b"), (b"2", None), (b"3", "a"), (b"4", 5), (b"5", "ab")):
        publish(client, value, body)
    kit.run_syncs()
    return client


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x_selector": "\"x-stream-filter-value\" = 'a'"}, [b"0", b"3"]),
        ({"x_selector": '"x-stream-filter-value" IS NULL'}, [b"2"]),
        ({"x_selector": "\"x-stream-filter-value\" LIKE 'a%'", "x_stream_filter": ["ab", "b"]}, [b"5"]),
        ({"x_selector": "amqp.to = 's' AND other = 'x' AND NOT JMSRedelivered"}, [b"0", b"1", b"3", b"4", b"5"]),
        ({"x_selector": "FALSE"}, []),
        ({"x_selector": " OR ".join(["FALSE"] * 300 + ["TRUE"])}, [b"0", b"1", b"2", b"3", b"4", b"5"]),
    ],
)
def test_selectors(kit: NodeKit, arguments: dict[str, FieldValue], expected: list[bytes]) -> None:
    client = fill(kit)
    consume(client, 100, **arguments)
    kit.node.batch.slices.finish()
    assert seen(client) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [b"0", b"1", b"2", b"3", b"4", b"5"]),
        ({"x_stream_filter": "a"}, [b"0", b"3"]),
        ({"x_stream_filter": ["a", "b"]}, [b"0", b"1", b"3"]),
        ({"x_stream_filter": "a", "x_stream_match_unfiltered": True}, [b"0", b"2", b"3", b"4"]),
        ({"x_stream_filter": "zzz"}, []),
        ({"x_stream_filter": "zzz", "x_stream_match_unfiltered": True}, [b"2", b"4"]),
        ({"x_stream_filter": "a", "x_stream_offset": 1}, [b"3"]),
        ({"x_stream_filter": []}, [b"0", b"1", b"2", b"3", b"4", b"5"]),
        ({"x_stream_match_unfiltered": True}, [b"0", b"1", b"2", b"3", b"4", b"5"]),
    ],
)
def test_what_is_wanted_comes(kit: NodeKit, arguments: Any, expected: list[bytes]) -> None:
    client = fill(kit)
    consume(client, **arguments)
    assert seen(client) == expected


def test_the_window_counts_what_came(kit: NodeKit) -> None:
    client = fill(kit)
    consume(client, 1, x_stream_filter="a")
    assert [(tag, body) for tag, _, body in client.deliveries()] == [(1, b"0")]
    client.send(1, m.BasicAck(1))
    assert seen(client) == [b"3"]
    client.send(1, m.BasicAck(2))
    publish(client, "b", b"6")
    publish(client, "a", b"7")
    kit.run_syncs()
    assert seen(client) == [b"7"]


@pytest.mark.pure
def test_a_long_way_between_two_messages_is_gone_in_steps(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "CHECK", 10)
    kit.stopwatch.step = 1.0
    client, other = kit.client(), kit.client()
    client.declare("s", x_queue_type="stream")
    for number in range(100):
        publish(client, "a" if number == 99 else "b", b"%d" % number)
    kit.run_syncs()
    client.send(1, m.BasicQos(0, 1))
    consume(client, 4, x_stream_filter="a")
    assert seen(client) == []
    assert other.count("s") == 100  # it has its turn meanwhile
    kit.run_syncs()
    assert seen(client) == [b"99"]


def test_a_consumer_that_goes_while_the_log_is_searched(kit: NodeKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "CHECK", 1)
    client = fill(kit)
    kit.stopwatch.step = 1.0
    consume(client, x_stream_filter="zzz")
    client.send(1, m.BasicCancel("c", no_wait=True))
    kit.run_syncs()
    consume(client, x_stream_filter="zzz")
    client.send(1, m.QueueDelete("s"))
    assert isinstance(client.events[-2][1], m.QueueDeleteOk)
    client.events.clear()
    kit.run_syncs()
    assert seen(client) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-stream-filter": 1}, "invalid arg 'x-stream-filter' for queue 's' in vhost '/'"),
        ({"x-stream-filter": ["a", 1]}, "invalid arg 'x-stream-filter'"),
        ({"x-stream-filter": "a", "x-stream-match-unfiltered": "yes"}, "invalid arg 'x-stream-match-unfiltered'"),
    ],
)
def test_refusals(kit: NodeKit, arguments: Table, text: str) -> None:
    client = fill(kit)
    client.call(m.BasicQos(0, 1), m.BasicQosOk)
    client.send(1, m.BasicConsume("s", "c", arguments=arguments))
    (close,) = client.take(m.ChannelClose)
    assert close.reply_code == 406
    assert text in close.reply_text


@pytest.mark.parametrize("name", ["x-stream-filter", "x-stream-match-unfiltered"])
def test_other_queues_have_no_filters(client: Client, name: str) -> None:
    client.declare()
    client.send(1, m.BasicConsume("q", "c", arguments={name: "a"}))
    (close,) = client.take(m.ChannelClose)
    assert close.reply_text.endswith(
        f"invalid arg '{name}' for queue 'q' in vhost '/' of queue type rabbit_classic_queue"
    )


def test_the_size_of_a_filter_is_checked_and_means_nothing_here(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("s", x_queue_type="stream", x_stream_filter_size_bytes=16)
    for size, problem in ((15, "{value_too_small,15}"), (256, "{value_too_large,256}"), (-1, "{value_negative,-1}")):
        arguments: Table = {"x-queue-type": "stream", "x-stream-filter-size-bytes": size}
        client = kit.client()
        client.send(1, m.QueueDeclare("t", durable=True, arguments=arguments))
        (close,) = client.take(m.ChannelClose)
        assert close.reply_text.endswith(problem)


VALUES = st.one_of(st.none(), st.sampled_from(["a", "b", "ab", VALUE, ""]), st.integers(0, 3), st.binary(max_size=2))


@given(
    value=VALUES,
    others=st.dictionaries(st.sampled_from(["a", VALUE + "2", "h"]), st.sampled_from(["a", "b", VALUE, 1]), max_size=3),
    wanted=st.frozensets(st.sampled_from(["a", "b", "ab", ""])),
    unfiltered=st.booleans(),
    body=st.sampled_from([b"", VALUE.encode(), b"\x15" + VALUE.encode() + b"S\0\0\0\x01a"]),
    nested=st.booleans(),
)
@settings(max_examples=scaled(100))
def test_it_is_exact(
    value: FieldValue,
    others: dict[str, FieldValue],
    wanted: frozenset[str],
    unfiltered: bool,
    body: bytes,
    nested: bool,
) -> None:
    """Whatever else is in the message, also what looks like the header."""
    headers: dict[str, FieldValue] = dict(others)
    if nested:
        headers["t"] = {VALUE: "a"}
    if value is not None:
        headers[VALUE] = value
    frames = encode_content(1, Properties(headers=headers or None), body, 131_072)
    expected = value in wanted if isinstance(value, str) else unfiltered
    assert StreamFilter(wanted, unfiltered=unfiltered).wants(frames) == expected


def test_no_filter() -> None:
    assert stream_filter({}, WHERE) is None
    with pytest.raises(PreconditionFailed):
        stream_filter({"x-stream-filter": None}, WHERE)
