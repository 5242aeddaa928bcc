"""The options of a reader about payloads: the format of bodies, and the handling of bad rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from harebell.errors import InvalidArgument
from harebell.spark.options.values import choice, number

__all__ = ["BINARY", "PAYLOAD", "PayloadOptions", "payload_options"]

Format = Literal["binary", "text", "json", "avro"]
Compression = Literal["auto", "none", "gzip", "deflate", "zstd"]

# As a user writes them, for messages; compared lower-cased.
PAYLOAD: Final = (
    "payload", "payloadSchema", "schemaRegistry", "sampleMessages", "extraFields", "encoding", "compression", "badRows",
    "corruptColumn", "badRowsExchange", "badRowsRoutingKey",
)  # fmt: skip

DEFAULT_CORRUPT: Final = "_corrupt"
DEFAULT_SAMPLE: Final = 1000


@dataclass(frozen=True, slots=True)
class PayloadOptions:
    """How bodies become the column `payload`.

    `schema` is Spark's DDL for JSON and an Avro schema's JSON text for Avro, None where it was not given. `registry`
    names the schema registry of Avro bodies that begin with a schema's id, None for those that do not. `charset` is
    None where each message says it itself. `sample` is the number of messages a missing schema is inferred from.
    """

    format: Format = "binary"
    schema: str | None = None
    registry: str | None = None
    bad_rows: Literal["column", "fail", "dead-letter"] = "column"
    corrupt_column: str = DEFAULT_CORRUPT
    bad_exchange: str | None = None
    bad_routing_key: str | None = None
    extra_fields: Literal["ignore", "corrupt"] = "ignore"
    charset: str | None = None
    compression: Compression = "auto"
    sample: int = DEFAULT_SAMPLE


BINARY: Final = PayloadOptions()


def payload_options(options: Mapping[str, str]) -> PayloadOptions:
    """The options of a reader about payloads; other options are ignored. Raises InvalidArgument."""
    given = {key.lower(): value for key, value in options.items()}
    kind = choice(given, "payload", "binary", ("binary", "text", "json", "avro"))
    bad_rows = choice(given, "badRows", "column", ("column", "fail", "dead-letter"))
    for name, meaning, holds in (
        *((name, "payload=text, json or avro", kind != "binary") for name in PAYLOAD[1:]),
        *((name, "payload=json", kind == "json") for name in ("sampleMessages", "extraFields")),
        ("payloadSchema", "payload=json or avro", kind in ("json", "avro")),
        ("schemaRegistry", "payload=avro", kind == "avro"),
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
        registry=given.get("schemaregistry"),
        bad_rows=cast(Any, bad_rows),
        corrupt_column=given.get("corruptcolumn", DEFAULT_CORRUPT),
        bad_exchange=exchange,
        bad_routing_key=key,
        extra_fields=cast(Any, choice(given, "extraFields", "ignore", ("ignore", "corrupt"))),
        charset=None if charset == "auto" else charset,
        compression=cast(Any, choice(given, "compression", "auto", ("auto", "none", "gzip", "deflate", "zstd"))),
        sample=number(given, "sampleMessages", int, 1, DEFAULT_SAMPLE),
    )
