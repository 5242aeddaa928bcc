from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest

from harebell import errors
from harebell.client.messages import Message, Publication
from harebell.protocol.v091 import Properties
from harebell.spark.options import source_options
from harebell.spark.payload import bad_rows
from harebell.spark.payload.bad_rows import BadRowsPublisher, fail, publication
from harebell.spark.schema import Rows, row_schema
from tests.spark.fakes import FakeDelivery

FULL = Properties(
    content_type="application/json",
    headers={"n": 1, "raw": b"\x00", "CC": ["other"], "BCC": ["more"]},
    delivery_mode=1,
    priority=3,
    correlation_id="c",
    expiration="1000",
    message_id="m",
    user_id="somebody",
)
DELIVERIES = [FakeDelivery(b"good"), FakeDelivery(b"bad", "ex", "key", properties=FULL), FakeDelivery(b"worse")]


def batch(offsets: list[int] | None) -> Any:
    return Rows(row_schema()).batch("q", DELIVERIES, offsets)  # type: ignore[arg-type]


def message_of(made: Publication) -> Message:
    assert isinstance(made.message, Message)
    return made.message


def row(number: int, offsets: list[int] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = batch(offsets).to_pylist()[number]
    return found


def test_a_failure_names_the_message() -> None:
    with pytest.raises(errors.UndecodableBody) as caught:
        fail(batch([5, 6, 7]), {2: "later", 1: "why"})
    assert str(caught.value) == "message 6 of queue 'q' (message_id 'm') cannot be read: why; 1 more in this batch"
    with pytest.raises(errors.UndecodableBody, match=r"^a message of queue 'q' cannot be read: why$"):
        fail(batch(None), {2: "why"})


def test_the_message_again_with_what_was_wrong() -> None:
    made = publication(row(1, [5, 6, 7]), "why", "dead", None)
    assert (made.exchange, made.routing_key, made.mandatory) == ("dead", "key", True)
    assert message_of(made).body == b"bad"
    assert message_of(made).properties == Properties(
        content_type="application/json",
        headers={
            "n": 1,
            "raw": b"\x00",
            "x-bad-row-cc": ["other"],
            "x-bad-row-bcc": ["more"],
            "x-bad-row-expiration": "1000",
            "x-bad-row-user-id": "somebody",
            "x-bad-row-reason": "why",
            "x-bad-row-queue": "q",
            "x-bad-row-offset": 6,
            "x-bad-row-exchange": "ex",
            "x-bad-row-routing-key": "key",
        },
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        message_id="m",
    )


def test_a_timestamp_that_no_date_holds_goes_along() -> None:
    far = {**row(0), "timestamp_number": 1_700_000_000_000}
    assert message_of(publication(far, "why", "dead", None)).properties.timestamp == 1_700_000_000_000


def test_a_long_reason_is_cut_and_a_drained_queue_has_no_offset() -> None:
    headers = message_of(publication(row(0), "x" * 10_000, "", "dead")).properties.headers
    assert headers == {
        "x-bad-row-reason": "x" * 500,
        "x-bad-row-queue": "q",
        "x-bad-row-exchange": "",
        "x-bad-row-routing-key": "q",
    }
    assert publication(row(0), "", "", "dead").routing_key == "dead"


class Link:
    """Takes what is published, after failing as often as it is told to."""

    made = 0
    failures: ClassVar[list[Exception]] = []
    published: ClassVar[list[Publication]] = []

    def __init__(self, url: str, timeout: float) -> None:
        type(self).made += 1

    def confirm_select(self) -> None:
        pass

    def publish(self, publications: Iterable[Publication], window: int, timeout: float) -> int:
        if self.failures:
            raise self.failures.pop()
        self.published.extend(publications)
        return 0

    def close(self) -> None:
        type(self).made -= 1


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> type[Link]:
    fresh = type("FreshLink", (Link,), {"made": 0, "failures": [], "published": []})
    monkeypatch.setattr(bad_rows, "Link", fresh)
    return fresh


def publisher(retry: str = "60") -> BadRowsPublisher:
    given = {
        "queue": "q",
        "payload": "text",
        "badrows": "dead-letter",
        "badrowsexchange": "dead",
        "retrytimeout": retry,
    }
    return BadRowsPublisher(source_options(given, streaming=False))


def test_bad_rows_are_published_and_counted(link: type[Link], caplog: pytest.LogCaptureFixture) -> None:
    made = publisher()
    assert link.made == 0
    with caplog.at_level(logging.WARNING):
        made.publish(batch(None), {1: "why", 2: "because"})
        made.publish(batch(None), {0: "again"})
    assert link.made == 1
    assert [message_of(p).body for p in link.published] == [b"bad", b"worse", b"good"]
    assert [json.dumps((message_of(p).properties.headers or {})["x-bad-row-reason"]) for p in link.published] == [
        '"why"',
        '"because"',
        '"again"',
    ]
    assert "2 of 3 messages of queue 'q' could not be read and went to exchange 'dead'; the first: why" in caplog.text
    made.close()
    made.close()
    assert link.made == 0


def test_a_lost_connection_is_opened_again(link: type[Link]) -> None:
    link.failures.append(errors.ConnectionLost("gone"))
    made = publisher()
    made.publish(batch(None), {1: "why"})
    assert [message_of(p).body for p in link.published] == [b"bad"]
    assert link.made == 1


@pytest.mark.parametrize(
    "error", [errors.Nacked("no"), errors.NotFound("no exchange 'dead'"), errors.ConnectionLost("x")]
)
def test_what_cannot_be_published_fails(link: type[Link], error: Exception) -> None:
    link.failures.append(error)
    with pytest.raises(type(error)):
        publisher(retry="0").publish(batch(None), {1: "why"})
