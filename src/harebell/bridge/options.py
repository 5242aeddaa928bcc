"""The options of a shovel: source, destination, ack mode; read from the value of RabbitMQ's parameter "shovel".

Keys, defaults and refusals are RabbitMQ's (dynamic shovels of 3.10, probed, and the later `-predeclared`). Harebell
also refuses AMQP 1.0 at either end, an empty list of URIs, a negative reconnect-delay, and an end with neither a queue
nor an exchange. A list of URIs stands for one broker: the first that answers is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar, cast, get_args
from urllib.parse import urlsplit

from harebell.client.url import parse_url
from harebell.errors import InvalidArgument
from harebell.protocol.v091 import Table

__all__ = ["AckMode", "Destination", "ShovelOptions", "Source", "is_local", "parse_shovel", "without_credentials"]

_T = TypeVar("_T")
_D = TypeVar("_D")

AckMode = Literal["on-confirm", "on-publish", "no-ack"]
DEFAULT_ACK_MODE: Final[AckMode] = "on-confirm"
DEFAULT_PREFETCH: Final = 1000
DEFAULT_RECONNECT_DELAY: Final = 5.0  # seconds
MAX_PREFETCH: Final = 65_535  # a short integer in basic.qos


@dataclass(frozen=True, slots=True)
class Source:
    """The source of messages: `queue`, or an exclusive queue bound to an exchange by `key`.

    prefetch      how many messages may be on their way: received, and not acknowledged yet
    delete_after  end after so many messages; "queue-length": as many as there were at the start; None: never
    predeclared   wait for a queue that is missing, do not declare it
    """

    uris: tuple[str, ...]
    queue: str | None = None
    exchange: str | None = None
    key: str = ""
    queue_arguments: Table = field(default_factory=dict)
    consumer_arguments: Table = field(default_factory=dict)
    prefetch: int = DEFAULT_PREFETCH
    delete_after: int | Literal["queue-length"] | None = None
    predeclared: bool = False


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of messages: `queue`, or `exchange` (None: the one they were published to).

    key         routing key; None: the message's own
    properties  override those of each message, by name
    """

    uris: tuple[str, ...]
    queue: str | None = None
    exchange: str | None = None
    key: str | None = None
    queue_arguments: Table = field(default_factory=dict)
    properties: Mapping[str, object] = field(default_factory=dict)
    forward_headers: bool = False
    timestamp_header: bool = False
    predeclared: bool = False


@dataclass(frozen=True, slots=True)
class ShovelOptions:
    """`reconnect_delay` is the longest wait between two attempts, in seconds; 0: the first loss is the end."""

    source: Source
    destination: Destination
    ack_mode: AckMode = "on-confirm"
    reconnect_delay: float = DEFAULT_RECONNECT_DELAY


def is_local(uri: str) -> bool:
    """Whether the URI, without host and user as in `amqp:///vhost`, means the broker that runs the shovel."""
    return not urlsplit(uri).netloc


def without_credentials(uri: str) -> str:
    """The URI without user and password, for headers and listings."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_PROPERTIES: Final[Mapping[str, type]] = {
    "content_type": str, "content_encoding": str, "delivery_mode": int, "priority": int, "correlation_id": str,
    "reply_to": str, "expiration": str, "message_id": str, "timestamp": int, "type": str, "user_id": str,
    "app_id": str, "cluster_id": str,
}  # fmt: skip

# Renamed keys, whose old names are still read.
_OLD_NAMES: Final = {
    "delete-after": "src-delete-after",
    "prefetch-count": "src-prefetch-count",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}


def parse_shovel(value: object, name: str = "shovel") -> ShovelOptions:
    """The options in a parameter's value. InvalidArgument lists all faults, in RabbitMQ's words."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"Validation failed\n\n{name}: the value must be an object")
    reader = _Reader({_OLD_NAMES.get(str(key), str(key)): item for key, item in value.items()})
    for end in ("src", "dest"):
        protocol = reader.take(f"{end}-protocol", _text, "amqp091")
        if protocol != "amqp091":
            reader.problems.append(f"{end}-protocol '{protocol}' is not supported: only amqp091 is")
    ack_mode: AckMode = reader.take("ack-mode", _ack_mode, DEFAULT_ACK_MODE)
    source = Source(
        reader.uris("src-uri", name),
        queue=reader.take("src-queue", _text, None),
        exchange=reader.take("src-exchange", _text, None),
        key=reader.take("src-exchange-key", _text, ""),
        queue_arguments=reader.take("src-queue-args", _table, {}),
        consumer_arguments=reader.take("src-consumer-args", _table, {}),
        prefetch=reader.take("src-prefetch-count", _prefetch, DEFAULT_PREFETCH),
        delete_after=reader.take("src-delete-after", _delete_after, None),
        predeclared=reader.take("src-predeclared", _boolean, False),
    )
    destination = Destination(
        reader.uris("dest-uri", name),
        queue=reader.take("dest-queue", _text, None),
        exchange=reader.take("dest-exchange", _text, None),
        key=reader.take("dest-exchange-key", _text, None),
        queue_arguments=reader.take("dest-queue-args", _table, {}),
        properties=reader.take("dest-publish-properties", _properties, {}),
        forward_headers=reader.take("dest-add-forward-headers", _boolean, False),
        timestamp_header=reader.take("dest-add-timestamp-header", _boolean, False),
        predeclared=reader.take("dest-predeclared", _boolean, False),
    )
    delay = reader.take("reconnect-delay", _seconds, DEFAULT_RECONNECT_DELAY)
    reader.finish(name)
    _check_ends(source, destination, ack_mode, reader.problems)
    if reader.problems:
        raise InvalidArgument("Validation failed\n\n" + "\n".join(reader.problems))
    return ShovelOptions(source, destination, ack_mode, delay)


