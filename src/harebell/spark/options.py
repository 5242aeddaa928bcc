"""The options of format("amqp"): names, defaults, checks. One frozen record per role (source, sink).

Rules: Spark hands options over with lower-cased names and text values; a name that is not known, or that has no
meaning in the role it was given for, is refused with the list of those that have. Nothing is accepted and ignored.
This module opens no connection and imports nothing third-party.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from harebell.errors import InvalidArgument
from harebell.spark import address
from harebell.spark.address import Address
from harebell.spark.payload.options import BINARY, DEFAULT_CORRUPT, DEFAULT_SAMPLE, PayloadOptions
from harebell.spark.streams import options as stream
from harebell.spark.streams.options import StreamOptions, stream_options

__all__ = ["SinkOptions", "SourceOptions", "default_spool"]

N = TypeVar("N", int, float)
QueueType = Literal["auto", "stream", "classic", "quorum"]
Ids = Literal["auto", "column", "none"]
OnUnroutable = Literal["fail", "drop", "alternate"]
OnNack = Literal["fail", "retry", "drop", "alternate"]

DEFAULT_URL: Final = "amqp://guest:guest@localhost:5672/"
DRAIN_PREFETCH: Final = 20_000
MAX_PREFETCH: Final = 65_535  # basic.qos carries a short
MAX_SHORT: Final = 255  # bytes of a property that is text

# As a user writes them, for messages; compared lower-cased.
_COMMON: Final = (*address.OPTIONS, "timeout", "retryTimeout")
_SOURCE: Final = ("queue", "queues", "queueType", "minPartitions", "prefetch", "batchRows", "readTimeout")
_SPOOL: Final = ("spool", "dedupWindow", "ordered")
_ADMISSION: Final = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay")
_PAYLOAD: Final = (
    "payload",
    "payloadSchema",
    "sampleMessages",
    "extraFields",
    "encoding",
    "compression",
    "badRows",
    "corruptColumn",
    "badRowsExchange",
    "badRowsRoutingKey",
)
_SINK: Final = (
    "exchange",
    "routingKey",
    "mandatory",
    "persistent",
    "window",
    "ids",
    "dedup",
    "onUnroutable",
    "onNack",
    "alternateExchange",
    "transactions",
    "maxRate",
    "blockedTimeout",
)
# Options that are a property of rows without one of their own; message_id is `ids`, delivery_mode `persistent`.
_PROPERTIES: Final[dict[str, str]] = {
    "contentType": "content_type",
    "contentEncoding": "content_encoding",
    "headers": "headers",
    "priority": "priority",
    "correlationId": "correlation_id",
    "replyTo": "reply_to",
    "expiration": "expiration",
    "timestamp": "timestamp",
    "type": "type",
    "userId": "user_id",
    "appId": "app_id",
}
SOURCE_BATCH: Final = (*_COMMON, *_SOURCE, *stream.BOTH, *stream.BATCH, *_SPOOL, "ticket", *_PAYLOAD)
SOURCE_STREAM: Final = (*_COMMON, *_SOURCE, *stream.BOTH, *_ADMISSION, *_SPOOL, *_PAYLOAD)
SINK: Final = (*_COMMON, *_SINK, *_PROPERTIES)
# What Spark itself puts among a source's or sink's options. `path` is the argument of load() and save().
SPARKS_OWN: Final = frozenset({"path", "checkpointlocation"})


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader was asked for, checked. Times are seconds, offsets are message numbers of a stream queue."""

    url: Address
    queues: tuple[str, ...]
    queue_type: QueueType
    stream: StreamOptions
    max_messages: int | None
    max_bytes: int | None  # of bodies
    min_messages: int
    max_delay: float  # how long fewer than min_messages may wait
    ordered: bool
    min_partitions: int
    prefetch: int
    batch_rows: int
    fail_on_data_loss: bool
    spool: Path
    ticket: str | None
    dedup_window: float
    timeout: float
    read_timeout: float
    retry_timeout: float
    given: frozenset[str]  # the lower-cased names that the caller wrote, to refuse those that a queue type excludes
    payload: PayloadOptions = BINARY

    @property
    def drain_prefetch(self) -> int:
        """Messages in flight of a drain; more than a stream's, for each file costs two waits for the disk."""
        return self.prefetch if "prefetch" in self.given else DRAIN_PREFETCH

    @property
    def vhost(self) -> str:
        """The virtual host that the URL names ("/" when it names none)."""
        return self.url.vhost


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer was asked for, checked. Times are seconds, `window` is a number of unconfirmed messages.

    properties  values for rows that have none of their own, by property: text; an int for `priority`; for `timestamp`
                seconds since 1970, or "now"
    max_rate    messages a second of one task; None is no limit
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


