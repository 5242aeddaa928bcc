"""Reading a stream queue without Spark, against a fake one: exact ranges whatever the connection does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.fakes import FakeStream
from warren.errors import ConnectionLost, DataLoss
from warren.spark import ends, stream_queue
from warren.spark.ends import StreamEnds
from warren.spark.offsets import Range
from warren.spark.options import SourceOptions, source_options
from warren.spark.stream_queue import read_range


def options(**more: str) -> SourceOptions:
    base = {"queue": "s", "readTimeout": "0.05", "retryTimeout": "5", "batchRows": "10"}
    return source_options({**base, **more}, streaming=False)


def use(monkeypatch: pytest.MonkeyPatch, stream: FakeStream) -> FakeStream:
    monkeypatch.setattr(stream_queue, "Link", stream.link)
    monkeypatch.setattr(ends, "Link", stream.link)
    monkeypatch.setattr(stream_queue, "Feed", stream.feed)
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
    monkeypatch.setattr(stream_queue.time, "sleep", lambda seconds: None)
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


def test_what_retention_took_is_data_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeStream(30, 60))
    with pytest.raises(DataLoss, match=r"20 messages, 10 to 29, of queue 's' are gone.*failOnDataLoss=false"):
        read(10, 50)
    assert read(10, 50, failOnDataLoss="false") == list(range(30, 50))


def test_an_end_that_the_stream_does_not_reach_is_data_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeStream(0, 30))
    with pytest.raises(DataLoss, match="ends at message 30 but 30 to 39"):
        read(10, 40)
    assert read(10, 40, failOnDataLoss="false") == list(range(10, 30))


@pytest.mark.parametrize("first, tail", [(0, 0), (0, 1), (17, 400), (3, 10)])
@pytest.mark.parametrize("lag", [0, 5])
def test_both_ends_of_a_stream(monkeypatch: pytest.MonkeyPatch, first: int, tail: int, lag: int) -> None:
    use(monkeypatch, FakeStream(first, tail)).count_lag = lag
    asking = StreamEnds(options())
    assert (asking.first("s"), asking.tail("s")) == (first if tail else 0, tail)
    asking.close()


def test_asking_goes_on_over_a_broker_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = use(monkeypatch, FakeStream(0, 12))
    pauses: list[float] = []
    monkeypatch.setattr("warren.spark.amqp.time.sleep", pauses.append)
    stream.refuse = 2
    assert StreamEnds(options()).tail("s") == 12
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

        opened.receive = stumbling
        return opened

    stream.chunk = 20
    monkeypatch.setattr(ends, "_PROBE_PREFETCH", 8)
    monkeypatch.setattr(ends, "Link", link)
    assert StreamEnds(options()).tail("s") == 100