def _check_ends(source: Source, destination: Destination, ack_mode: AckMode, problems: list[str]) -> None:
    if source.queue is not None and source.exchange is not None:
        problems.append("Cannot specify 'src-exchange' and 'src-queue'")
    if source.queue is None and source.exchange is None:
        problems.append("Must specify 'src-exchange' or 'src-queue'")
    if destination.queue is not None and destination.exchange is not None:
        problems.append("Cannot specify 'dest-exchange' and 'dest-queue'")
    if ack_mode == "no-ack" and source.delete_after is not None:
        problems.append("Cannot specify 'no-ack' and 'delete-after'")


class _Reader:
    """Takes the keys of an object one by one, and collects all faults in `problems`."""

    def __init__(self, value: Mapping[str, object]) -> None:
        self._rest = dict(value)
        self.problems: list[str] = []

    def take(self, key: str, read: Callable[[str, object], _T], default: _D) -> _T | _D:
        if key not in self._rest:
            return default
        try:
            return read(key, self._rest.pop(key))
        except InvalidArgument as error:
            self.problems.append(str(error))
            return default

    def uris(self, key: str, name: str) -> tuple[str, ...]:
        if key not in self._rest:
            self.problems.append(f'Key "{key}" not found in {name}')
        return self.take(key, _uris, ())

    def finish(self, name: str) -> None:
        for key, value in self._rest.items():
            self.problems.append(f"Unrecognised terms [{{{key},{value!r}}}] in {name}")


def _refusal(key: str, what: str, value: object) -> InvalidArgument:
    return InvalidArgument(f"{key} should be {what}, actually was {value!r}")


def _uris(key: str, value: object) -> tuple[str, ...]:
    listed = value.split() if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed or not all(isinstance(uri, str) for uri in listed):
        raise _refusal(key, "a URI or a list of them", value)
    for uri in listed:
        try:
            parse_url(uri)
        except InvalidArgument as error:  # whose text does not show the URI, which has a password in it
            raise InvalidArgument(f"{key}: not a valid URI: {error}") from None
    return tuple(listed)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refusal(key, "binary", value)
    return value


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refusal(key, "boolean", value)
    return value


def _seconds(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise _refusal(key, "a number", value)
    return float(value)


def _prefetch(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_PREFETCH:
        raise _refusal(key, f"a number from 1 to {MAX_PREFETCH}", value)
    return value


def _ack_mode(key: str, value: object) -> AckMode:
    if value not in get_args(AckMode):
        raise _refusal(key, f"one of {list(get_args(AckMode))}", value)
    return cast(AckMode, value)


def _delete_after(key: str, value: object) -> int | Literal["queue-length"] | None:
    if value == "never":
        return None
    if value == "queue-length":
        return "queue-length"
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refusal(key, 'a number greater than or equal to 0, "never" or "queue-length"', value)
    return value


def _table(key: str, value: object) -> Table:
    if not isinstance(value, Mapping):
        raise _refusal(key, "an object", value)
    return cast(Table, dict(value))


def _properties(key: str, value: object) -> Mapping[str, object]:
    """Properties by the names of the client's records."""
    properties: dict[str, object] = {}
    for given, item in _table(key, value).items():
        name = given.replace("-", "_")
        kind = _PROPERTIES.get(name)
        if kind is None:
            raise InvalidArgument(f"Unrecognised terms [{{{given},{item!r}}}] in {key}")
        if not isinstance(item, kind) or isinstance(item, bool):
            raise _refusal(f"{key}: {given}", "binary" if kind is str else "a number", item)
        if name in ("delivery_mode", "priority") and not 0 <= cast(int, item) <= 255:
            raise _refusal(f"{key}: {given}", "a number from 0 to 255", item)
        properties["reserved" if name == "cluster_id" else name] = item
    return properties