def default_spool() -> Path:
    """Where drained messages go when the option `spool` is not given: $XDG_STATE_HOME/harebell/spool."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "harebell" / "spool"


def source_options(options: Mapping[str, str], streaming: bool) -> SourceOptions:
    """The checked options of a reader. Raises InvalidArgument, whose text names the option and what it takes."""
    given = _known(options, SOURCE_STREAM if streaming else SOURCE_BATCH, "streaming read" if streaming else "read")
    names = [given[key] for key in ("queue", "queues", "path") if key in given]
    if len(names) > 1:
        raise InvalidArgument("give the queues once: as option 'queue', as option 'queues' or as load()'s argument")
    queues = tuple(dict.fromkeys(name.strip() for name in (names[0] if names else "").split(",") if name.strip()))
    found = [name for name in ("queuePattern", "superstream") if name.lower() in given]
    if len(found) + bool(queues) > 1:
        raise InvalidArgument("give one of 'queue', 'queuePattern' and 'superstream': what to read")
    if not found and not queues:
        raise InvalidArgument("option 'queue' is missing: the name of the queue to read, or several with commas")
    queue_type = _choice(given, "queueType", "auto", ("auto", "stream", "classic", "quorum"))
    ticket = given.get("ticket")
    if ticket is not None and not ticket.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise InvalidArgument(f"option 'ticket' is {ticket!r}; letters, digits, '-', '_' and '.' are allowed")
    ordered = _flag(given, "ordered", False)
    if ordered and "minpartitions" in given:
        raise InvalidArgument("with ordered=true each queue is read in one task: leave option 'minPartitions' out")
    if "maxtriggerdelay" in given and "minmessagespertrigger" not in given:
        raise InvalidArgument("option 'maxTriggerDelay' is for 'minMessagesPerTrigger', which is not given")
    return SourceOptions(
        url=_url(given),
        queues=queues,
        queue_type=cast(QueueType, queue_type),
        stream=stream_options(given, queues, _flag(given, "matchUnfiltered", False)),
        max_messages=_if_given(given, "maxMessagesPerTrigger"),
        max_bytes=_if_given(given, "maxBytesPerTrigger"),
        min_messages=_number(given, "minMessagesPerTrigger", int, 1, 1),
        max_delay=_number(given, "maxTriggerDelay", float, 0, 900.0),
        ordered=ordered,
        min_partitions=_number(given, "minPartitions", int, 1, 2),
        prefetch=_number(given, "prefetch", int, 1, 5000, MAX_PREFETCH),
        batch_rows=_number(given, "batchRows", int, 1, 10_000),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        spool=Path(given["spool"]) if "spool" in given else default_spool(),
        ticket=ticket,
        dedup_window=_number(given, "dedupWindow", float, 0, 600.0),
        timeout=_number(given, "timeout", float, 0.001, 30.0),
        read_timeout=_number(given, "readTimeout", float, 0.001, 30.0),
        retry_timeout=_number(given, "retryTimeout", float, 0, 60.0),
        given=frozenset(given),
        payload=payload_options(given),
    )


def payload_options(options: Mapping[str, str]) -> PayloadOptions:
    """What a reader was asked for about payloads; other options are not looked at. Raises InvalidArgument."""
    given = {key.lower(): value for key, value in options.items()}
    kind = _choice(given, "payload", "binary", ("binary", "text", "json", "avro"))
    bad_rows = _choice(given, "badRows", "column", ("column", "fail", "dead-letter"))
    for name, meaning, holds in (
        *((name, "payload=text, json or avro", kind != "binary") for name in _PAYLOAD[1:]),
        *((name, "payload=json", kind == "json") for name in ("sampleMessages", "extraFields")),
        ("payloadSchema", "payload=json or avro", kind in ("json", "avro")),
        ("encoding", "payload=text or json", kind in ("text", "json")),
        ("corruptColumn", "badRows=column", bad_rows == "column"),
        ("badRowsExchange", "badRows=dead-letter", bad_rows == "dead-letter"),
        ("badRowsRoutingKey", "badRows=dead-letter", bad_rows == "dead-letter"),
        ("sampleMessages", "payload=json without payloadSchema", "payloadschema" not in given),
    ):
        if name.lower() in given and not holds:
            raise InvalidArgument(f"option '{name}' means nothing here: it goes with {meaning}")
    schema = given.get("payloadschema")
    if schema is None and kind == "avro":
        raise InvalidArgument("payload=avro needs option 'payloadSchema': the Avro schema in JSON, or a file with it")
    exchange, key = given.get("badrowsexchange"), given.get("badrowsroutingkey")
    if bad_rows == "dead-letter" and exchange is None:
        raise InvalidArgument("badRows=dead-letter needs option 'badRowsExchange', the exchange that bad rows go to")
    if exchange == "" and key is None:
        raise InvalidArgument(
            "option 'badRowsExchange' is the default exchange, where the routing key is a queue: "
            "give option 'badRowsRoutingKey', or bad rows would go back to the queue they came from"
        )
    charset = given.get("encoding", "auto").strip().lower()
    try:
        known = charset == "auto" or "".encode(charset) is not None
    except (LookupError, ValueError):
        known = False
    if not known:
        raise InvalidArgument(f"option 'encoding' is {charset!r}; it takes 'auto' or a charset, for example utf-8")
    return PayloadOptions(
        format=cast(Any, kind),
        schema=schema,
        bad_rows=cast(Any, bad_rows),
        corrupt_column=given.get("corruptcolumn", DEFAULT_CORRUPT),
        bad_exchange=exchange,
        bad_routing_key=key,
        extra_fields=cast(Any, _choice(given, "extraFields", "ignore", ("ignore", "corrupt"))),
        charset=None if charset == "auto" else charset,
        compression=cast(Any, _choice(given, "compression", "auto", ("auto", "none", "gzip", "deflate", "zstd"))),
        sample=_number(given, "sampleMessages", int, 1, DEFAULT_SAMPLE),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The checked options of a writer. Raises InvalidArgument, whose text names the option and what it takes."""
    given = _known(options, SINK, "write")
    if "path" in given and "exchange" in given:
        raise InvalidArgument("give the exchange once: as option 'exchange' or as save()'s argument")
    checked = SinkOptions(
        url=_url(given),
        exchange=given.get("exchange", given.get("path")),
        routing_key=given.get("routingkey"),
        mandatory=_flag(given, "mandatory", True),
        persistent=_flag(given, "persistent", True),
        window=_number(given, "window", int, 1, 5000),
        ids=cast(Ids, _choice(given, "ids", "auto", ("auto", "column", "none"))),
        dedup=_choice(given, "dedup", "none", ("none", "broker")) == "broker",
        on_unroutable=cast(OnUnroutable, _choice(given, "onUnroutable", "fail", ("fail", "drop", "alternate"))),
        on_nack=cast(OnNack, _choice(given, "onNack", "fail", ("fail", "retry", "drop", "alternate"))),
        alternate_exchange=given.get("alternateexchange"),
        transactions=_choice(given, "transactions", "none", ("none", "partition")) == "partition",
        max_rate=_number(given, "maxRate", float, 0.001) if "maxrate" in given else None,
        properties=_properties(given),
        timeout=_number(given, "timeout", float, 0.001, 30.0),
        retry_timeout=_number(given, "retryTimeout", float, 0, 60.0),
        blocked_timeout=_number(given, "blockedTimeout", float, 0.001, 300.0),
    )
    _check_sink(checked, given)
    return checked


