"""The names of all options, as users write them, by what they are for: a batch read, a streaming read, a write.

Names are compared lower-cased: Spark hands them over so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from harebell.errors import InvalidArgument
from harebell.spark.options import streams
from harebell.spark.options.address import OPTIONS
from harebell.spark.options.payload import PAYLOAD
from harebell.spark.options.values import suggested

__all__ = ["PROPERTIES", "SPOOL", "Role", "given_options"]

Role = Literal["batch read", "streaming read", "write"]

SPOOL: Final = ("spool", "dedupWindow", "ordered")
_READ: Final = (
    *OPTIONS, "timeout", "retryTimeout",
    "queue", "queues", "queueType", "minPartitions", "prefetch", "batchRows", "readTimeout",
)  # fmt: skip
_PER_TRIGGER: Final = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay")
_WRITE: Final = (
    *OPTIONS, "timeout", "retryTimeout",
    "exchange", "routingKey", "mandatory", "persistent", "window", "ids", "dedup", "onUnroutable", "onNack",
    "alternateExchange", "transactions", "maxRate", "blockedTimeout", "toOrigin", "exactlyOnce", "sessionTimeout",
    "failOnLostState", "payload", "payloadSchema", "schemaRegistry",
)  # fmt: skip
PROPERTIES: Final[dict[str, str]] = {
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
"""Options of a write that are a property of rows without one of their own; message_id is `ids`, delivery_mode
`persistent`."""

_NAMES: Final[Mapping[Role, tuple[str, ...]]] = {
    "batch read": (*_READ, *streams.BOTH, *streams.BATCH, *SPOOL, "ticket", *PAYLOAD),
    "streaming read": (*_READ, *streams.BOTH, *_PER_TRIGGER, *SPOOL, *PAYLOAD),
    "write": (*_WRITE, *PROPERTIES),
}
# What Spark itself puts among a source's or sink's options. `path` is the argument of load() and save().
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation"})


def given_options(options: Mapping[str, str], *roles: Role) -> dict[str, str]:
    """The options by their lower-cased names; each of them must be one of one of these roles.

    Raises InvalidArgument, whose text says for what it is, or what there is instead.
    """
    names = tuple(dict.fromkeys(name for role in roles for name in _NAMES[role]))
    known = {name.lower(): name for name in names}
    given = {key.lower(): value for key, value in options.items()}
    this = roles[0] if len(roles) == 1 else "read"
    for key in given:
        if key in known or key in _SPARKS_OWN:
            continue
        others = {role: name for role, its in _NAMES.items() for name in its if name.lower() == key}
        if others:
            meant = "reads" if len(others) > 1 else f"{next(iter(others))}s"
            raise InvalidArgument(
                f"option '{next(iter(others.values()))}' is for {meant}, and this is a {this}: leave it out"
            )
        raise InvalidArgument(
            f"format 'amqp' has no option '{key}' for a {this}{suggested(key, known)}; it has: {', '.join(names)}"
        )
    return given
