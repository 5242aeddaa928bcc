"""Whatever the client publishes of a delivery's headers keeps its bytes: types, widths and order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import pytest
from hypothesis import given

from harebell import Message
from harebell.bridge.options import parse_shovel
from harebell.bridge.rewriting import Rewriter
from harebell.client.messages import Delivery, encoded
from harebell.client.patterns.retry import dead_letter_of, given_up, tried_again
from harebell.protocol.v091 import Content, Properties, Table, encode_content
from harebell.protocol.v091.fields import write_table
from harebell.protocol.v091.typed_values import Int16
from harebell.routing.dead_letter import Death
from harebell.spark.jobs.deadletters.redriving import redriven_message
from harebell.spark.schema import headers_from_json, headers_to_json
from tests.headers import EVERY_TYPE, entries_of, raw_table
from tests.protocol.v091 import strategies


def delivered(raw_headers: bytes) -> Delivery:
    content = Content(1, b"", encode_content(1, b"\x20\0" + raw_headers, b"body", 0), 4)
    return Delivery(content, cast("Any", None), "c", 1, False, "x", "k")


def raw_of(properties: bytes) -> bytes:
    return Content(1, b"", encode_content(1, properties, b"", 0), 0).raw_headers


def published_again(delivery: Delivery) -> bytes:
    return encoded(Message(delivery.body, properties=delivery.properties))[0]


def with_a_header_more(delivery: Delivery) -> bytes:
    return encoded(Message(delivery.body, headers={**delivery.headers, "x-more": 1}))[0]


def retried(delivery: Delivery) -> bytes:
    return tried_again(delivery, ValueError("no")).properties.encode()


def given_up_at_last(delivery: Delivery) -> bytes:
    return given_up(delivery, "q", ValueError("no"), 5).properties.encode()


def brought_back(delivery: Delivery) -> bytes:
    dead = delivered(raw_of(given_up_at_last(delivery)))
    return encoded(dead_letter_of(dead).publication().message)[0]


def redriven(delivery: Delivery) -> bytes:
    return redriven_message(delivery, ("", "q"), "dead", bytes(16), again=True).properties.encode()


def through_spark(delivery: Delivery) -> bytes:
    text = headers_to_json(delivery.headers)
    return Properties(headers=None if text is None else headers_from_json(text)).encode()


def shovelled(delivery: Delivery) -> bytes:
    ends = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "a", "dest-queue": "b"}
    options = parse_shovel({**ends, "dest-add-forward-headers": True, "dest-add-timestamp-header": True})
    return Rewriter(options, "amqp://", "amqp://", {"shovelled-by": "me"}).prepare(delivery, None).properties


REWRITES: Final[list[Callable[[Delivery], bytes]]] = [
    published_again,
    with_a_header_more,
    retried,
    given_up_at_last,
    brought_back,
    redriven,
    shovelled,
    through_spark,
]


@pytest.mark.parametrize("rewrite", REWRITES)
def test_every_type_stays_as_it_was(rewrite: Callable[[Delivery], bytes]) -> None:
    after = entries_of(raw_of(rewrite(delivered(raw_table(EVERY_TYPE)))))
    assert {name: after.get(name) for name in EVERY_TYPE} == EVERY_TYPE
    assert all(name.startswith("x-") for name in after if name not in EVERY_TYPE)


@pytest.mark.repeats
@pytest.mark.parametrize("rewrite", REWRITES)
@given(table=strategies.tables)
def test_any_table_stays_as_it_was(rewrite: Callable[[Delivery], bytes], table: Table) -> None:
    mine = {name: value for name, value in table.items() if not name.startswith(("x-", "CC", "BCC"))}
    raw = write_table(mine)
    after = entries_of(raw_of(rewrite(delivered(raw)))) if mine else {}
    assert raw_table({name: value for name, value in after.items() if not name.startswith("x-")}) == raw


def test_earlier_deaths_stay_as_they_were() -> None:
    death = {**Death("q", "expired", 3, "x", ("k",), 7).table(), "of another broker": Int16(5)}
    raw = write_table({"x-death": [death, "no death"]})
    before = entries_of(raw)["x-death"][5:]
    assert entries_of(raw_of(given_up_at_last(delivered(raw))))["x-death"].endswith(before)
