"""Rows become parts of messages, without Spark and without a broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from harebell.errors import InvalidArgument
from harebell.protocol.v091 import Properties
from harebell.protocol.v091.codec import decode_properties
from harebell.spark.options import sink_options
from harebell.spark.sink.row_encoding import Part, RowEncoder, check_columns

WHEN = datetime(2026, 1, 5, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[DataType, pa.DataType]] = {
    "value": (BinaryType(), pa.binary()),
    "priority": (IntegerType(), pa.int32()),
    "delivery_mode": (IntegerType(), pa.int32()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "timestamp_number": (LongType(), pa.int64()),
    "headers_map": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
    "map": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
}


def parts(columns: dict[str, list[Any]], rows_a_batch: int = 1000, **options: Any) -> list[Part]:
    """What a task makes of a table; the column `map` is one of headers."""
    kinds = {name: KINDS.get(name, (StringType(), pa.string())) for name in columns}
    names = {name: "headers" if name == "map" else name for name in columns}
    schema = StructType([StructField(names[name], kinds[name][0]) for name in columns])
    given = {"exchange": "ex", "routingKey": "key", **options}
    checked = sink_options({name: value for name, value in given.items() if value is not None})
    check_columns(schema, checked)
    arrays = [pa.array(values, kinds[name][1]) for name, values in columns.items()]
    table = pa.Table.from_arrays(arrays, names=list(names.values()))
    sessions = checked.exactly_once == "sessions"
    outgoing, row = RowEncoder(checked, schema, now=lambda: 1234.5, sessions=sessions), 0
    made: list[Part] = []
    for batch in table.to_batches(max_chunksize=rows_a_batch):
        made += outgoing.parts(batch, "p", row)
        row += batch.num_rows
    return made


def properties(columns: dict[str, list[Any]], **options: Any) -> list[Properties]:
    return [decode_properties(raw, 0) for part in parts(columns, **options) for raw in part.properties]


def ids(columns: dict[str, list[Any]], rows_a_batch: int = 1000, **options: str) -> list[str | None]:
    made = parts(columns, rows_a_batch, **options)
    return [decode_properties(raw, 0).message_id for part in made for raw in part.properties]


def test_a_body_goes_where_the_options_say_and_is_persistent() -> None:
    (part,) = parts({"body": ["é"]})
    assert (part.bodies, part.exchange, part.routing_key, part.alternate) == (["é".encode()], "ex", "key", None)
    assert decode_properties(part.properties[0], 0) == Properties(delivery_mode=2, message_id="p/0")
    assert properties({"body": ["x"]}, persistent="false") == [Properties(delivery_mode=1, message_id="p/0")]


def test_every_property_column_is_taken() -> None:
    values: dict[str, Any] = {
        "content_type": "a/b",
        "content_encoding": "gzip",
        "headers": '{"n":[1]}',
        "delivery_mode": 1,
        "priority": 4,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "100",
        "message_id": "m",
        "timestamp": WHEN,
        "type": "t",
        "user_id": "u",
        "app_id": "a",
    }
    columns = {name: [value] for name, value in values.items()}
    made = properties({"value": [b"x"], "queue": ["q"], "offset": ["4"], **columns}, url="amqp://u:x@localhost/")
    assert made == [Properties(**{**values, "headers": {"n": [1]}})]


def test_options_are_the_properties_of_rows_without_one() -> None:
    given = {
        "contentType": "a/b",
        "contentEncoding": "gzip",
        "headers": '{"n":1}',
        "priority": "4",
        "correlationId": "c",
        "replyTo": "r",
        "expiration": "100",
        "timestamp": "2026-01-05T00:00:00Z",
        "type": "t",
        "userId": "u",
        "appId": "a",
    }
    everything = Properties(
        content_type="a/b",
        content_encoding="gzip",
        headers={"n": 1},
        delivery_mode=2,
        priority=4,
        correlation_id="c",
        reply_to="r",
        expiration="100",
        timestamp=WHEN,
        type="t",
        user_id="u",
        app_id="a",
    )
    assert properties({"body": ["x"]}, ids="none", **given) == [everything]
    columns: dict[str, list[Any]] = {
        "body": ["x", "y"],
        "priority": [None, 7],
        "headers": [None, "{}"],
        "timestamp": [None, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)],
    }
    first, second = properties(columns, ids="none", **given)
    assert first == everything
    assert (second.priority, second.headers, second.app_id) == (7, {}, "a")
    assert second.timestamp == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_a_number_of_seconds_that_no_date_holds() -> None:
    numbers = [1_700_000_000_000, None, -1, 5]
    columns: dict[str, list[Any]] = {"body": ["x"] * 4, "timestamp_number": numbers}
    assert [each.timestamp for each in properties(columns)][:3] == [1_700_000_000_000, None, 2**64 - 1]
    columns["timestamp"] = [None, WHEN, None, WHEN]
    assert [each.timestamp for each in properties(columns)] == [1_700_000_000_000, WHEN, 2**64 - 1, WHEN]
    assert properties(columns, timestamp="now")[0].timestamp == 1_700_000_000_000
    assert properties({"body": ["x"], "timestamp_number": [None]}, timestamp="now")[0].timestamp is not None


def test_a_timestamp_is_in_whole_seconds() -> None:
    times = [EPOCH, EPOCH + timedelta(microseconds=999_999), WHEN + timedelta(milliseconds=500), None]
    made = properties({"body": ["x"] * 4, "timestamp": times})
    assert [p.timestamp for p in made] == [EPOCH, EPOCH, WHEN, None]


def test_timestamp_now_is_when_it_is_published() -> None:
    (made,) = properties({"body": ["x"]}, timestamp="now")
    assert made.timestamp == datetime(1970, 1, 1, 0, 20, 34, tzinfo=UTC)
    assert properties({"body": ["x", "x"], "timestamp": [WHEN, None]}, timestamp="NOW")[1].timestamp == made.timestamp


def test_an_address_is_the_options_or_else_the_rows() -> None:
    columns: dict[str, list[Any]] = {"body": ["a", "b"], "exchange": ["x", "y"], "routing_key": ["k", "l"]}
    (part,) = parts(columns)
    assert (part.exchange, part.routing_key) == ("ex", "key")
    (part,) = parts(columns, exchange=None)
    assert (part.exchange, part.routing_key) == (["x", "y"], "key")
    (part,) = parts(columns, routingKey=None)
    assert (part.exchange, part.routing_key) == ("ex", ["k", "l"])
    (part,) = parts(columns, exchange=None, routingKey=None)
    assert part.address(0) == ("x", "k")
    assert part.only([1]).address(0) == ("y", "l")


def test_a_map_is_a_header_table() -> None:
    made = properties({"body": ["x", "y"], "map": [[("a", "1"), ("b", None)], None]}, ids="none")
    assert [p.headers for p in made] == [{"a": "1", "b": None}, None]
    (made_of_a_read,) = properties({"body": ["x"], "headers_map": [[("a", "1")]]}, ids="none")
    assert made_of_a_read.headers == {"a": "1"}


def test_ids_are_numbered_over_all_batches_and_kept_where_given() -> None:
    assert ids({"body": ["x"] * 5}, rows_a_batch=2) == ["p/0", "p/1", "p/2", "p/3", "p/4"]
    columns: dict[str, list[Any]] = {"body": ["x", "y"], "message_id": ["m", None]}
    assert ids(columns) == ["m", "p/1"]
    assert ids(columns, ids="none") == ["m", None]
    assert ids({"body": ["x", "y"]}, ids="none") == [None, None]


def test_the_broker_is_given_the_id_to_tell_copies_by() -> None:
    columns: dict[str, list[Any]] = {
        "body": ["x"] * 3,
        "message_id": ["m", None, "n"],
        "headers": ['{"a":1}', None, '{"x-deduplication-header":"own"}'],
    }
    assert [p.headers for p in properties(columns, dedup="broker")] == [
        {"x-deduplication-header": "m", "a": 1},
        {"x-deduplication-header": "p/1"},
        {"x-deduplication-header": "own"},
    ]
    made = properties({"body": ["x"]}, dedup="broker", headers='{"b":2}')
    assert [p.headers for p in made] == [{"x-deduplication-header": "p/0", "b": 2}]


def test_parts_are_small_in_rows_and_bytes() -> None:
    assert [len(part) for part in parts({"body": ["x"] * 2500}, rows_a_batch=2500)] == [1000, 1000, 500]
    assert [len(part) for part in parts({"body": ["x"] * 25}, window="10")] == [5] * 5
    assert [len(part) for part in parts({"body": ["x"] * 10}, maxRate="20")] == [4, 4, 2]
    assert [len(part) for part in parts({"body": ["x" * 400_000] * 5})] == [2, 2, 1]
    assert [len(part) for part in parts({"body": ["x" * 3_000_000] * 2})] == [1, 1]
    assert parts({"body": []}) == []


def test_alternates_by_column_and_option() -> None:
    columns: dict[str, list[Any]] = {"body": ["a", "b"], "alternate_exchange": ["own", None]}
    (part,) = parts(columns, onUnroutable="alternate", alternateExchange="lost")
    diverted = part.divert()
    assert (diverted.exchange, diverted.routing_key, diverted.diverted) == (["own", "lost"], "key", True)
    (part,) = parts(columns, onNack="alternate")
    assert part.only([0]).divert().address(0) == ("own", "key")
    with pytest.raises(InvalidArgument, match="'alternate_exchange' is null"):
        part.divert()


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"body": ["x", None]}, {}, "'body' is null in a row"),
        ({"body": ["x"], "headers": ["[]"]}, {}, "takes a JSON object"),
        ({"body": ["x"], "headers": ["{"]}, {}, "is not JSON"),
        ({"body": ["x"], "headers": ['{"%s":1}' % ("k" * 256)]}, {}, "table key is 256 bytes long"),
        ({"body": ["x"], "headers": ['{"%s":1}' % ("k" * 256)]}, {"dedup": "broker"}, "table key is 256 bytes long"),
        ({"body": ["x"], "message_id": [None]}, {"ids": "column"}, "'message_id' is null"),
        ({"body": ["x"], "priority": [256]}, {}, "priority is 256"),
        ({"body": ["x"], "app_id": ["x" * 256]}, {}, "app_id is 256 bytes long"),
        *(
            ({"body": ["x", "y"], "timestamp": [None, at]}, options, "column 'timestamp' is before 1970")
            for at in (
                datetime(1960, 1, 1, tzinfo=UTC),
                EPOCH - timedelta(microseconds=1),
                EPOCH - timedelta(seconds=2),
            )
            for options in ({}, {"timestamp": "now"}, {"exactlyOnce": "sessions"})
        ),
    ],
)
def test_rows_that_are_no_message(columns: dict[str, list[Any]], options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        parts(columns, **options)


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", [["other"], [], "other", None])
def test_a_session_makes_no_copies(name: str, value: Any) -> None:
    text = json.dumps({"a": 1, name: value})
    rows: list[tuple[dict[str, list[Any]], dict[str, Any]]] = [
        ({"body": ["x", "y"], "headers": [None, text]}, {}),
        ({"body": ["x"], "map": [[("a", "1"), (name, "other")]]}, {}),
        ({"body": ["x"]}, {"headers": text}),
        ({"body": ["x"], "headers": ["{}"]}, {"headers": text}),
    ]
    for columns, options in rows:
        with pytest.raises(InvalidArgument, match=f"'headers' has {name}, which asks for copies"):
            parts(columns, exactlyOnce="sessions", **options)
        assert parts(columns, **options)


@pytest.mark.parametrize("exactly_once", ["none", "sessions"])
def test_a_copy_to_another_key_goes_there_alone(exactly_once: str) -> None:
    text = '{"CC":["other"],"a":"1"}'
    kinds: list[dict[str, list[Any]]] = [{"headers": [text]}, {"headers_map": [[("CC", '["other"]'), ("a", "1")]]}]
    for headers in kinds:
        (part,) = parts({"body": ["x"], "queue": ["q"], **headers}, exactlyOnce=exactly_once)
        if exactly_once == "none":
            assert decode_properties(part.properties[0], 0).headers == {"a": "1"}
        else:
            assert b"CC" not in part.properties[0]
        with pytest.raises(InvalidArgument, match="BCC"):
            parts({"body": ["x"], "queue": ["q"], "headers": ['{"BCC":["other"]}']}, exactlyOnce="sessions")


def test_a_session_keeps_a_value_or_refuses_it() -> None:
    for name, value, text in (
        ("expiration", "abc", "expiration is 'abc'"),
        ("headers", '{"a":"%s"}' % ("v" * 70_000), "headers: 'a' has a text of 70,000 bytes"),
        ("headers", '{"a":9223372036854775808}', "headers: 'a' has the number 9223372036854775808"),
    ):
        with pytest.raises(InvalidArgument, match=f"a row is no message: {text}"):
            parts({"body": ["x"], name: [value]}, exactlyOnce="sessions")


@pytest.mark.parametrize("text", ["", "abc", "-1", "315360000001", "1.5"])
def test_the_option_expiration_is_a_number_of_milliseconds(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"option 'expiration' is .*; it takes a number, 0 to 315360000000"):
        parts({"body": ["x"]}, expiration=text)
    assert [p.expiration for p in properties({"body": ["x"]}, expiration=" 0300 ")] == ["300"]


def test_a_null_address_needs_an_option() -> None:
    schema = StructType([StructField(name, StringType()) for name in ("body", "exchange", "routing_key")])
    outgoing = RowEncoder(sink_options({"exchange": "e"}), schema)
    batch = pa.RecordBatch.from_pydict(
        {"body": ["x"], "exchange": [None], "routing_key": pa.array([None], pa.string())}
    )
    with pytest.raises(InvalidArgument, match="'routing_key' is null in a row"):
        list(outgoing.parts(batch, "p", 0))


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"text": StringType()}, {}, "cannot write column 'text'; it writes: body, value"),
        ({"body": DoubleType()}, {}, "column 'body' cannot be double"),
        ({"body": StringType(), "priority": StringType()}, {}, "column 'priority' cannot be string"),
        ({"body": StringType(), "timestamp": StringType()}, {}, "column 'timestamp' cannot be string"),
        ({"body": StringType(), "app_id": IntegerType()}, {}, "column 'app_id' cannot be int"),
        ({"body": StringType(), "headers": MapType(StringType(), IntegerType())}, {}, "'headers' cannot be map<"),
        ({"body": StringType(), "headers_map": StringType()}, {}, "'headers_map' cannot be string"),
        (
            {"body": StringType(), "headers": StringType(), "headers_map": MapType(StringType(), StringType())},
            {},
            "headers come from one column",
        ),
        ({"body": StringType(), "value": StringType()}, {}, "exactly one of the columns"),
        ({"app_id": StringType()}, {}, "exactly one of the columns"),
        ({"body": StringType()}, {"exchange": None}, "give option 'exchange' or a column"),
        ({"body": StringType()}, {"routingKey": None}, "give option 'routingKey' or a column"),
        ({"body": StringType()}, {"ids": "column"}, "no column 'message_id'"),
        ({"body": StringType()}, {"onNack": "alternate"}, "alternate: where to"),
        ({"body": StringType(), "alternate_exchange": StringType()}, {}, "needs onUnroutable=alternate"),
        ({"body": StringType()}, {"headers": "[]"}, "takes a JSON object"),
    ],
)
def test_columns_that_make_no_messages(columns: dict[str, DataType], options: dict[str, str | None], text: str) -> None:
    given = {"exchange": "e", "routingKey": "k", **options}
    checked = sink_options({name: value for name, value in given.items() if value is not None})
    with pytest.raises(InvalidArgument, match=text):
        check_columns(StructType([StructField(name, kind) for name, kind in columns.items()]), checked)


def test_messages_of_several_parts() -> None:
    one = Part([b"a", b"b"], [b"1", b"2"], "x", ["k", "l"], "alt")
    two = Part([b"c"], [b"3"], ["y"], "m", [None])
    mixed = Part.of([(one, 1), (two, 0), (one, 0)])
    assert (mixed.bodies, mixed.properties) == ([b"b", b"c", b"a"], [b"2", b"3", b"1"])
    assert [mixed.address(place) for place in range(3)] == [("x", "l"), ("y", "m"), ("x", "k")]
    assert mixed.alternate == ["alt", None, "alt"]
    assert Part.of([(one, 1)]).exchange == "x"
