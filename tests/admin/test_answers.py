"""JSON of what the broker's objects have in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from harebell.admin.answers import Answer, Refused, encode, to_json
from harebell.broker.operations.definitions import json_table
from harebell.protocol.v091.typed_values import Int8, Int64


def test_values_of_amqps_tables() -> None:
    table = {
        "bytes": b"a\xff", "time": datetime(2026, 1, 2, tzinfo=UTC), "decimal": Decimal("1.5"), "wide": Int64(1 << 40),
        "narrow": Int8(3), "list": [Int8(1), {"deep": b"x"}], "nothing": None, "flag": True,
    }  # fmt: skip
    assert json.loads(encode(json_table(table))) == {
        "bytes": "Not UTF-8, base64 is: Yf8=", "time": 1767312000, "decimal": 1.5, "wide": 1 << 40, "narrow": 3,
        "list": [1, {"deep": "x"}], "nothing": None, "flag": True,
    }  # fmt: skip


def test_names_that_are_no_unicode() -> None:
    assert json.loads(encode({"a\udcff": ["b\udcff", 1]})) == {"a?": ["b?", 1]}


def test_what_has_no_json_is_a_defect() -> None:
    with pytest.raises(TypeError):
        encode(object())


def test_refusals_and_answers() -> None:
    refused = Refused(404, "Object Not Found", "Not Found", headers={"a": "b"})
    assert "404" in str(refused)
    answer = refused.answer()
    assert (answer.status, json.loads(answer.pieces[0]), answer.headers) == (
        404, {"error": "Object Not Found", "reason": "Not Found"}, {"a": "b"},
    )  # fmt: skip
    assert Refused(401, "x", "y", bare=True).answer().pieces == ()
    assert Answer(200, [b"ab", b"c"]).size == 3
    assert to_json([1]).pieces == (b"[1]",)
