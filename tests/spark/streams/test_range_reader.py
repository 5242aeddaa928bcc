"""Reading a stream queue without Spark, against a fake one: exact ranges whatever the connection does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harebell.errors import ConnectionLost, DataLoss, DeadlineExceeded
from harebell.spark import connection as connecting
from harebell.spark.options import SourceOptions, source_options
from harebell.spark.streams import bounds, range_reader
from harebell.spark.streams.bounds import BoundsReader
from harebell.spark.streams.offsets import UNKNOWN, Range
from harebell.spark.streams.range_reader import read_range
from tests.replaced_time import replace_time
from tests.spark.fakes import FakeStream


def options(**more: str) -> SourceOptions:
    base = {"queue": "s", "readTimeout": "0.05", "retryTimeout": "5", "batchRows": "10"}
    return source_options({**base, **more}, streaming=False)


def use(monkeypatch: pytest.MonkeyPatch, stream: FakeStream) -> FakeStream:
    monkeypatch.setattr(range_reader, "Link", stream.link)
    monkeypatch.setattr(bounds, "Link", stream.link)
    monkeypatch.setattr(range_reader, "SocketReader", stream.feed)
    return stream


def read(start: int, end: int, **more: str) -> list[int]:
    numbers: list[int] = []
    for piece in read_range(options(**more), Range("s", start, end)):
        assert isinstance(piece.chunk, list)
        assert [piece.chunk[row].body for row in piece.rows] == [b"%d" % number for number in piece.numbers]
        assert len(piece.rows) <= 10
        numbers += piece.numbers.tolist()
    return numbers


@pytest.mark.parametrize("start, end", [(0, 50), (3, 4), (13, 37), (49, 50), (20, 20)])
def test_exactly_the_range_is_read(monkeypatch: pytest.MonkeyPatch, start: int, end: int) -> None:
    use(monkeypatch, FakeStream(0, 50))
    assert read(start, end) == list(range(start, end))


@pytest.mark.parametrize("life", [1, 2, 3])
def test_a_lost_connection_is_resumed_without_a_gap_or_a_copy(monkeypatch: pytest.MonkeyPatch, life: int) -> None:
    replace_time(monkeypatch, range_reader, connecting, sleep=lambda seconds: None)
    stream = use(monkeypatch, FakeStream(0, 200, life=life * 2))
    stream.refuse = 1
    assert read(5, 180) == list(range(5, 180))
    assert stream.opened > 2


def test_a_broker_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 20))
    stream.refuse = 10**6
    with pytest.raises(ConnectionLost):
        read(0, 20, retryTimeout="0")


def test_numbers_need_not_be_consecutive(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeStream(0, 50, missing=[10, 11, 20, 29]))
    assert read(11, 30) == [n for n in range(11, 30) if n not in (11, 20, 29)]


@pytest.mark.parametrize(
    "product, gone", [("Harebell", "20 messages, 10 to 29"), ("RabbitMQ", "19 messages, 10 to 28")]
)
def test_what_retention_took_is_data_loss(monkeypatch: pytest.MonkeyPatch, product: str, gone: str) -> None:
    use(monkeypatch, FakeStream(30, 60)).product = product
    with pytest.raises(DataLoss, match=rf"{gone}, of queue 's' are gone.*failOnDataLoss=false"):
        read(10, 50)
    assert read(10, 50, failOnDataLoss="false") == list(range(30, 50))


@pytest.mark.parametrize(
    "product, gone", [("Harebell", "26 messages, 14 to 39"), ("RabbitMQ", "25 messages, 14 to 38")]
)
@pytest.mark.parametrize("again", [False, True])
def test_what_retention_takes_while_it_is_read_is_data_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, product: str, gone: str, again: bool
) -> None:
    stream = use(monkeypatch, FakeStream(0, 60))
    stream.product = product
    plain, received = stream.feed, 0

    def feed(url: str, timeout: float) -> Any:
        opened = plain(url, timeout)
        receive = opened.receive

        def moved_on(timeout: float) -> Any:
            nonlocal received
            received += 1
            if received == 3:  # 0 to 13 have come
                stream.numbers, opened.at = list(range(40, 60)), 0
            got = receive(timeout)
            if again and received == 3:
                got = [got[0] + receive(timeout)[0]]
            return got

        opened.receive = moved_on  # type: ignore[method-assign]
        return opened

    monkeypatch.setattr(range_reader, "SocketReader", feed)
    with pytest.raises(DataLoss, match=rf"{gone}, of queue 's' are gone"):
        read(0, 50)
    stream.numbers, received = list(range(60)), 0
    assert read(0, 50, failOnDataLoss="false") == [*range(14), *range(40, 50)]
    assert f"{gone}, of queue 's'" in caplog.text


@pytest.mark.parametrize(
    "product, numbers, jumps",
    [
        ("Harebell", [5, 6, 7, 8], []),
        ("Harebell", [7, 8, 9], []),
        ("Harebell", [3, 4], []),
        ("Harebell", [8, 9, 11, 15], [(7, 8), (10, 11), (12, 15)]),
        ("RabbitMQ", [8, 9, 11, 15], [(12, 15)]),  # a record of its own takes one number
        ("RabbitMQ", [9, 10], [(7, 9)]),
    ],
)
def test_jumps(product: str, numbers: list[int], jumps: list[tuple[int, int]]) -> None:
    assert range_reader._jumps(product, 7, np.array(numbers, np.int64)) == jumps


def test_the_record_that_begins_a_segment_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeStream(30, 60))
    assert read(29, 50) == list(range(30, 50))


def test_a_stream_that_retention_emptied_is_data_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use(monkeypatch, FakeStream(0, 60)).empty()
    with pytest.raises(DataLoss, match=r"40 messages, 10 to 49, of queue 's' are gone.*failOnDataLoss=false"):
        read(10, 50)
    assert read(10, 50, failOnDataLoss="false") == []
    assert "40 messages, 10 to 49" in caplog.text


def test_a_stream_that_is_emptied_while_a_gap_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(30, 60))
    plain = stream.link

    def link(url: str, timeout: float) -> Any:
        stream.empty()
        return plain(url, timeout)

    monkeypatch.setattr(range_reader, "Link", link)
    with pytest.raises(DataLoss, match="19 messages, 10 to 28"):
        read(10, 50)


def test_an_end_that_the_stream_does_not_reach_is_data_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeStream(0, 30))
    with pytest.raises(DataLoss, match="ends at message 30 but 30 to 39"):
        read(10, 40)
    assert read(10, 40, failOnDataLoss="false") == list(range(10, 30))


@pytest.mark.parametrize("first, tail", [(0, 0), (0, 1), (17, 400), (3, 10)])
@pytest.mark.parametrize("lag, late", [(0, 0), (5, 0), (400, 0), (0, 3), (400, 3)])
def test_both_ends_of_a_stream(monkeypatch: pytest.MonkeyPatch, first: int, tail: int, lag: int, late: int) -> None:
    stream = use(monkeypatch, FakeStream(first, tail))
    stream.count_lag, stream.late = lag, late
    asking = BoundsReader(options())
    assert (asking.first("s"), asking.tail("s")) == (first if tail else 0, tail)
    asking.close()


def test_records_of_the_broker_are_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeStream(17, 40)).records = 100
    monkeypatch.setattr(bounds, "_DISAGREEMENT", 3600.0)
    found = BoundsReader(options(readTimeout="3600")).of(["s"])["s"]
    assert (found.first, found.tail, found.kept, found.emptied) == (17, 40, 16, False)


def test_the_ends_of_an_emptied_stream_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 60))
    stream.empty()
    asking = BoundsReader(options())
    assert asking.of(["s"])["s"].emptied
    assert [asking.number_at("s", place) for place in ("earliest", "latest", "1h")] == [UNKNOWN] * 3
    stream.numbers = [61, 62]
    found = asking.of(["s"])["s"]
    assert (found.first, found.tail, found.kept) == (61, 63, 60)


def test_a_stream_found_empty_is_not_doubted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 60))
    stream.empty()
    asking = BoundsReader(options())
    asking.of(["s"])
    assert stream.overtakes > 1
    stream.overtakes = 0
    asking.of(["s"])
    assert stream.overtakes == 1


def test_an_emptied_stream_counts_0_for_a_while_after_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 60))
    stream.empty()
    stream.count_lag = 1

    def sleep(seconds: float) -> None:
        stream.count_lag = 0

    replace_time(monkeypatch, bounds, sleep=sleep)
    monkeypatch.setattr(bounds, "_FIRST_WAIT", 0.0)
    monkeypatch.setattr(bounds, "_DISAGREEMENT", 0.0)
    asking = BoundsReader(options(readTimeout="30"))
    assert asking.of(["s"], reached={"s": 60})["s"].emptied


def test_an_end_before_what_was_reached_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 50))

    def sleep(seconds: float) -> None:
        stream.numbers.append(len(stream.numbers))

    replace_time(monkeypatch, bounds, sleep=sleep)
    asking = BoundsReader(options(readTimeout="30"))
    assert asking.of(["s"], reached={"s": 53})["s"].tail == 53
    assert asking.of(["s"], reached={"s": 53})["s"].tail == 53  # at once
    stream.product = "Harebell"  # there is no doubt of what it counts
    asking.close()
    assert asking.of(["s"], reached={"s": 60})["s"].tail == 53
    assert BoundsReader(options()).of(["s"], reached={"s": 60})["s"].tail == 53


def test_a_silence_with_a_count_is_an_error_of_a_broker_whose_order_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = use(monkeypatch, FakeStream(0, 60))
    stream.empty()
    stream.product = "Other"
    with pytest.raises(DeadlineExceeded, match="has 1 messages but delivered none"):
        BoundsReader(options(retryTimeout="0")).first("s")


def test_asking_goes_on_over_a_broker_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 12))
    pauses: list[float] = []
    monkeypatch.setattr("harebell.spark.connection.time.sleep", pauses.append)
    stream.refuse = 2
    assert BoundsReader(options()).tail("s") == 12
    assert pauses == [0.1, 0.2]


def test_silence_is_doubted_while_the_count_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 100))
    quiet = 0
    plain = stream.link

    def link(url: str, timeout: float) -> Any:
        opened = plain(url, timeout)
        receive = opened.receive

        def stumbling(most: int, timeout: float) -> Any:
            nonlocal quiet
            quiet += 1
            return [] if quiet in (4, 5, 6) else receive(most, timeout)

        opened.receive = stumbling  # type: ignore[method-assign]
        return opened

    stream.chunk = 20
    stream.product = "Other"
    monkeypatch.setattr(bounds, "_PROBE_PREFETCH", 8)
    monkeypatch.setattr(bounds, "Link", link)
    assert BoundsReader(options()).tail("s") == 100
