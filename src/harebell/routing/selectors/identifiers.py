"""The names in a selector: what each is of a message.

    headers            by their names; a name with other characters than letters, digits, _, $ and dots in double quotes
    JMSDeliveryMode    amqp.delivery_mode         'PERSISTENT' or 'NON_PERSISTENT'
    JMSPriority        amqp.priority              0 where the message has none
    JMSMessageID       amqp.message_id            the property
    JMSCorrelationID   amqp.correlation_id        the property
    JMSType                                       the property type, or the header qpid.subject
    JMSTimestamp       amqp.creation_time         the property timestamp in milliseconds since 1970, or 0
    JMSExpiration      amqp.absolute_expiry_time  when it expires, in milliseconds since 1970, or 0
    JMSDestination     amqp.to                    the exchange it was published to; for the default one, the routing key
    JMSReplyTo         amqp.reply_to              the property; in AMQP 0-10, of an exchange with a name, EXCHANGE/KEY
    JMSRedelivered     amqp.redelivered           whether it was delivered before
    JMSXDeliveryCount                             how often, this time included
    JMSXUserID                                    the property user_id
                       amqp.delivery_count        how often it was delivered before
                       amqp.durable               whether it is persistent
                       amqp.subject               the header qpid.subject, or the property type
                       amqp.jms_type              the property type

Rules (Qpid's C++ broker, where it has the name):

- A property or header that the message does not have is unknown, unless a line above says otherwise.
- Other names that begin with "amqp.", and with "JMS" but not with "JMSX" or "JMS_", are refused: Qpid's broker takes
  them for unknown, and such a selector never selects anything.
- Of headers, truths, numbers and texts have a value. Byte strings are texts. Decimals are approximate numbers.
  Timestamps are seconds since 1970. Tables, arrays and empty ones (void) are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, Protocol, TypeAlias

from harebell.protocol.v091 import Properties
from harebell.routing.selectors.values import Value

__all__ = ["Facts", "Getter", "getter"]

SUBJECT: Final = "qpid.subject"
REPLY_EXCHANGE: Final = "x-amqp-0-10.reply-exchange"  # where `protocol.conversion` keeps it
EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Facts(Protocol):
    """What a selector can ask of a message.

    deliveries  how often it was delivered before
    expires     in milliseconds since 1970; 0: never
    """

    @property
    def properties(self) -> Properties: ...
    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def expires(self) -> int: ...


Getter: TypeAlias = "Callable[[Facts], Value]"


def getter(name: str) -> Getter | None:
    """What tells the value of a name; None for a name that no message can have."""
    known = _KNOWN.get(name)
    if known is not None:
        return known
    if name.startswith("amqp.") or (name.startswith("JMS") and name[3:4] not in ("X", "_")):
        return None

    def header(facts: Facts) -> Value:
        headers = facts.properties.headers
        value = None if headers is None else headers.get(name)
        return value if type(value) is str or value is None else _value(value)

    return header


def _value(value: object) -> Value:
    match value:
        case bool():
            return value
        case int():
            return int(value)
        case float() | Decimal():
            return float(value)
        case str():
            return str(value)
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case datetime():
            return _seconds(value)
    return None


def _seconds(value: datetime | int) -> int:
    if isinstance(value, int):
        return value
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int((aware - EPOCH).total_seconds())


def _subject(facts: Facts) -> Value:
    subject = (facts.properties.headers or {}).get(SUBJECT)
    return None if subject is None else _value(subject)


def _type(facts: Facts) -> Value:
    return facts.properties.type


def _delivery_mode(facts: Facts) -> Value:
    return "PERSISTENT" if facts.properties.delivery_mode == 2 else "NON_PERSISTENT"


def _creation_time(facts: Facts) -> Value:
    timestamp = facts.properties.timestamp
    return 0 if timestamp is None else _seconds(timestamp) * 1000


def _reply_to(facts: Facts) -> Value:
    properties = facts.properties
    exchange = (properties.headers or {}).get(REPLY_EXCHANGE)
    return f"{exchange}/{properties.reply_to}" if isinstance(exchange, str) else properties.reply_to


def _either(one: Getter, other: Getter) -> Getter:
    def value(facts: Facts) -> Value:
        first = one(facts)
        return other(facts) if first is None else first

    return value


_PROPERTIES: Final[Mapping[str, tuple[str, Getter]]] = {
    "amqp.delivery_mode": ("JMSDeliveryMode", _delivery_mode),
    "amqp.priority": ("JMSPriority", lambda facts: facts.properties.priority or 0),
    "amqp.message_id": ("JMSMessageID", lambda facts: facts.properties.message_id),
    "amqp.correlation_id": ("JMSCorrelationID", lambda facts: facts.properties.correlation_id),
    "amqp.creation_time": ("JMSTimestamp", _creation_time),
    "amqp.absolute_expiry_time": ("JMSExpiration", lambda facts: facts.expires),
    "amqp.to": ("JMSDestination", lambda facts: facts.exchange or facts.routing_key),
    "amqp.reply_to": ("JMSReplyTo", _reply_to),
    "amqp.redelivered": ("JMSRedelivered", lambda facts: facts.deliveries > 0),
}
_KNOWN: Final[Mapping[str, Getter]] = {
    **{name: value for name, (_, value) in _PROPERTIES.items()},
    **dict(_PROPERTIES.values()),
    "JMSType": _either(_type, _subject),
    "JMSXDeliveryCount": lambda facts: facts.deliveries + 1,
    "JMSXUserID": lambda facts: facts.properties.user_id,
    "amqp.delivery_count": lambda facts: facts.deliveries,
    "amqp.durable": lambda facts: facts.properties.delivery_mode == 2,
    "amqp.subject": _either(_subject, _type),
    "amqp.jms_type": _type,
}
