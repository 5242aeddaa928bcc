"""Messages of one dialect in the other: every property, both ways, in memory and on every kind of queue."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from harebell.broker.message import Address
from harebell.broker.v010.messages import ForeignContent, Form, content_of, is_exact, takes_shape
from harebell.errors import LocalProtocolError
from harebell.protocol import v010, v091
from harebell.protocol.v010 import (
    DeliveryProperties,
    MessageProperties,
    commands as c,
    encode_content,
    encode_header,
)
from harebell.protocol.v010.shapes import TEXT_ID, shape_of
from harebell.protocol.v010.typed_values import StructValue
from harebell.protocol.v091 import Properties, methods as m
from harebell.protocol.v091.content import stored_content
from tests.broker.v010.kit import ALL, Client, Kit
from tests.protocol.conversion.samples import ID, IDS, PAIRS
from tests.protocol.v010.strategies import of_compound

ADDRESS = Address("amq.direct", "key")


def native(delivery: DeliveryProperties, message: MessageProperties, *more: bytes) -> v010.Content:
    header = encode_header([delivery, message]) + b"".join(more)
    return v010.Content(0, b"", encode_content(0, header, b"body", 65_535), 4)


@given(of_compound(DeliveryProperties), of_compound(MessageProperties))
def test_any_message_of_0_10_has_a_form_of_0_9_1(delivery: Any, message: Any) -> None:
    try:
        content = native(delivery, message)
    except LocalProtocolError:
        return
    frames = ForeignContent.of(content).frames
    stored_content(1, frames).decode_properties()
    if is_exact(content):
        again = content_of(Address(delivery.exchange or "", delivery.routing_key or ""), stored_content(1, frames))
        left, right = again.message_properties, content.message_properties
        for name in ("message_id", "correlation_id", "content_type", "content_encoding", "user_id", "app_id"):
            assert getattr(left, name) == getattr(right, name), name
        assert (left.application_headers or {}) == (right.application_headers or {})


def identified(text: str, **rest: Any) -> v010.Content:
    """A message whose message-id is a text."""
    return native(DeliveryProperties(), MessageProperties(application_headers={"h": 1, TEXT_ID: text}, **rest))


@given(st.text(max_size=9), st.text(max_size=9), st.sampled_from([{}, {"correlation_id": b"1", "user_id": b"guest"}]))
def test_texts_of_one_shape(text: str, another: str, rest: dict[str, Any]) -> None:
    first, other = identified(text, **rest), identified(another, **rest)
    shape = shape_of(first.frames)
    if shape is None or TEXT_ID not in shape.names:
        assert not text
        return
    assert takes_shape(first, shape)
    assert shape.fits(other.frames) is (len(text.encode()) == len(another.encode()))
    if shape.fits(other.frames):
        assert shape.filled(shape.values(other.frames)) == other.frames[: shape.size]
        together, alone = Form(first, shape).to_v091, Form(other).to_v091
        assert together.properties(other.frames) == alone.properties(other.frames)
        assert ForeignContent(0, other.frames, 4, Form(first, shape)).decode_properties().message_id == another


ENTRY = b"\x17" + TEXT_ID.encode() + b"\x95\0\2"  # how a message-id of two letters begins


@pytest.mark.parametrize(
    "message",
    [
        MessageProperties(application_headers={"h": ENTRY + b"12"}),
        MessageProperties(application_headers={TEXT_ID: "12", "h": ENTRY + b"12"}),
        MessageProperties(application_headers={TEXT_ID: "12", "h": 1}),
        MessageProperties(application_headers={TEXT_ID: b"12"}),
        MessageProperties(application_headers={TEXT_ID: 12}),
        MessageProperties(application_headers={TEXT_ID: "1" * 256}),
        MessageProperties(message_id=ID, application_headers={TEXT_ID: "12"}),
    ],
)
def test_what_is_no_text_of_a_message_id(message: MessageProperties) -> None:
    content = native(DeliveryProperties(), message)
    shape = shape_of(content.frames)
    assert shape is None or TEXT_ID not in shape.names or not takes_shape(content, shape)


def test_an_origin_comes_back_as_it_is() -> None:
    unknown = b"\0\0\0\x06\x77\x01\0\0ab"
    content = native(DeliveryProperties(exchange=""), MessageProperties(application_headers={"u": ID}), unknown)
    assert not is_exact(content)
    again = content_of(ADDRESS, stored_content(1, ForeignContent.of(content).frames), content.header)
    assert again.header == content.header
    assert again.body == b"body"


# -- between clients ----------------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "durable": {"durable": True},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
    "limited": {"arguments": {"x-max-length": 1000}},
    "stream": {"durable": True, "arguments": {"x-queue-type": "stream"}},
}
FIRST: v091.Table = {"x-stream-offset": "first"}


def declare(kit: Kit, kind: str) -> tuple[Any, Client]:
    """A client of each dialect, and a queue that both use."""
    client, older = kit.peer().session(), kit.client()
    given_kind = KINDS[kind]
    older.send(1, m.QueueDeclare("q", **given_kind))
    older.send(1, m.BasicQos(0, 100, False))
    older.events.clear()
    return older, client


def without_offset(headers: Any) -> dict[str, object]:
    return {name: value for name, value in (headers or {}).items() if name != "x-stream-offset"}


@pytest.mark.repeats
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("old_form", "delivery", "message"), PAIRS, ids=IDS)
def test_interoperation(
    kit: Kit, kind: str, old_form: Properties, delivery: DeliveryProperties, message: MessageProperties
) -> None:
    """From 0-9-1 to both, from 0-10 to both: each gets what its dialect calls it."""
    older, client = declare(kit, kind)
    arguments = dict(FIRST) if kind == "stream" else {}
    older.engine.send_content(1, m.BasicPublish("", "q"), old_form, b"old")
    older.pump()
    sent_delivery = DeliveryProperties.decode(delivery.encode())
    sent_delivery.routing_key = "q"
    client.wait(client.send((c.MessageTransfer(sync=True), [sent_delivery, message], b"new")))
    kit.settle()
    while kit.node.vhosts["/"].queues["q"].message_count < 2:
        kit.run_sync()
    client.subscribe("q", size=ALL, acquire_mode=1, arguments=arguments)
    shown = client.taken()
    assert [content.body for _, content in shown] == [b"old", b"new"]
    for _, content in shown:
        found = content.message_properties
        assert found.message_id == message.message_id
        headers = without_offset(found.application_headers)
        assert headers == (message.application_headers or {})
        for name in ("correlation_id", "content_type", "content_encoding", "user_id", "app_id"):
            assert getattr(found, name) == getattr(message, name), name
        sent = content.delivery_properties
        assert (sent.delivery_mode, sent.priority, sent.timestamp) == (
            delivery.delivery_mode, delivery.priority, delivery.timestamp,
        )  # fmt: skip
        assert (sent.exchange, sent.routing_key) == ("", "q")
    older.send(1, m.BasicConsume("q", "c", arguments=arguments))
    kit.settle()
    older.receive()
    taken = [event for _, event in older.events if isinstance(event, v091.Content)]
    assert [each.body for each in taken] == [b"old", b"new"]
    for each in taken:
        properties = each.decode_properties()
        properties.headers = cast("v091.Table", without_offset(properties.headers))
        expected = Properties.decode(old_form.encode())
        expected.headers = expected.headers or {}
        assert properties.encode() == expected.encode()


def test_the_original_bytes_are_handed_on(kit: Kit) -> None:
    """In memory and from the disk: unknown structs, types that 0-9-1 does not have, properties of 0-10 alone."""
    client = kit.peer().session()
    client.call(c.QueueDeclare("q", durable=True))
    delivery = DeliveryProperties(routing_key="q", exchange="", delivery_mode=2, resume_id="r")
    message = MessageProperties(4, application_headers={"u": ID, "s": StructValue(0x0604, b"\0\0")})
    header = encode_header([message, delivery]) + b"\0\0\0\x06\x77\x01\0\0ab"
    client.wait(client.send((c.MessageTransfer(sync=True), header, b"body")))
    queue: Any = kit.node.vhosts["/"].queues["q"]
    client.subscribe("q", acquire_mode=1)
    assert [content.header for _, content in client.taken()] == [header]
    (stored,) = queue.journal.peek(0, 1) if queue.journal.paged else [_stored_again(queue)]
    assert client.peer.connection.channels[0].outgoing.native(stored.message).header == header


def _stored_again(queue: Any) -> Any:
    """The message as a restart would read it."""
    queue.batch.write()
    cursor = queue.journal.log.read(0)
    return queue.journal.held(cursor.read(1)[0])
