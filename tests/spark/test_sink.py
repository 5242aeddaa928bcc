"""The sink without Spark: rows become publications, a lost connection repeats a chunk under the same ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.sql.types import MapType, StringType, StructField, StructType

from warren.client.records import Message, Publication
from warren.errors import ConnectionLost, InvalidArgument, Unroutable
from warren.spark import sink
from warren.spark.options import sink_options
from warren.spark.sink import _Publisher


class FakeLink:
    """Takes publications; loses the connection in the middle of the calls whose number is in `cut`."""

    cut: ClassVar[set[int]] = set()
    calls = 0
    taken: ClassVar[list[Publication]] = []
    opened = 0
    error: Exception | None = None

    def __init__(self, url: str, timeout: float) -> None:
        type(self).opened += 1
        self.confirming = False

    def confirm_select(self) -> None:
        self.confirming = True

    def publish(self, publications: Iterable[Publication], window: int, timeout: float) -> int:
        assert self.confirming
        kind = type(self)
        kind.calls += 1
        if kind.error:
            raise kind.error
        all_of_them = list(publications)
        if kind.calls in kind.cut:
            kind.taken += all_of_them[: len(all_of_them) // 2]
            raise ConnectionLost("cut")
        kind.taken += all_of_them
        return len(all_of_them)

    def close(self) -> None:
        self.confirming = False


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> type[FakeLink]:
    fresh = type("FreshLink", (FakeLink,), {"taken": [], "cut": set()})
    monkeypatch.setattr(sink, "Link", fresh)
    monkeypatch.setattr("warren.spark.amqp.time.sleep", lambda seconds: None)
    return fresh


@pytest.fixture
def publish(link: type[FakeLink]) -> Callable[..., list[Publication]]:
    def publish(columns: dict[str, list[Any]], rows_a_batch: int = 1000, **options: str) -> list[Publication]:
        table = pa.table({name: pa.array(values, _kind(name)) for name, values in columns.items()})
        schema = StructType([StructField(name, StringType()) for name in columns])
        plain = sink_options({"exchange": "ex", "routingKey": "key", **options})
        publisher = _Publisher.__new__(_Publisher)  # the columns' Spark types are checked elsewhere
        publisher._options, publisher._schema = plain, schema
        done = publisher.publish(iter(table.to_batches(max_chunksize=rows_a_batch)), "p")
        assert done.count == table.num_rows
        return link.taken

    return publish


def _kind(name: str) -> pa.DataType:
    kinds = {"priority": pa.int32(), "delivery_mode": pa.int32(), "timestamp": pa.timestamp("us", tz="UTC")}
    return kinds.get(name, pa.string())


def one(publications: list[Publication]) -> tuple[Publication, Message]:
    (publication,) = publications
    assert isinstance(publication.message, Message)
    return publication, publication.message


def ids(publications: list[Publication]) -> list[str | None]:
    return [p.message.properties.message_id for p in publications if isinstance(p.message, Message)]


def test_a_body_goes_where_the_options_say_persistent_and_mandatory(publish: Callable[..., list[Publication]]) -> None:
    publication, message = one(publish({"body": ["é"]}))
    assert (publication.exchange, publication.routing_key, publication.mandatory) == ("ex", "key", True)
    assert message.body == "é".encode()
    assert message.properties.delivery_mode == 2
    assert message.properties.message_id == "p/0"


def test_every_property_column_is_taken(publish: Callable[..., list[Publication]]) -> None:
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
        "timestamp": datetime(2026, 1, 5, tzinfo=UTC),
        "type": "t",
        "user_id": "u",
        "app_id": "a",
    }
    columns = {name: [value] for name, value in values.items()}
    _, message = one(publish({"value": ["x"], "queue": ["q"], "offset": ["4"], **columns}))
    assert {name: getattr(message.properties, name) for name in values} == {**values, "headers": {"n": [1]}}


def test_a_row_without_a_place_of_its_own_takes_the_options(publish: Callable[..., list[Publication]]) -> None:
    got = publish({"body": ["a", "b"], "exchange": ["other", None], "routing_key": [None, "k"]}, mandatory="false")
    assert [(p.exchange, p.routing_key, p.mandatory) for p in got] == [("other", "key", False), ("ex", "k", False)]


def test_ids_are_numbered_over_all_batches_and_kept_where_given(publish: Callable[..., list[Publication]]) -> None:
    assert ids(publish({"body": ["x"] * 5}, rows_a_batch=2)) == ["p/0", "p/1", "p/2", "p/3", "p/4"]


def test_ids_of_the_column(publish: Callable[..., list[Publication]]) -> None:
    columns = {"body": ["x", "y"], "message_id": ["m", None]}
    assert ids(publish(columns)) == ["m", "p/1"]
    with pytest.raises(InvalidArgument, match="'message_id' is null"):
        publish(columns, ids="column")


def test_no_ids(publish: Callable[..., list[Publication]]) -> None:
    assert ids(publish({"body": ["x", "y"]}, ids="none")) == [None, None]


def test_a_lost_connection_repeats_the_chunk_under_the_same_ids(
    publish: Callable[..., list[Publication]], link: type[FakeLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "CHUNK", 4)
    link.cut = {2, 3}
    got = publish({"body": [str(n) for n in range(10)]})
    assert link.opened == 3
    assert len(got) == 14
    assert {i: p.message.body for i, p in zip(ids(got), got, strict=True) if isinstance(p.message, Message)} == {
        f"p/{n}": b"%d" % n for n in range(10)
    }


def test_what_reaches_no_queue_is_not_tried_again(
    publish: Callable[..., list[Publication]], link: type[FakeLink]
) -> None:
    link.error = Unroutable("no queue")
    with pytest.raises(Unroutable):
        publish({"body": ["x"]})
    assert link.calls == 1


@pytest.mark.parametrize("columns", [{"body": ["x", None]}, {"body": ["x"], "headers": ["[]"]}])
def test_rows_that_are_no_message(publish: Callable[..., list[Publication]], columns: dict[str, list[Any]]) -> None:
    with pytest.raises(InvalidArgument):
        publish(columns)


def test_a_map_of_headers_is_a_table_of_texts(link: type[FakeLink]) -> None:
    texts = MapType(StringType(), StringType())
    schema = StructType([StructField("body", StringType()), StructField("headers_map", texts)])
    publisher = _Publisher(sink_options({"exchange": "ex", "routingKey": "key"}), schema)
    maps = pa.array([[("a", "1"), ("b", None)], None], pa.map_(pa.string(), pa.string()))
    publisher.publish(iter([pa.RecordBatch.from_arrays([pa.array(["x", "y"]), maps], ["body", "headers_map"])]), "p")
    assert [p.message.properties.headers for p in link.taken if isinstance(p.message, Message)] == [
        {"a": "1", "b": None},
        None,
    ]
    both = StructType([*schema.fields, StructField("headers", StringType())])
    with pytest.raises(InvalidArgument, match="one column: 'headers' or 'headers_map', not both"):
        _Publisher(sink_options({"exchange": "ex", "routingKey": "key"}), both)
