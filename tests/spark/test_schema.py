from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from harebell.errors import InvalidArgument
from harebell.protocol.v091 import Properties
from harebell.spark.schema import (
    PROPERTY_COLUMNS,
    Rows,
    arrow_schema,
    check_schema,
    project,
    row_schema,
    unsigned,
)
from tests.spark.fakes import FakeDelivery, as_delivery

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


class Unread(FakeDelivery):
    """A delivery whose properties must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name == "properties":
            raise AssertionError("properties were decoded for a projection without them")
        return super().__getattribute__(name)


def schema_of(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_the_row_has_every_basic_property_and_20_columns() -> None:
    assert len(row_schema().fields) == 20
    assert set(PROPERTY_COLUMNS) == set(Properties.__slots__) - {"reserved"}


def test_a_batch_has_sparks_own_arrow_schema_and_all_values() -> None:
    properties = Properties(
        content_type="text/plain",
        content_encoding="identity",
        headers={"n": 1, "x-stream-offset": 41},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="1000",
        message_id="m",
        timestamp=NOON,
        type="t",
        user_id="u",
        app_id="a",
    )
    full = FakeDelivery(b"\xff", "ex", "key", 1, True, properties=properties)
    bare = FakeDelivery(b"")
    batch = Rows(row_schema()).batch("q", [as_delivery(full), as_delivery(bare)], [41, 42])
    assert batch.schema == arrow_schema(row_schema())
    first, second = batch.to_pylist()
    assert first == {
        "queue": "q",
        "offset": 41,
        "exchange": "ex",
        "routing_key": "key",
        "redelivered": True,
        "content_type": "text/plain",
        "content_encoding": "identity",
        "headers": '{"n":1}',
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "1000",
        "message_id": "m",
        "timestamp": NOON,
        "type": "t",
        "user_id": "u",
        "app_id": "a",
        "timestamp_number": None,
        "body": b"\xff",
    }
    assert all(second[name] is None for name in PROPERTY_COLUMNS)
    assert second["body"] == b""


def test_a_projection_keeps_its_order_and_decodes_no_properties_without_need() -> None:
    rows = Rows(schema_of(body=StringType(), offset=LongType(), queue=StringType()))
    batch = rows.batch("q", [as_delivery(Unread("é".encode()))], None)
    assert batch.to_pylist() == [{"body": "é", "offset": None, "queue": "q"}]


def test_a_body_that_is_not_text_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidArgument, match=r"queue 'q' is not UTF-8.*body binary"):
        Rows(schema_of(body=StringType())).batch("q", [as_delivery(FakeDelivery(b"\xff"))], None)


def test_text_that_a_peer_sent_as_other_bytes_does_not_stop_a_read() -> None:
    delivery = FakeDelivery(b"", routing_key="a\udcff", properties=Properties(type="\udcfe", headers={"h": "\udcff"}))
    row = Rows(row_schema()).batch("q", [as_delivery(delivery)], None).to_pylist()[0]
    assert row["routing_key"] == "a�"
    assert row["type"] == "�"
    assert row["headers"] == '{"h":"\\udcff"}'


@pytest.mark.parametrize("number", [253_402_300_800, 1_700_000_000_000, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_timestamp_beyond_any_date_is_a_number(number: int) -> None:
    properties = [Properties(timestamp=number), Properties(timestamp=NOON), Properties()]
    batch = Rows(row_schema()).batch("q", [as_delivery(FakeDelivery(b"", properties=p)) for p in properties], None)
    assert batch.column("timestamp").to_pylist() == [None, NOON, None]
    far = batch.column("timestamp_number").to_pylist()
    assert (unsigned(far[0]), far[1:]) == (number, [None, None])


def test_a_file_of_an_older_version_has_no_numbers() -> None:
    full = Rows(row_schema()).batch("q", [as_delivery(FakeDelivery(b"x"))], None)
    old = full.drop_columns(["timestamp_number"])
    assert project("q", old, full.schema).to_pylist() == full.to_pylist()


def test_a_projection_out_of_a_full_batch() -> None:
    full = Rows(row_schema()).batch("q", [as_delivery(FakeDelivery(b"x", properties=Properties(message_id="1")))], None)
    wanted = arrow_schema(schema_of(message_id=StringType(), body=StringType()))
    assert project("q", full, wanted).to_pylist() == [{"message_id": "1", "body": "x"}]


@pytest.mark.parametrize(
    "schema, said",
    [
        (schema_of(payload=BinaryType()), "no column 'payload'; it has: queue, offset"),
        (schema_of(offset=IntegerType()), "column 'offset' is bigint, not int"),
        (schema_of(body=IntegerType()), "column 'body' is binary or string, not int"),
    ],
)
def test_schemas_that_are_refused(schema: StructType, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check_schema(schema)


def test_all_columns_are_nullable_as_arrow_says() -> None:
    assert all(field.nullable for field in arrow_schema(row_schema()))
    assert arrow_schema(row_schema()).field("timestamp").type == pa.timestamp("us", tz="UTC")