def _check_sink(options: SinkOptions, given: Mapping[str, str]) -> None:
    """Raises InvalidArgument for options that contradict each other, or of which one would do nothing."""
    if not options.mandatory and "onunroutable" in given:
        raise InvalidArgument("option 'onUnroutable' needs mandatory=true: without it the broker drops such messages")
    if options.dedup and options.ids == "none":
        raise InvalidArgument("option 'dedup' is 'broker', which goes by message ids, and option 'ids' is 'none'")
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
        name: given[option.lower()] for option, name in _PROPERTIES.items() if option.lower() in given
    }
    for name, value in properties.items():
        if isinstance(value, str) and name != "headers" and len(value.encode()) > MAX_SHORT:
            raise InvalidArgument(f"the option for property '{name}' is longer than the {MAX_SHORT} bytes it may have")
    if "priority" in properties:
        properties["priority"] = _number(given, "priority", int, 0, most=255)
    if "expiration" in properties:
        _number(given, "expiration", int, 0)
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


def refuse(options: SourceOptions, family: Literal["stream", "spool"]) -> None:
    """Raises InvalidArgument when an option was given that has no meaning for this kind of queue."""
    others, kind, rest = (
        ((*_SPOOL, "ticket"), "a stream queue", "classic and quorum queues")
        if family == "stream"
        else ((*stream.BOTH, *stream.BATCH), "a classic or quorum queue", "stream queues")
    )
    for name in others:
        if name.lower() in options.given:
            raise InvalidArgument(
                f"option '{name}' means nothing for {kind} ({', '.join(options.queues)}); it is for {rest}"
            )


def _known(options: Mapping[str, str], names: tuple[str, ...], role: str) -> dict[str, str]:
    known = {name.lower() for name in names}
    given = {key.lower(): value for key, value in options.items()}
    for key in given:
        if key not in known and key not in SPARKS_OWN:
            raise InvalidArgument(f"format 'amqp' has no option '{key}' for a {role}; it has: {', '.join(names)}")
    return given


def _url(given: Mapping[str, str]) -> Address:
    return address.address(given)


def _choice(given: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name.lower(), default).strip().lower()
    if value not in allowed:
        raise InvalidArgument(f"option '{name}' is {value!r}; it takes one of: {', '.join(allowed)}")
    return value


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    return _choice(given, name, str(default).lower(), ("true", "false")) == "true"


def _number(
    given: Mapping[str, str],
    name: str,
    kind: Callable[[str], N],
    least: N,
    default: N | None = None,
    most: N | None = None,
) -> N:
    text = given.get(name.lower())
    if text is None:
        assert default is not None
        return default
    value: N | None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not least <= value or (most is not None and value > most):
        limit = f"at least {least}" if most is None else f"{least} to {most}"
        raise InvalidArgument(f"option '{name}' is {text!r}; it takes a number, {limit}")
    return value


def _if_given(given: Mapping[str, str], name: str) -> int | None:
    return _number(given, name, int, 1) if name.lower() in given else None
