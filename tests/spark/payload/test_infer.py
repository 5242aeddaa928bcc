from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.types import NullType

from harebell.errors import InvalidArgument
from harebell.spark.payload.infer import ddl, type_of_bodies, variant_type


def inferred(*values: Any) -> str:
    return ddl(
        type_of_bodies([value if isinstance(value, bytes) else json.dumps(value).encode() for value in values], "q")
    )


def test_a_type_that_fits_all() -> None:
    assert inferred(
        {"id": 1, "n": 1, "name": "x", "ok": True, "at": {"lat": 1.5}, "l": [1, 2.5], "never": None, "none": {}},
        b"not JSON",
        b"\xff",
        None,
        [1],
        {"id": 2, "n": 2.5, "name": None, "at": {"lon": 1, "lat": None}, "l": [], "routing-key": "a", "big": 1 << 63},
    ) == (
        "id bigint, n double, name string, ok boolean, at struct<lat: double, lon: bigint>, l array<double>, "
        "never string, none map<string,string>, `routing-key` string, big double"
    )


def test_arrays_of_objects_and_odd_names() -> None:
    assert (
        inferred({"a": [{"x`y": 1}, {"Z": [[None]]}]}) == "a array<struct<`x``y`: bigint, `Z`: array<array<string>>>>"
    )


@pytest.mark.parametrize(
    "values, said",
    [
        ([{"a": {"b": 1}}, {"a": {"b": "x"}}], "'payload.a.b' is bigint and string in the sample"),
        ([{"a": [1, "x"]}], r"'payload.a\[\]' is bigint and string in the sample"),
        ([{"a": [True]}, {"a": [{}]}], r"'payload.a\[\]' is boolean and struct<>"),
        ([{"a": 1}, {"a": [1]}], "'payload.a' is bigint and array<bigint>"),
        ([[1], "x"], "no JSON object in the sample of q"),
        ([], "no JSON object in the sample of q"),
    ],
)
def test_what_has_no_type(values: list[Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        inferred(*values)


def test_what_spark_says_of_a_sample() -> None:
    kind = variant_type(
        "OBJECT<a: ARRAY<BIGINT>, `b``c d`: DECIMAL(3,1), `e`: OBJECT<>, f-g: VOID, h: ARRAY<OBJECT<i: BOOLEAN>>, "
        "j: DOUBLE>"
    )
    assert kind.simpleString() == (
        "struct<a:array<bigint>,b`c d:double,e:struct<>,f-g:void,h:array<struct<i:boolean>>,j:double>"
    )
    assert variant_type("VOID") == NullType()


@pytest.mark.parametrize(
    "text, said",
    [
        ("OBJECT<a: OBJECT<b: VARIANT>>", "'payload.a.b' is of several types in the sample"),
        ("OBJECT<a: TIMESTAMP>", "'payload.a' is TIMESTAMP in the sample, which"),
        ("OBJECT<a: BIGINT", "'>' is missing"),
        ("OBJECT<a BIGINT>", "':' is missing"),
        ("BIGINT>", "ends too late"),
        ("OBJECT<a.b: BIGINT>", "in a form that is not known here"),
        ("", "is nothing in the sample"),
    ],
)
def test_what_spark_may_say_and_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        variant_type(text)
