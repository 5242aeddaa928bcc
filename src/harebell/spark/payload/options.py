"""What was asked for about payloads: a frozen record, made and checked by harebell.spark.options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["BINARY", "PayloadOptions"]

Format = Literal["binary", "text", "json", "avro"]
Compression = Literal["auto", "none", "gzip", "deflate", "zstd"]

DEFAULT_CORRUPT: Final = "_corrupt"
DEFAULT_SAMPLE: Final = 1000


@dataclass(frozen=True, slots=True)
class PayloadOptions:
    """How bodies become the column `payload`.

    `schema` is Spark's DDL for JSON and an Avro schema's JSON text for Avro, None where it was not given. `charset` is
    None where each message says it itself. `sample` is the number of messages a missing schema is inferred from.
    """

    format: Format = "binary"
    schema: str | None = None
    bad_rows: Literal["column", "fail", "dead-letter"] = "column"
    corrupt_column: str = DEFAULT_CORRUPT
    bad_exchange: str | None = None
    bad_routing_key: str | None = None
    extra_fields: Literal["ignore", "corrupt"] = "ignore"
    charset: str | None = None
    compression: Compression = "auto"
    sample: int = DEFAULT_SAMPLE


BINARY: Final = PayloadOptions()
