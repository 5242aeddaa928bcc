"""Properties of 0-9-1, and the same as structs of 0-10."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import NAMESPACE_OID, UUID, uuid5

from harebell.protocol.v010 import DeliveryProperties, MessageProperties, structs as s
from harebell.protocol.v010.typed_values import Int32
from harebell.protocol.v091 import Properties

NOON = datetime(2007, 6, 1, 12, tzinfo=UTC)
ID = UUID("12345678-1234-5678-1234-567812345678")

PAIRS: list[tuple[Properties, DeliveryProperties, MessageProperties]] = [
    (Properties(), DeliveryProperties(), MessageProperties()),
    (Properties(content_type="a/b"), DeliveryProperties(), MessageProperties(content_type="a/b")),
    (Properties(content_encoding="gzip"), DeliveryProperties(), MessageProperties(content_encoding="gzip")),
    (Properties(delivery_mode=2), DeliveryProperties(delivery_mode=2), MessageProperties()),
    (Properties(delivery_mode=1), DeliveryProperties(delivery_mode=1), MessageProperties()),
    (Properties(priority=7), DeliveryProperties(priority=7), MessageProperties()),
    (Properties(expiration="60000"), DeliveryProperties(ttl=60_000), MessageProperties()),
    (Properties(timestamp=NOON), DeliveryProperties(timestamp=NOON), MessageProperties()),
    (Properties(correlation_id="c"), DeliveryProperties(), MessageProperties(correlation_id=b"c")),
    (Properties(user_id="guest"), DeliveryProperties(), MessageProperties(user_id=b"guest")),
    (Properties(app_id="app"), DeliveryProperties(), MessageProperties(app_id=b"app")),
    (Properties(message_id=str(ID)), DeliveryProperties(), MessageProperties(message_id=ID)),
    (
        Properties(message_id="ID:" + str(ID)),
        DeliveryProperties(),
        MessageProperties(message_id=ID, application_headers={"x-amqp-0-9-1.message-id": "ID:" + str(ID)}),
    ),
    (
        Properties(message_id="order 7"),
        DeliveryProperties(),
        MessageProperties(
            message_id=uuid5(NAMESPACE_OID, "order 7"),
            application_headers={"x-amqp-0-9-1.message-id": "order 7"},
        ),
    ),
    (Properties(reply_to="q"), DeliveryProperties(), MessageProperties(reply_to=s.ReplyTo("", "q"))),
    (
        Properties(reply_to="k", headers={"x-amqp-0-10.reply-exchange": "x"}),
        DeliveryProperties(),
        MessageProperties(reply_to=s.ReplyTo("x", "k"), application_headers={}),
    ),
    (Properties(type="t"), DeliveryProperties(), MessageProperties(application_headers={"x-jms-type": "t"})),
    (
        Properties(headers={"n": 1, "s": "x", "l": [True, None], "t": {"f": 1.5}}),
        DeliveryProperties(),
        MessageProperties(application_headers={"n": Int32(1), "s": "x", "l": [True, None], "t": {"f": 1.5}}),
    ),
    (
        Properties(headers={"x-amqp-0-10.correlation-id": b"\xff\xfe", "x-amqp-0-10.app-id": b"a" * 300}),
        DeliveryProperties(),
        MessageProperties(correlation_id=b"\xff\xfe", app_id=b"a" * 300, application_headers={}),
    ),
]
IDS = [repr(pair[0]) for pair in PAIRS]
