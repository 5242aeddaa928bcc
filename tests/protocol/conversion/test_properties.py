"""Properties of messages in the other dialect: one by one, and any of them, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given

from harebell.errors import LocalProtocolError
from harebell.protocol import v010
from harebell.protocol.conversion.properties import from_v091, header_of, properties_of
from harebell.protocol.v010 import DeliveryProperties, MessageProperties, encode_content, encode_header, structs as s
from harebell.protocol.v091 import Properties
from tests.protocol.conversion.samples import ID, IDS, PAIRS
from tests.protocol.v091.strategies import properties as any_properties


def content(header: bytes) -> v010.Content:
    return v010.Content(0, b"", encode_content(0, header, b"body", 65_535), 4)


@pytest.mark.parametrize(("old_form", "delivery", "message"), PAIRS, ids=IDS)
def test_from_0_9_1(old_form: Properties, delivery: DeliveryProperties, message: MessageProperties) -> None:
    expected = DeliveryProperties.decode(delivery.encode())
    expected.exchange, expected.routing_key = "amq.direct", "key"
    assert from_v091("amq.direct", "key", old_form) == (expected, message)


@pytest.mark.parametrize(("old_form", "delivery", "message"), PAIRS, ids=IDS)
def test_to_0_9_1(old_form: Properties, delivery: DeliveryProperties, message: MessageProperties) -> None:
    found, exact = properties_of(content(encode_header([delivery, message])))
    assert exact
    assert found.encode() == old_form.encode() or (not old_form.headers and found.headers == {})


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", "\u0661", "9" * 20])
def test_an_expiration_that_is_no_number_is_dropped(text: str) -> None:
    assert from_v091("", "", Properties(expiration=text))[0].ttl is None


def test_a_reply_exchange_of_another_type_is_no_exchange() -> None:
    given_properties = Properties(reply_to="k", headers={"x-amqp-0-10.reply-exchange": 5})
    assert from_v091("", "", given_properties)[1].reply_to == s.ReplyTo("", "k")


def test_a_reply_to_that_is_no_text_is_empty() -> None:
    message = MessageProperties(reply_to=s.ReplyTo("\udcff", "\udcff"))
    found, _ = properties_of(content(header_of(DeliveryProperties(), message)))
    assert (found.reply_to, found.headers) == ("", None)


INEXACT: list[tuple[DeliveryProperties, MessageProperties]] = [
    (DeliveryProperties(resume_id="r"), MessageProperties()),
    (DeliveryProperties(ttl=1 << 60), MessageProperties()),
    (DeliveryProperties(), MessageProperties(content_length=4)),
    (DeliveryProperties(), MessageProperties(content_type="\udcff")),
    (DeliveryProperties(), MessageProperties(application_headers={"u": ID})),
]


@pytest.mark.parametrize(("delivery", "message"), INEXACT, ids=repr)
def test_what_0_9_1_cannot_say_is_not_exact(delivery: DeliveryProperties, message: MessageProperties) -> None:
    assert not properties_of(content(header_of(delivery, message)))[1]


@given(any_properties)
def test_any_message_of_0_9_1_comes_back(given_properties: Properties) -> None:
    given_properties.reserved = None  # 0-9's cluster-id has no place in 0-10
    if given_properties.expiration is not None:
        given_properties.expiration = "1234"
    try:
        expected = Properties.decode(given_properties.encode())
    except LocalProtocolError:
        return
    found, _ = properties_of(content(header_of(*from_v091("amq.direct", "key", expected))))
    for name in ("content_type", "content_encoding", "delivery_mode", "priority", "expiration", "timestamp", "user_id"):
        assert getattr(found, name) == getattr(expected, name), name
    assert (found.correlation_id, found.app_id, found.message_id) == (
        expected.correlation_id, expected.app_id, expected.message_id,
    )  # fmt: skip
    assert found.reply_to == expected.reply_to
    assert (found.type, found.headers or {}) == (expected.type, expected.headers or {})
