"""What it takes to find a route is counted where that is much, and not where it is little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harebell.routing import Router, to_exchange, to_queue
from harebell.routing.exchanges.exchange import CHEAP
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, KEEPING_TYPES
from harebell.routing.exchanges.headers_index import HeadersIndex
from harebell.routing.table_values import Table

MANY = 4 * CHEAP


def bound(type: str, count: int, key: Callable[[int], str], arguments: Table, table: Table | None = None) -> Router:
    router = Router(types=EXCHANGE_TYPES | KEEPING_TYPES)
    router.declare_exchange("x", type, arguments=table)
    for number in range(count):
        router.add_queue(f"q{number}")
        router.bind("x", to_queue(f"q{number}"), key(number), arguments)
    return router


ANY: Table = {"x-match": "any", "a": 1}
DELAYED: Table = {"x-delayed-type": "headers"}


@pytest.mark.parametrize(
    ("type", "key", "arguments", "table", "few"),
    [
        ("headers", str, ANY, None, CHEAP),
        ("x-delayed-message", str, ANY, DELAYED, CHEAP),
        ("x-consistent-hash", lambda number: "1", {}, None, CHEAP),
        ("x-modulus-hash", str, {}, None, CHEAP),
        ("x-recent-history", str, {}, None, CHEAP),
        ("fanout", str, {}, None, CHEAP),
    ],
)
def test_the_effort_grows_with_what_was_looked_at(
    type: str, key: Callable[[int], str], arguments: Table, table: Table | None, few: int
) -> None:
    headers: Callable[[], Table] = lambda: {"a": 1}  # noqa: E731
    efforts = [
        bound(type, count, key, arguments, table).route("x", "1.2.3", headers).effort for count in (few, MANY, 8 * MANY)
    ]
    assert efforts[0] <= CHEAP
    assert efforts[0] < efforts[1] < efforts[2]


def test_the_effort_of_patterns_grows_with_the_states_that_a_key_makes() -> None:
    router = bound("topic", MANY, lambda number: f"#.{number}.#", {})
    efforts = [router.route("x", ".".join(map(str, range(count)))).effort for count in (4, 16, 64)]
    assert 4 * efforts[0] < efforts[1]
    assert 4 * efforts[1] < efforts[2]


def test_a_route_is_counted_once() -> None:
    router = bound("topic", MANY, lambda number: f"#.{number}.#", {})
    assert router.route("x", "1.2.3").effort
    assert not router.route("x", "1.2.3").effort, "the automaton has the way already"
    assert not router.route_keys("x", ("1.2.3", "1.2")).effort
    assert router.route_keys("x", ("1.2.3", "3.2.1")).effort


def test_a_key_that_is_looked_up_takes_no_effort() -> None:
    router = bound("direct", MANY, str, {})
    assert router.route("x", "1").effort == router.route("", "q1").effort == 0


def test_a_walk_through_many_exchanges_takes_effort() -> None:
    router = Router()
    router.add_queue("q")
    for number in range(MANY):
        router.declare_exchange(f"x{number}", "fanout")
        if number:
            router.bind(f"x{number - 1}", to_exchange(f"x{number}"), "")
    assert router.route("x0", "").effort == MANY
    assert not router.route(f"x{MANY - 2}", "").effort


@pytest.mark.parametrize("names", [("same", "own"), ("own", "same")])
def test_bindings_that_agree_in_one_header_are_found_by_another(names: tuple[str, str]) -> None:
    index: HeadersIndex[int] = HeadersIndex()
    values = {number: {"same": 1, "own": number} for number in range(MANY)}
    for number, each in values.items():
        index.add(number, {name: each[name] for name in names}, number)
    assert index.match({"same": 1, "own": MANY - 1}) == (MANY - 1,)
    assert index.tried <= 2
    for number in range(MANY - 1):
        index.remove(number)
    assert index.match({"same": 1, "own": MANY - 1}) == (MANY - 1,)
    index.remove(MANY - 1)
    assert index.match({"same": 1, "own": MANY - 1}) == ()
    assert index.tried == 0
