from __future__ import annotations

from typing import Any, cast

import pytest

from harebell.errors import PreconditionFailed
from harebell.routing.exchanges.exchange import (
    DefaultExchange,
    Dependence,
    Destination,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
    to_exchange,
    to_queue,
)
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES

Q1, Q2, E1 = to_queue("q1"), to_queue("q2"), to_exchange("q1")


@pytest.fixture(params=["direct", "fanout", "headers", "topic"])
def exchange(request: pytest.FixtureRequest) -> Exchange:
    return EXCHANGE_TYPES[request.param]("x")


def test_what_a_declaration_leaves() -> None:
    exchange = TopicExchange(
        "x", durable=True, auto_delete=True, internal=True, arguments={"alternate-exchange": "other", "x-foo": 1}
    )
    assert (exchange.name, exchange.type, exchange.alternate) == ("x", "topic", "other")
    assert (exchange.durable, exchange.auto_delete, exchange.internal) == (True, True, True)
    assert exchange.arguments == {"alternate-exchange": "other", "x-foo": 1}
    assert TopicExchange("y").alternate is None


def test_the_same_binding_is_made_once(exchange: Exchange) -> None:
    made = exchange.bind(Q1, "k", {"a": 1})
    assert made is not None
    assert (made.source, made.destination, made.binding_key, made.arguments) == ("x", Q1, "k", {"a": 1})
    assert exchange.bind(Q1, "k", {"a": 1}) is None
    assert list(exchange.bindings()) == [made]


def test_every_part_of_a_binding_counts(exchange: Exchange) -> None:
    different: list[tuple[Destination, str, dict[str, object] | None]] = [
        (Q1, "k", {"a": 1}),
        (Q1, "k", {"a": True}),
        (Q1, "k", {"a": "1"}),
        (Q1, "k", None),
        (Q1, "l", {"a": 1}),
        (Q2, "k", {"a": 1}),
        (E1, "k", {"a": 1}),
    ]
    for destination, key, arguments in different:
        assert exchange.bind(destination, key, arguments) is not None
    assert len(list(exchange.bindings())) == 7
    assert exchange.bind(Q1, "k", {}) is None  # no arguments and an empty table are the same
    assert exchange.unbind(Q1, "k", {"a": 2}) is None
    assert exchange.unbind(Q1, "k", {"a": True}) is not None
    assert exchange.unbind(Q1, "k", {"a": True}) is None
    assert len(list(exchange.bindings())) == 6


def test_a_destination_stays_until_its_last_binding_goes(exchange: Exchange) -> None:
    assert not exchange.is_bound
    exchange.bind(Q1, "k")
    exchange.bind(Q2, "k")
    exchange.bind(Q1, "k", {"x-more": 1})
    assert tuple(exchange.match(["k"], {})) == (Q1, Q2)
    exchange.unbind(Q1, "k")
    assert set(exchange.match(["k"], {})) == {Q1, Q2}
    exchange.unbind(Q1, "k", {"x-more": 1})
    assert tuple(exchange.match(["k"], {})) == (Q2,)
    exchange.unbind(Q2, "k")
    assert tuple(exchange.match(["k"], {})) == ()
    assert not exchange.is_bound


def test_a_caller_who_changes_its_arguments_later_changes_nothing(exchange: Exchange) -> None:
    arguments: dict[str, object] = {"a": 1}
    exchange.bind(Q1, "k", arguments)
    arguments["a"] = 2
    assert exchange.unbind(Q1, "k", {"a": 1}) is not None


def test_direct() -> None:
    exchange = DirectExchange("x")
    exchange.bind(Q1, "a")
    exchange.bind(Q2, "b")
    exchange.bind(Q1, "b")
    assert tuple(exchange.match(["a"], {})) == (Q1,)
    assert tuple(exchange.match(["b"], {})) == (Q2, Q1)
    assert tuple(exchange.match(["c"], {})) == ()
    assert tuple(exchange.match(["a", "b", "c"], {})) == (Q1, Q2)


def test_fanout() -> None:
    exchange = FanoutExchange("x")
    exchange.bind(Q2, "a")
    exchange.bind(E1, "b")
    exchange.bind(Q2, "b")
    assert tuple(exchange.match(["whatever", "else"], {})) == (Q2, E1)


def test_topic() -> None:
    exchange = TopicExchange("x")
    exchange.bind(Q1, "a.#")
    exchange.bind(Q2, "*.b")
    assert tuple(exchange.match(["a.b"], {})) == (Q1, Q2)
    assert tuple(exchange.match(["c.b", "a.c", "a"], {})) == (Q2, Q1)


def test_headers() -> None:
    exchange = HeadersExchange("x")
    exchange.bind(Q1, "", {"x-match": "any", "a": 1, "b": 1})
    exchange.bind(Q2, "", {"a": 1, "b": 1})
    assert tuple(exchange.match(["k"], {"a": 1})) == (Q1,)
    assert tuple(exchange.match(["k"], {"a": 1, "b": 1})) == (Q1, Q2)
    assert tuple(exchange.match(["k"], {})) == ()
    assert exchange.depends_on is Dependence.HEADERS


def test_a_refused_binding_leaves_nothing() -> None:
    exchange = HeadersExchange("x")
    with pytest.raises(PreconditionFailed):
        exchange.bind(Q1, "", {"x-match": "zz"})
    assert not exchange.is_bound
    assert tuple(exchange.match([""], {})) == ()


def test_only_a_headers_exchange_minds_x_match() -> None:
    assert DirectExchange("x").bind(Q1, "", {"x-match": "zz"}) is not None


def test_default() -> None:
    queues: dict[str, None] = {"q1": None}
    addresses = {"reply"}
    exchange = DefaultExchange(queues, addresses)
    assert (exchange.name, exchange.type, exchange.durable) == ("", "direct", True)
    assert tuple(exchange.match(["q1", "q2", "q1"], {})) == (Q1,)
    queues["q2"] = None
    assert tuple(exchange.match(["q2", "q1"], {})) == (Q2, Q1)
    assert tuple(exchange.match(["reply", "q1", "reply"], {})) == (to_queue("reply"), Q1)
    addresses.clear()
    assert tuple(exchange.match(["reply"], {})) == ()
    assert [(b.source, b.destination, b.binding_key, b.arguments) for b in exchange.bindings()] == [
        ("", Q1, "q1", {}),
        ("", Q2, "q2", {}),
    ]
    with pytest.raises(TypeError, match="implicit"):
        exchange.bind(Q1, "k")
    binding, key = next(iter(exchange.bindings())), cast(Any, None)
    with pytest.raises(TypeError, match="implicit"):
        exchange._detach(key, binding)
