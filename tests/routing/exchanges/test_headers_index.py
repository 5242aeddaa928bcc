from __future__ import annotations

import copy

import pytest
from hypothesis import given, strategies as st

from harebell.errors import PreconditionFailed
from harebell.routing.exchanges.headers_index import HeadersIndex, HeadersMatch
from tests.routing.naive import headers_match

CASES = [  # arguments, headers, matches
    ({}, {}, True),
    ({}, {"a": 1}, True),
    ({"x-match": "all"}, {}, True),
    ({"x-match": "any"}, {}, False),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"a": 1}, {"a": 1}, True),
    ({"a": 1}, {}, False),
    ({"a": 1}, {"a": "1"}, False),
    ({"a": 1}, {"a": True}, False),
    ({"a": True}, {"a": True}, True),
    ({"a": "b"}, {"a": b"b"}, True),
    ({"a": None}, {"a": "whatever"}, True),
    ({"a": None}, {"a": None}, True),
    ({"a": None}, {"b": 1}, False),
    ({"a": 1}, {"a": None}, False),
    ({"a": {"b": [1]}}, {"a": {"b": [1]}}, True),
    ({"a": 1, "b": 2}, {"a": 1}, False),
    ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 3}, False),
    ({"x-match": "any", "a": None}, {"a": 3}, True),
    ({"x-match": "any", "a": None}, {}, False),
    ({"x-a": 1}, {}, True),
    ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
    ({"x-match": "all-with-x", "x-a": 1}, {}, False),
    ({"x-match": "all-with-x", "x-a": 1}, {"x-a": 1}, True),
    ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
    ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
    ({"x-match": "all-with-x"}, {}, True),
]


@pytest.mark.parametrize("arguments, headers, matches", CASES)
def test_one_binding(arguments: dict[str, object], headers: dict[str, object], matches: bool) -> None:
    assert HeadersMatch(arguments).matches(headers) is matches


@pytest.mark.parametrize(
    "value, text",
    [
        ("zz", 'Invalid x-match field value <<"zz">>; expected all, any, all-with-x, or any-with-x'),
        ("", "Invalid x-match field value <<>>; expected all, any, all-with-x, or any-with-x"),
        (1, "Invalid x-match field type signedint (value 1); expected longstr"),
        (True, "Invalid x-match field type bool (value true); expected longstr"),
        (None, "Invalid x-match field type void (value undefined); expected longstr"),
        (b"all", 'Invalid x-match field type binary (value <<"all">>); expected longstr'),
        (["a", 1], 'Invalid x-match field type array (value [{longstr,<<"a">>},{signedint,1}]); expected longstr'),
        ({"a": 1}, 'Invalid x-match field type table (value [{<<"a">>,signedint,1}]); expected longstr'),
    ],
)
def test_a_bad_x_match_is_refused_in_rabbitmqs_words(value: object, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        HeadersMatch({"x-match": value})
    assert refused.value.detail == text


names = st.sampled_from(["a", "b", "x-a", "x-match"])
values = st.sampled_from([None, 1, 2, True, "1", "b", 1.0])
modes = st.sampled_from(["all", "any", "all-with-x", "any-with-x"])
tables = st.dictionaries(names, values, max_size=4)


@given(tables, st.none() | modes, tables)
def test_it_agrees_with_the_naive_matcher(
    arguments: dict[str, object], mode: str | None, headers: dict[str, object]
) -> None:
    arguments.pop("x-match", None)
    if mode is not None:
        arguments["x-match"] = mode
    assert HeadersMatch(arguments).matches(headers) is headers_match(arguments, headers)


TABLES = st.dictionaries(
    st.sampled_from(["a", "b", "x-c"]), st.one_of(st.none(), st.integers(0, 2), st.sampled_from(["1", ""])), max_size=3
)
BOUND = st.builds(
    lambda table, mode: table if mode is None else {**table, "x-match": mode},
    TABLES,
    st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"]),
)


@given(st.lists(BOUND, max_size=8), st.sets(st.integers(0, 7)), st.lists(TABLES, max_size=5))
def test_the_index_finds_what_matches_in_the_order_of_binding(
    bound: list[dict[str, object]], removed: set[int], messages: list[dict[str, object]]
) -> None:
    index: HeadersIndex[int] = HeadersIndex()
    for number, arguments in enumerate(bound):
        index.add(number, arguments, number)
    kept = [number for number in range(len(bound)) if number not in removed]
    for number in removed & set(range(len(bound))):
        index.remove(number)
    for headers in messages:
        expected = tuple(number for number in kept if HeadersMatch(bound[number]).matches(headers))
        assert index.match(headers) == expected


def test_a_copy_goes_on_by_itself() -> None:
    """An import of definitions is tried on a copy of what there is. What counts must be copied, too, on any Python."""
    index: HeadersIndex[str] = HeadersIndex()
    for name in ("first", "second"):
        index.add(name, {"a": 1}, name)
    copied = copy.deepcopy(index)
    index.remove("first")
    index.add("third", {"a": 1}, "third")
    copied.add("other", {"a": 1}, "other")
    assert index.match({"a": 1}) == ("second", "third")
    assert copied.match({"a": 1}) == ("first", "second", "other")


@pytest.mark.parametrize("match", ["any", "all"])
def test_a_header_that_only_has_to_be_there(match: str) -> None:
    index: HeadersIndex[str] = HeadersIndex()
    index.add("first", {"x-match": match, "a": None, "b": None}, "first")
    index.add("second", {"a": None}, "second")
    assert index.match({"a": 1, "b": 2}) == ("first", "second")
    index.remove("first")
    assert index.match({"a": 1, "b": 2}) == ("second",)
    index.remove("second")
    assert index.match({"a": 1, "b": 2}) == ()
