"""How a streaming read plans its batches: limits, waiting, what came and went. The broker is a table of ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from harebell.errors import DataLoss, InvalidArgument
from harebell.spark.options import source_options
from harebell.spark.options.positions import Position
from harebell.spark.schema import row_schema
from harebell.spark.streams import reader as stream_reader
from harebell.spark.streams.bounds import StreamBounds
from harebell.spark.streams.offsets import UNKNOWN
from harebell.spark.streams.reader import RangePartition, StreamQueueReader, StreamQueueStreamReader
from tests.replaced_time import replace_time


class Table:
    """Stands in for BoundsReader and for the list of queues."""

    def __init__(self, **ends: tuple[int, int]) -> None:
        self.ends = ends
        self.size = 100.0

    def of(
        self, queues: Collection[str], sizes: bool = False, reached: Mapping[str, int] | None = None
    ) -> dict[str, StreamBounds]:
        return {queue: StreamBounds(*self.ends[queue], self.size if sizes else 0.0) for queue in queues}

    product = "another"  # nothing is compared of it: `test_identity` does that

    def id_of(self, queue: str) -> None:
        """There is none."""

    def number_at(self, queue: str, place: Position) -> int:
        return place if isinstance(place, int) else self.ends[queue][place == "latest"]

    def names(self, options: object, patience: float) -> tuple[str, ...]:
        return tuple(sorted(self.ends))


Make = Callable[..., tuple[StreamQueueStreamReader, Table]]
ALL = ReadAllAvailable()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(options: dict[str, str], **ends: tuple[int, int]) -> tuple[StreamQueueStreamReader, Table]:
        table = Table(**ends)
        monkeypatch.setattr(StreamQueueStreamReader, "_bounds_reader", lambda self: table)
        if "queue" not in options:
            options = {"queuePattern": ".*", **options}
            monkeypatch.setattr(stream_reader, "queue_names", table.names)
        return StreamQueueStreamReader(source_options(options, streaming=True), row_schema()), table

    return make


def ranges(reader: StreamQueueStreamReader, start: Any, end: Any) -> list[tuple[str, int, int]]:
    parts = reader.partitions(start, end)
    assert all(isinstance(part, RangePartition) for part in parts)
    return [(part.wanted.queue, part.wanted.start, part.wanted.end) for part in parts]  # type: ignore[attr-defined]


def test_limits_by_messages_and_by_bytes(make: Make) -> None:
    reader, _ = make({"queue": "a", "maxMessagesPerTrigger": "50"}, a=(0, 200))
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(50)
    assert ranges(reader, start, reader.latestOffset(start, limit)) == [("a", 0, 50)]
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == [("a", 0, 200)]  # Trigger.Once
    reader, _ = make({"queue": "a", "maxBytesPerTrigger": "1500"}, a=(0, 200))
    assert reader.getDefaultReadLimit() == ReadMaxBytes(1500)
    assert ranges(reader, start, reader.latestOffset(start, ReadMaxBytes(1500))) == [("a", 0, 15)]
    reader, _ = make({"queue": "a", "maxBytesPerTrigger": "1500", "maxMessagesPerTrigger": "50"}, a=(0, 200))
    assert ranges(reader, start, reader.latestOffset(start, reader.getDefaultReadLimit())) == [("a", 0, 15)]
    assert make({"queue": "a"}, a=(0, 0))[0].getDefaultReadLimit() == ALL


def test_a_batch_waits_for_enough_messages_but_not_for_ever(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    replace_time(monkeypatch, stream_reader, monotonic=lambda: clock)
    reader, table = make({"queue": "a", "minMessagesPerTrigger": "10", "maxTriggerDelay": "60"}, a=(0, 4))
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    assert reader.reportLatestOffset() == {"a": {"base": 4, "next": 4}}  # the lag shows meanwhile
    clock += 59
    assert reader.latestOffset(start, ALL) == start
    clock += 1
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == [("a", 0, 4)]
    table.ends["a"] = (0, 14)
    assert ranges(reader, end, reader.latestOffset(end, ALL)) == [("a", 4, 14)]


def test_who_asks_for_what_is_there_now_does_not_wait_and_gets_no_more(make: Make) -> None:
    reader, table = make({"queue": "a", "minMessagesPerTrigger": "10"}, a=(0, 4))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    table.ends["a"] = (0, 9)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == [("a", 0, 4)]
    assert reader.latestOffset(end, ALL) is end


def test_what_retention_took_is_an_error_or_counted(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    start = {"a": {"base": 0, "next": 10}, "b": {"base": 0, "next": 3}}
    reader, _ = make({"queue": "a,b"}, a=(25, 30), b=(0, 3))
    with pytest.raises(DataLoss, match=r"15 messages, 10 to 24, of queue 'a' are gone.*failOnDataLoss=false"):
        reader.latestOffset(start, ALL)
    reader, table = make({"queue": "a,b", "failOnDataLoss": "false"}, a=(25, 30), b=(0, 3))
    with caplog.at_level(logging.WARNING, "harebell.spark"):
        end = reader.latestOffset(start, ALL)
    assert "15 messages, 10 to 24" in caplog.text
    assert end == {"a": {"base": 25, "next": 30, "lost": 15}, "b": {"base": 3, "next": 3}}
    assert ranges(reader, start, end) == [("a", 25, 30)]
    table.ends["a"] = (40, 40)
    assert reader.latestOffset(end, ALL) == {"a": {"base": 40, "next": 40, "lost": 25}, "b": {"base": 3, "next": 3}}


EMPTIED = (UNKNOWN, UNKNOWN)


def test_an_emptied_stream_is_waited_for_and_its_next_message_tells_the_loss(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    start = {"a": {"base": 0, "next": 10}}
    reader, table = make({"queue": "a"}, a=EMPTIED)
    with caplog.at_level(logging.WARNING, "harebell.spark"):
        assert reader.latestOffset(start, ALL) is reader.latestOffset(start, ALL) is start
    assert [record.getMessage() for record in caplog.records] == [  # once
        "queue 'a' has no messages any more (retention removed them), and how many from 10 on nobody has read is not "
        "known before its next message comes; waiting for it"
    ]
    assert reader.reportLatestOffset() == {"a": {"base": 10, "next": 10}}  # no lag that is known
    table.ends["a"] = (25, 30)
    with pytest.raises(DataLoss, match="15 messages, 10 to 24, of queue 'a' are gone"):
        reader.latestOffset(start, ALL)
    table.ends["a"] = (10, 12)
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == [("a", 10, 12)]  # nothing was lost


def test_who_asks_for_what_is_there_now_cannot_wait_for_an_emptied_stream(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    start = {"a": {"base": 0, "next": 10}}
    reader, _ = make({"queue": "a"}, a=EMPTIED)
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=r"has no messages any more .* how many from 10 on .*; set failOnDataLoss=false"):
        reader.latestOffset(start, ALL)
    reader, table = make({"queue": "a", "failOnDataLoss": "false"}, a=EMPTIED)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, ALL) is start
    assert "how many from 10 on" in caplog.text
    table.ends["a"] = (25, 30)
    end = reader.latestOffset(start, ALL)  # it came later: not read now, but its number is known
    assert ranges(reader, start, end) == []
    assert end == {"a": {"base": 25, "next": 25, "lost": 15}}


@pytest.mark.parametrize("place, ok", [(10, True), (7, False)])
def test_a_stream_that_is_emptied_while_it_is_read_is_lost_as_far_as_it_was_known(
    make: Make, place: int, ok: bool
) -> None:
    start = {"a": {"base": 0, "next": place}}
    reader, table = make({"queue": "a"}, a=(0, 10))
    reader.prepareForTriggerAvailableNow()
    table.ends["a"] = EMPTIED
    if ok:  # what was there when it began has been read
        assert reader.latestOffset(start, ALL) is start
        return
    with pytest.raises(DataLoss, match="3 messages, 7 to 9, of queue 'a' are gone"):
        reader.latestOffset(start, ALL)
    reader, table = make({"queue": "a", "failOnDataLoss": "false"}, a=(0, 10))
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == [("a", 7, 10)]
    table.ends["a"] = EMPTIED
    assert reader.latestOffset(start, ALL) == {"a": {"base": 10, "next": 10, "lost": 3}}


@pytest.mark.parametrize("place", ["earliest", "latest"])
def test_an_emptied_stream_is_begun_with_its_next_message(make: Make, place: str) -> None:
    reader, table = make({"queue": "a", "startingOffsets": place}, a=EMPTIED)
    start = reader.initialOffset()
    assert start == {"a": {"base": UNKNOWN, "next": UNKNOWN}}
    assert reader.latestOffset(start, ALL) is start
    assert reader.reportLatestOffset() == start
    table.ends["a"] = (25, 30)
    end = reader.latestOffset(start, ALL)
    assert end == {"a": {"base": 25, "next": 30}}
    assert ranges(reader, start, end) == [("a", 25, 30)]


def test_a_record_of_the_broker_is_no_loss(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, table = make({"queue": "a"})
    monkeypatch.setattr(table, "of", lambda queues, **more: {"a": StreamBounds(25, 30, kept=24)})
    start = {"a": {"base": 0, "next": 24}}
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == [("a", 24, 30)]
    with pytest.raises(DataLoss, match="1 messages, 23 to 23"):
        reader.latestOffset({"a": {"base": 0, "next": 23}}, ALL)


def test_a_batch_read_of_an_emptied_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(a=EMPTIED)
    table.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(stream_reader, "BoundsReader", lambda options: table)

    def parts(**more: str) -> list[tuple[str, int, int]]:
        options = source_options({"queue": "a", **more}, streaming=False)
        found = StreamQueueReader(options, row_schema()).partitions()
        return [(part.wanted.queue, part.wanted.start, part.wanted.end) for part in found]  # type: ignore[attr-defined]

    assert parts() == []
    assert parts(endingOffsets='{"a": 50}') == []  # there was nothing when it was asked
    with pytest.raises(DataLoss, match="how many from 10 on"):
        parts(startingOffsets='{"a": 10}')
    assert parts(startingOffsets='{"a": 10}', failOnDataLoss="false") == []
    # The task says that these are gone.
    assert parts(startingOffsets='{"a": 10}', endingOffsets='{"a": 50}') == [("a", 10, 50)]


@pytest.mark.parametrize(
    ("start", "end", "gone", "left"),
    [
        (0, 10, None, [("a", 0, 10)]),
        (0, 11, "10 to 10", [("a", 0, 10)]),
        (4, 1000, "10 to 999", [("a", 4, 10)]),
        (10, 20, "10 to 19", []),
        (15, 20, "15 to 19", []),
        (20, 15, None, []),
    ],
)
def test_an_end_that_does_not_exist_is_said_in_the_plan(
    monkeypatch: pytest.MonkeyPatch, start: int, end: int, gone: str | None, left: list[tuple[str, int, int]]
) -> None:
    table = Table(a=(0, 10))
    table.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(stream_reader, "BoundsReader", lambda options: table)

    def parts(**more: str) -> list[tuple[str, int, int]]:
        places = {"startingOffsets": f'{{"a": {start}}}', "endingOffsets": f'{{"a": {end}}}'}
        options = source_options({"queue": "a", **places, **more}, streaming=False)
        found = StreamQueueReader(options, row_schema()).partitions()
        return [(part.wanted.queue, part.wanted.start, part.wanted.end) for part in found]  # type: ignore[attr-defined]

    if gone is None:
        assert parts() == left
    else:
        with pytest.raises(DataLoss, match=f"queue 'a' ends at message 10 but {gone} were asked for"):
            parts()
    assert parts(failOnDataLoss="false") == left


def test_a_stream_that_was_declared_again_is_an_error_or_begins_anew(make: Make) -> None:
    start = {"a": {"base": 0, "next": 10}, "b": {"base": 0, "next": 3}}
    with pytest.raises(DataLoss, match="ends at message 4 but the checkpoint is at 10"):
        make({"queue": "a,b"}, a=(0, 4), b=(0, 3))[0].latestOffset(start, ALL)
    reader, _ = make({"queue": "a,b", "failOnDataLoss": "false"}, a=(0, 4), b=(0, 3))
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == [("a", 0, 4)]


def test_queues_that_come_later_are_read_from_their_beginning(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    replace_time(monkeypatch, stream_reader, monotonic=lambda: clock)
    reader, table = make({"startingOffsets": "latest"}, a=(0, 10))
    start = reader.initialOffset()
    assert start == {"a": {"base": 10, "next": 10}}
    table.ends["b"] = (5, 8)
    assert reader.latestOffset(start, ALL) is start  # the list of queues is not looked at all the time
    clock += 31
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == [("b", 5, 8)]


@pytest.mark.parametrize("n", [0, 3])
def test_the_checkpoint_of_a_drain_is_refused(make: Make, n: int) -> None:
    start: dict[str, Any] = {"drain": "ab" * 16, "n": n, "parts": 1, "rows": {"a": 5} if n else {}}
    reader, _ = make({"queue": "a"}, a=(0, 10))
    with pytest.raises(InvalidArgument, match=r"drained classic or quorum queues.* stream queues now \(a\): declare"):
        reader.latestOffset(start, ALL)
    with pytest.raises(InvalidArgument, match="start with a new checkpoint"):
        reader.partitions({}, start)


def test_a_place_of_a_queue_that_is_not_there(make: Make) -> None:
    reader, table = make({"startingOffsets": '{"a": 3, "b": 4}'}, a=(0, 10), b=(0, 10))
    start = reader.initialOffset()
    assert {queue: entry["next"] for queue, entry in start.items()} == {"a": 3, "b": 4}
    del table.ends["b"]
    with pytest.raises(InvalidArgument, match=r"'startingOffsets' has a position for 'b'.* that are read: a$"):
        make({"startingOffsets": '{"a": 3, "b": 4}'}, **table.ends)[0].initialOffset()


def test_a_first_place_behind_the_end_names_the_option(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    given = {"queue": "a", "startingOffsets": '{"a": 1000}'}
    reader, _ = make(given, a=(0, 10))
    with pytest.raises(DataLoss, match=r"ends at message 10, and the query is to begin at 1000: .*'startingOffsets'"):
        reader.latestOffset(reader.initialOffset(), ALL)
    with pytest.raises(DataLoss, match="ends at message 10 but the checkpoint is at 1000"):
        reader.latestOffset({"a": {"base": 0, "next": 1000}}, ALL)
    reader, _ = make({**given, "failOnDataLoss": "false"}, a=(0, 10))
    start = reader.initialOffset()
    assert ranges(reader, start, reader.latestOffset(start, ALL)) == [("a", 0, 10)]


def test_queues_that_are_gone(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    start = {"a": {"base": 0, "next": 10}, "b": {"base": 0, "next": 3}}
    with pytest.raises(InvalidArgument, match="which option 'queue' does not name any more"):
        make({"queue": "a"}, a=(0, 10))[0].latestOffset(start, ALL)
    with pytest.raises(DataLoss, match="not there any more: b"):
        make({}, a=(0, 10))[0].latestOffset(start, ALL)
    reader, _ = make({"failOnDataLoss": "false"}, a=(0, 12))
    end = reader.latestOffset(start, ALL)
    assert ranges(reader, start, end) == [("a", 10, 12)]
    assert end["b"] == {"base": 3, "next": 3}
    caplog.clear()
    assert reader.latestOffset(end, ALL) is end
    assert caplog.text == ""
