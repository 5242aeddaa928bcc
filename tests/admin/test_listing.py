"""Lists: pages, filters, order, columns; and that long ones are made in steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from harebell.admin import listing
from harebell.admin.answers import Refused
from harebell.admin.http.requests import Request
from harebell.admin.listing import Listing
from harebell.routing.steps import complete

MADE: list[str] = []


def shape(item: dict[str, Any]) -> dict[str, Any]:
    MADE.append(item["name"])
    return {**item, "stats": {"publish": item["size"], "ack": {"rate": 0.5}}}


LISTING: Listing[dict[str, Any]] = Listing(
    shape=shape,
    order=lambda item: item["name"],
    name=lambda item: item["name"],
    quick={"name": lambda item: item["name"], "size": lambda item: item["size"]},
)


class Asked:
    """A request that has a query alone."""

    def __init__(self, **query: object) -> None:
        self.query = {name: str(value) for name, value in query.items()}


def answer(items: Sequence[dict[str, Any]], **query: object) -> Any:
    MADE.clear()
    return json.loads(b"".join(complete(LISTING.answer(cast("Request", Asked(**query)), items)).pieces))


def items(count: int) -> list[dict[str, Any]]:
    return [{"name": f"q{number:04}", "size": number * 7919 % 1000} for number in range(count)]


def names(found: Sequence[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in found]


def test_all_in_their_order() -> None:
    assert answer([]) == []
    found = answer(items(100)[::-1])
    assert names(found) == names(items(100))
    assert found[3]["stats"] == {"publish": items(4)[3]["size"], "ack": {"rate": 0.5}}
    assert names(answer(items(5), sort_reverse="true")) == names(items(5))[::-1]


def test_a_page_makes_only_its_own_objects() -> None:
    found = answer(items(250), page=2, page_size=100)
    assert names(found.pop("items")) == names(items(250))[100:200] == MADE
    assert found == {
        "filtered_count": 250, "item_count": 100, "page": 2, "page_count": 3, "page_size": 100, "total_count": 250,
    }  # fmt: skip
    assert answer(items(3), page=1)["page_size"] == 100
    assert answer([], page=1) == {
        "filtered_count": 0, "item_count": 0, "items": [], "page": 1, "page_count": 0, "page_size": 100,
        "total_count": 0,
    }  # fmt: skip


def test_names_are_filtered_in_pages_only() -> None:
    found = answer(items(120), page=1, name="Q001")
    assert (found["total_count"], found["filtered_count"], found["item_count"]) == (120, 10, 10)
    assert names(answer(items(120), page=1, name="^q00[01]5$", use_regex="true")["items"]) == ["q0005", "q0015"]
    assert answer(items(120), page=1, name="^q00[01]5$")["items"] == []
    assert len(answer(items(120), name="q001")) == 120


@pytest.mark.parametrize("query, error, reason", [
    ({"page": 0}, "invalid_pagination_parameters", "Invalid pagination parameters: page number 0, page size undefined"),
    ({"page": -1, "page_size": 5}, "invalid_pagination_parameters", "page number -1, page size 5"),
    ({"page": 1, "page_size": 501}, "invalid_pagination_parameters", "page number 1, page size 501"),
    ({"page": 1, "page_size": 0}, "invalid_pagination_parameters", "page size 0"),
    ({"page": "x"}, "bad_request", "Pagination parameters are invalid"),
    ({"page": 1, "page_size": "1.5"}, "bad_request", "Pagination parameters are invalid"),
    ({"page": "\u0661"}, "bad_request", "Pagination parameters are invalid"),
    ({"page": "9" * 5000}, "bad_request", "Pagination parameters are invalid"),
    ({"page": 9}, "page_out_of_range", "Page out of range, page: 9 page size: 100, len: 5"),
    ({"page": 1, "name": "(", "use_regex": "true"}, "bad_request", "no regular expression"),
])  # fmt: skip
def test_wrong_pages_are_refused(query: dict[str, object], error: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        answer(items(5), **query)
    assert (refused.value.status, refused.value.error) == (400, error)
    assert reason in refused.value.text


def test_a_pattern_takes_time_in_proportion_to_the_name() -> None:
    """Python's own engine would need longer than the universe has."""
    hostile = [{"name": "a" * 250, "size": 1}]
    assert answer(hostile, page=1, name="^(a|aa)+$", use_regex="true")["item_count"] == 1
    assert answer(hostile, page=1, name="^(a|aa)+b$", use_regex="true")["item_count"] == 0


def test_a_quick_column_makes_no_objects() -> None:
    found = answer(items(50), sort="size", columns="name,size")
    assert MADE == []
    assert [each["size"] for each in found] == sorted(item["size"] for item in items(50))
    assert set(found[0]) == {"name", "size"}


def test_any_column_can_be_sorted_by() -> None:
    found = answer(items(50), sort="stats.publish", sort_reverse="true", columns="name,stats.publish,nothing,stats.no")
    sizes = [each["stats"]["publish"] for each in found]
    assert sizes == sorted(sizes, reverse=True)
    assert found[0] == {"name": found[0]["name"], "stats": {"publish": sizes[0]}}
    assert names(answer(items(5), sort="nothing")) == names(items(5))
    assert names(answer(items(5), sort="name.deeper")) == names(items(5))


def test_columns_go_down_into_objects() -> None:
    assert answer(items(1), columns="stats.ack.rate,stats.publish") == [{"stats": {"ack": {"rate": 0.5}, "publish": 0}}]
    assert answer(items(1), columns="stats,stats.publish")[0]["stats"]["publish"] == 0
    assert answer(items(1), columns=",") == answer(items(1))


@given(
    st.lists(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.lists(st.text()))
)
def test_values_of_any_kind_have_an_order(values: list[object]) -> None:
    mixed: Listing[Any] = Listing(lambda it: {"v": it}, order=lambda it: 0, name=str)
    request = cast("Request", Asked(sort="v"))
    found = json.loads(b"".join(complete(mixed.answer(request, values)).pieces))
    assert len(found) == len(values)


def test_long_lists_are_sorted_and_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STEP", "QUICK_STEP"):
        monkeypatch.setattr(listing, name, 7)
    work = LISTING.answer(cast("Request", Asked(sort="size", page=1, page_size=500)), items(300))
    assert sum(1 for _ in work) > 100
    found = answer(items(300), sort="size", page=1, page_size=500)["items"]
    assert [each["size"] for each in found] == sorted(item["size"] for item in items(300))
    assert names(answer(items(300)[::-1])) == names(items(300))


@pytest.mark.parametrize("query", [{}, {"sort": "size"}, {"page": 1, "name": "q", "sort": "name"}])
def test_a_step_looks_at_a_part_of_the_items(query: dict[str, object]) -> None:
    seen: list[str] = []

    def note(item: dict[str, Any]) -> str:
        seen.append(item["name"])
        return str(item["name"])

    noting: Listing[dict[str, Any]] = Listing(dict, order=note, name=note, quick={"size": note})
    work, most = noting.answer(cast("Request", Asked(**query)), items(10_000)), 0
    for _ in work:
        most = max(most, len(seen))
        seen.clear()
    assert 0 < most <= listing.QUICK_STEP * 2  # a key may need the name and the order


def test_names_that_are_no_unicode_are_shown() -> None:
    assert answer([{"name": "a\udcff", "size": 1}])[0]["name"] == "a?"
