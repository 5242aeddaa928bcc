from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harebell.errors import InvalidArgument
from harebell.spark.options import SourceOptions, source_options
from harebell.spark.options.positions import position_of
from harebell.spark.options.streams import check_places, position_for


def batch(**given: str) -> SourceOptions:
    return source_options({"queue": "a", **given}, streaming=False)


@pytest.mark.parametrize(
    "text, place",
    [
        ("earliest", "earliest"), ("first", "earliest"), ("latest", "latest"), ("Next", "latest"), ("last", "last"),
        ("1h", "1h"), ('{"a": 12}', {"a": 12}), ('{"a": "last"}', {"a": "last"}), ('{"a": "10m"}', {"a": "10m"}),
    ],
)  # fmt: skip
def test_where_to_start(text: str, place: object) -> None:
    assert batch(startingOffsets=text).stream.starting == place


@pytest.mark.parametrize("text", ["", "bogus", "12", "-1", '{"a": -1}', '{"a": true}', "{", "1x", '{"a": 1.5}'])
def test_where_not(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"startingOffsets.*takes 'earliest'.*a span such as '1h'"):
        batch(startingOffsets=text)


@pytest.mark.parametrize(
    "text", ["2026-01-05T10:00:00Z", "2026-01-05 11:00:00+01:00", "1767607200", "2026-01-05T10:00"]
)
def test_moments(text: str) -> None:
    options = batch(startingTimestamp=text, endingTimestamp=text).stream
    assert options.starting == options.ending == datetime(2026, 1, 5, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-01-05T10:00:00.5Z", "-5", "1e9", "99999999999999999", "1901-01-01"]
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"startingTimestamp.*2026-01-05T10:00:00Z"):
        batch(startingTimestamp=text)


def test_spans_and_first_are_for_beginnings() -> None:
    assert batch(endingOffsets="next").stream.ending == "latest"
    for text in ("1h", "first", "last", "earliest"):
        with pytest.raises(InvalidArgument, match="endingOffsets"):
            batch(endingOffsets=text)


@pytest.mark.parametrize(
    "given, says",
    [
        ({"startingOffsets": "first", "startingTimestamp": "1"}, "either option 'startingOffsets'"),
        ({"endingOffsets": "next", "endingTimestamp": "1"}, "either option 'endingOffsets'"),
        ({"queuePattern": "a.*"}, "give one of"),
        ({"superstream": "s"}, "give one of"),
        ({"managementUrl": "http://x"}, "is for 'queuePattern'"),
        ({"matchUnfiltered": "true"}, "'filterValues', which is not given"),
        ({"pushdown": "true"}, "has no option 'pushdown'"),
        (
            {"minMessagesPerTrigger": "5"},
            "option 'minMessagesPerTrigger' is for streaming reads, and this is a batch read",
        ),
    ],
)
def test_what_cannot_be_meant(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        batch(**given)


def test_patterns_and_addresses() -> None:
    options = source_options({"queuePattern": r"o-\d+", "managementUrl": "http://h:15672"}, streaming=True)
    assert options.queues == ()
    assert options.stream.pattern is not None
    assert options.stream.pattern.fullmatch("o-12")
    with pytest.raises(InvalidArgument, match="no regular expression"):
        source_options({"queuePattern": "("}, streaming=True)
    with pytest.raises(InvalidArgument, match="must start with http"):
        source_options({"queuePattern": ".*", "managementUrl": "amqp://h"}, streaming=True)
    with pytest.raises(InvalidArgument, match="'queue' is missing"):
        source_options({}, streaming=True)


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_a_place_of_a_queue_that_a_pattern_has_not_found(option: str) -> None:
    options = source_options({"queuePattern": "a.*", option: '{"a7": 7}'}, streaming=False).stream
    check_places(options, [f"a{number}" for number in range(30)])
    with pytest.raises(
        InvalidArgument, match=rf"'{option}' has a position for 'a7'.* are read: b0, .*, b19 and 10 more$"
    ):
        check_places(options, [f"b{number}" for number in range(30)])


@pytest.mark.parametrize("text", ["", " , ", ","])
def test_filter_values_without_a_value(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"'filterValues' is .*, without a value: leave it out to read all"):
        batch(filterValues=text)


def test_a_pattern_takes_places_for_some_of_its_queues() -> None:
    options = source_options({"queuePattern": "a.*", "startingOffsets": '{"a1": 7}'}, streaming=True)
    assert [position_for(options.stream.starting, queue) for queue in ("a1", "a2")] == [7, "earliest"]
    assert position_of(None) is None
