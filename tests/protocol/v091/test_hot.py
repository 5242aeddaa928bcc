from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from harebell import errors
from harebell.protocol.v091 import hot, methods as m
from harebell.protocol.v091.codec import MALFORMED, encode_method

names = st.text(max_size=60)
tags = st.integers(0, 2**64 - 1)
channels = st.integers(1, 65535)


@given(channels, tags, st.booleans(), st.booleans())
def test_acknowledgements_are_those_of_the_methods(channel: int, tag: int, multiple: bool, requeue: bool) -> None:
    frames = hot.ClientFrames(channel)
    assert frames.ack(tag, multiple) == encode_method(channel, m.BasicAck(tag, multiple))
    assert frames.nack(tag, multiple, requeue) == encode_method(channel, m.BasicNack(tag, multiple, requeue))
    assert frames.reject(tag, requeue) == encode_method(channel, m.BasicReject(tag, requeue))


@given(channels, names, names, st.booleans())
def test_a_publish_is_that_of_the_method_the_second_time_too(
    channel: int, exchange: str, key: str, mandatory: bool
) -> None:
    frames = hot.ClientFrames(channel)
    expected = encode_method(channel, m.BasicPublish(exchange, key, mandatory))
    assert frames.publish(exchange, key, mandatory) == expected
    assert frames.publish(exchange, key, mandatory) == expected


def test_a_name_that_changes_its_meaning() -> None:
    renamed: dict[str, str] = {}
    frames = hot.ClientFrames(1, renamed)
    assert frames.publish("", "q", False) == encode_method(1, m.BasicPublish("", "q"))
    renamed["q"] = "amq.gen-2"
    frames.forget()
    assert frames.publish("", "q", False) == encode_method(1, m.BasicPublish("", "amq.gen-2"))
    assert frames.publish("e", "q", False) == encode_method(1, m.BasicPublish("e", "q"))


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(errors.LocalProtocolError, match="routing_key"):
        hot.ClientFrames(1).publish("", "k" * 256, False)


@given(st.lists(st.tuples(names, tags, st.booleans(), names, names), max_size=5))
def test_delivers_read_as_the_methods_do(delivers: list[tuple[str, int, bool, str, str]]) -> None:
    reader = hot.DeliverReader()
    for consumer_tag, tag, redelivered, exchange, key in delivers * 2:
        payload = m.BasicDeliver(consumer_tag, tag, redelivered, exchange, key).encode()
        assert reader.read(payload) == (consumer_tag.encode(), tag, redelivered, exchange, key)


@example(b"")
@given(st.binary(max_size=40))
def test_a_malformed_deliver_is_a_protocol_error(rest: bytes) -> None:
    payload = hot.DELIVER + rest
    try:
        method = m.BasicDeliver.decode(payload)
    except MALFORMED:
        with pytest.raises(errors.RemoteProtocolError, match="502"):
            hot.DeliverReader().read(payload)
    else:
        assert hot.DeliverReader().read(payload)[1] == method.delivery_tag


@pytest.mark.pure
def test_the_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "MAX_CACHED", 10)
    frames, reader = hot.ClientFrames(1), hot.DeliverReader()
    for n in range(100):
        frames.publish("x", str(n), False)
        reader.read(m.BasicDeliver("c", 1, False, "x", str(n)).encode())
    assert len(frames.known) <= 10
    assert len(reader.names) <= 10


def test_a_queue_that_was_named_anew_is_published_to_by_its_new_name() -> None:
    renamed: dict[str, str] = {}
    frames = hot.ClientFrames(1, renamed)
    assert frames.publish("", "old", False) == encode_method(1, m.BasicPublish("", "old"))
    renamed["old"] = "new"
    frames.forget()
    assert frames.publish("", "old", False) == encode_method(1, m.BasicPublish("", "new"))
    assert frames.publish("exchange", "old", False) == encode_method(1, m.BasicPublish("exchange", "old"))
