"""Each name of a selector: what it is of a message that has it, and of one that has nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from harebell.protocol.v091.typed_values import Float32, Int8, LongString, UInt32
from harebell.routing.selectors.identifiers import getter
from tests.routing.selectors.facts import Message

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = Message(
    {"colour": "red", "qpid.subject": "s"}, exchange="news", routing_key="k", deliveries=2, expires=1234,
    delivery_mode=2, priority=7, message_id="m", correlation_id="c", type="t", timestamp=TIME, reply_to="r",
    user_id="u",
)  # fmt: skip


@pytest.mark.parametrize(
    "name, full, empty",
    [
        ("colour", "red", None),
        ("JMSDeliveryMode", "PERSISTENT", "NON_PERSISTENT"),
        ("JMSPriority", 7, 0),
        ("JMSMessageID", "m", None),
        ("JMSCorrelationID", "c", None),
        ("JMSType", "t", None),
        ("JMSTimestamp", 1_767_323_045_000, 0),
        ("JMSExpiration", 1234, 0),
        ("JMSDestination", "news", "q"),
        ("JMSReplyTo", "r", None),
        ("JMSRedelivered", True, False),
        ("JMSXDeliveryCount", 3, 1),
        ("JMSXUserID", "u", None),
        ("amqp.delivery_mode", "PERSISTENT", "NON_PERSISTENT"),
        ("amqp.priority", 7, 0),
        ("amqp.message_id", "m", None),
        ("amqp.correlation_id", "c", None),
        ("amqp.creation_time", 1_767_323_045_000, 0),
        ("amqp.absolute_expiry_time", 1234, 0),
        ("amqp.to", "news", "q"),
        ("amqp.reply_to", "r", None),
        ("amqp.redelivered", True, False),
        ("amqp.delivery_count", 2, 0),
        ("amqp.durable", True, False),
        ("amqp.subject", "s", None),
        ("amqp.jms_type", "t", None),
    ],
)
def test_names(name: str, full: object, empty: object) -> None:
    value = getter(name)
    assert value is not None
    for message, expected in ((FULL, full), (Message(), empty)):
        found = value(message)
        assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    "name, message, expected",
    [
        ("JMSType", Message({"qpid.subject": "s"}), "s"),
        ("amqp.subject", Message({"qpid.subject": None}, type="t"), "t"),
        ("amqp.reply_to", Message({"x-amqp-0-10.reply-exchange": "e"}, reply_to="k"), "e/k"),
        ("JMSTimestamp", Message(timestamp=2**40), 2**40 * 1000),
        ("JMSXGroupID", Message({"JMSXGroupID": "g"}), "g"),
        ("JMS_QPID_DESTTYPE", Message({"JMS_QPID_DESTTYPE": 1}), 1),
        ("x-my header", Message({"x-my header": True}), True),
        ("amqpx", Message({"amqpx": 1}), 1),
    ],
)
def test_names_in_particular_messages(name: str, message: Message, expected: object) -> None:
    value = getter(name)
    assert value is not None
    assert value(message) == expected


@pytest.mark.parametrize("name", ["JMS", "JMSFoo", "JMStype", "amqp.", "amqp.foo", "amqp.JMSType"])
def test_names_of_nothing(name: str) -> None:
    assert getter(name) is None


@pytest.mark.parametrize(
    "value, expected",
    [
        ("text", "text"),
        (LongString(b"text"), "text"),
        (b"text", "text"),
        (b"\xff", "\udcff"),
        (True, True),
        (7, 7),
        (Int8(-7), -7),
        (UInt32(2**32 - 1), 2**32 - 1),
        (0.5, 0.5),
        (Float32(0.5), 0.5),
        (Decimal("0.5"), 0.5),
        (TIME, 1_767_323_045),
        (TIME.replace(tzinfo=None), 1_767_323_045),
        (None, None),
        ([1], None),
        ({"a": 1}, None),
    ],
)
def test_values_of_headers(value: Any, expected: object) -> None:
    header = getter("h")
    assert header is not None
    found = header(Message({"h": value}))
    assert (found, type(found)) == (expected, type(expected))
    assert header(Message({"other": value})) is None
