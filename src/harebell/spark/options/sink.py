"""The options of a writer of format("amqp"), for batch and streaming writes, as one checked record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, cast

from harebell.defaults import MAX_TIME
from harebell.errors import InvalidArgument
from harebell.spark.options.address import Address, address
from harebell.spark.options.names import PROPERTIES, given_options
from harebell.spark.options.values import choice, first_patience, flag, number

__all__ = ["SinkOptions", "sink_options"]

Ids = Literal["auto", "column", "none"]
ExactlyOnce = Literal["none", "sessions", "auto"]
OnUnroutable = Literal["fail", "drop", "alternate"]
OnNack = Literal["fail", "retry", "drop", "alternate"]

MAX_SHORT: Final = 255  # bytes of a property that is text
SESSION_TIMEOUT: Final = 3600  # seconds: what Harebell grants at most, where nothing else is configured


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a writer. Times are seconds, `window` is a number of unconfirmed messages.

    exchange, routing_key  for all rows; None: those of the rows
    to_origin   rows that were read may go where they were published before
    properties  values for rows that have none of their own, by property: text; an int for `priority`; for `timestamp`
                seconds since 1970, or "now"
    max_rate    messages a second of one task; None is no limit
    exactly_once        by sessions of AMQP 0-10, where the broker has them, or not
    session_timeout     that the broker shall keep a session of a task for; `timeout_given`: the user has said so
    payload_schema      of payload=avro: the Avro schema as it was given; None where bodies are written as they are
    schema_registry     what has the schema's id
    body_prefix         the bytes that each body of payload=avro begins with
    fail_on_lost_state  what is to be done where it cannot be known which rows of an earlier attempt are there
    """

    url: Address
    exchange: str | None
    routing_key: str | None
    mandatory: bool
    persistent: bool
    window: int
    ids: Ids
    dedup: bool
    on_unroutable: OnUnroutable
    on_nack: OnNack
    alternate_exchange: str | None
    transactions: bool
    max_rate: float | None
    properties: Mapping[str, str | int]
    timeout: float
    retry_timeout: float
    blocked_timeout: float
    first_patience: float  # for a broker that does not answer at the start of a write
    to_origin: bool
    exactly_once: ExactlyOnce
    session_timeout: int
    timeout_given: bool
    fail_on_lost_state: bool
    payload_schema: str | None = None
    schema_registry: str | None = None
    body_prefix: bytes = b""


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The checked options of a writer. Raises InvalidArgument, whose text names the option and what it takes."""
    given = given_options(options, "write")
    if "path" in given and "exchange" in given:
        raise InvalidArgument("give the exchange once: as option 'exchange' or as save()'s argument")
    exactly_once = cast(ExactlyOnce, choice(given, "exactlyOnce", "none", ("none", "sessions", "auto")))
    # Where the broker recognises what it has, messages need no ids for that.
    ids = choice(given, "ids", "auto" if exactly_once == "none" else "none", ("auto", "column", "none"))
    checked = SinkOptions(
        url=address(given),
        exchange=given.get("exchange", given.get("path")),
        routing_key=given.get("routingkey"),
        mandatory=flag(given, "mandatory", True),
        persistent=flag(given, "persistent", True),
        window=number(given, "window", int, 1, 5000),
        ids=cast(Ids, ids),
        dedup=choice(given, "dedup", "none", ("none", "broker")) == "broker",
        on_unroutable=cast(OnUnroutable, choice(given, "onUnroutable", "fail", ("fail", "drop", "alternate"))),
        on_nack=cast(OnNack, choice(given, "onNack", "fail", ("fail", "retry", "drop", "alternate"))),
        alternate_exchange=given.get("alternateexchange"),
        transactions=choice(given, "transactions", "none", ("none", "partition")) == "partition",
        max_rate=number(given, "maxRate", float, 0.001) if "maxrate" in given else None,
        properties=_properties(given),
        timeout=number(given, "timeout", float, 0.001, 30.0),
        retry_timeout=number(given, "retryTimeout", float, 0, 60.0),
        blocked_timeout=number(given, "blockedTimeout", float, 0.001, 300.0),
        first_patience=first_patience(given),
        to_origin=flag(given, "toOrigin", False),
        exactly_once=exactly_once,
        session_timeout=number(given, "sessionTimeout", int, 1, SESSION_TIMEOUT, 0xFFFF_FFFF),
        timeout_given="sessiontimeout" in given,
        fail_on_lost_state=flag(given, "failOnLostState", True),
        payload_schema=given.get("payloadschema"),
        schema_registry=given.get("schemaregistry"),
    )
    _check_sink(checked, given)
    return checked


def _check_sink(options: SinkOptions, given: Mapping[str, str]) -> None:
    """Raises InvalidArgument for options that contradict each other, or of which one would do nothing."""
    avro = choice(given, "payload", "binary", ("binary", "avro")) == "avro"
    for name in ("payloadSchema", "schemaRegistry"):
        if name.lower() in given and not avro:
            raise InvalidArgument(f"option '{name}' means nothing here: it goes with payload=avro")
    if avro and options.payload_schema is None:
        raise InvalidArgument("payload=avro needs option 'payloadSchema': the Avro schema in JSON, or a file with it")
    if not options.mandatory and "onunroutable" in given:
        raise InvalidArgument("option 'onUnroutable' needs mandatory=true: without it the broker drops such messages")
    if options.dedup and options.ids == "none":
        raise InvalidArgument("option 'dedup' is 'broker', which goes by message ids, and option 'ids' is 'none'")
    if options.exactly_once == "none":
        for name in ("sessionTimeout", "failOnLostState"):
            if name.lower() in given:
                raise InvalidArgument(f"option '{name}' needs exactlyOnce=sessions or exactlyOnce=auto")
    else:
        for name, meant in (("dedup", options.dedup), ("transactions", options.transactions)):
            if meant:
                raise InvalidArgument(f"option '{name}' cannot be with exactlyOnce={options.exactly_once}: choose one")
        if not options.persistent:
            raise InvalidArgument(
                f"exactlyOnce={options.exactly_once} needs persistent=true: a broker that is restarted forgets others"
            )
    diverts = "alternate" in (options.on_unroutable, options.on_nack)
    if options.alternate_exchange is not None and not diverts:
        raise InvalidArgument("option 'alternateExchange' needs onUnroutable=alternate or onNack=alternate")
    if options.transactions:
        for name in ("onNack", "window"):
            if name.lower() in given:
                raise InvalidArgument(
                    f"option '{name}' means nothing with transactions=partition: there are no confirms"
                )
        if diverts:
            raise InvalidArgument(
                "onUnroutable=alternate cannot be with transactions=partition: what is unroutable is known only when "
                "the transaction has taken effect"
            )


def _properties(given: Mapping[str, str]) -> dict[str, str | int]:
    """The properties that are given as options, by their names. Raises InvalidArgument."""
    properties: dict[str, str | int] = {
        name: given[option.lower()] for option, name in PROPERTIES.items() if option.lower() in given
    }
    for name, value in properties.items():
        if isinstance(value, str) and name != "headers" and len(value.encode()) > MAX_SHORT:
            raise InvalidArgument(f"the option for property '{name}' is longer than the {MAX_SHORT} bytes it may have")
    if "priority" in properties:
        properties["priority"] = number(given, "priority", int, 0, most=255)
    if "expiration" in properties:
        properties["expiration"] = str(number(given, "expiration", int, 0, most=MAX_TIME))
    if "timestamp" in properties and given["timestamp"].strip().lower() != "now":
        try:
            moment = datetime.fromisoformat(given["timestamp"])
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None or moment.timestamp() < 0:
            raise InvalidArgument(
                f"option 'timestamp' is {given['timestamp']!r}; it takes 'now' or a time with its zone, such as "
                "2026-01-05T12:00:00Z"
            )
        properties["timestamp"] = int(moment.timestamp())
    elif "timestamp" in properties:
        properties["timestamp"] = "now"
    return properties
