from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from harebell.errors import AccessRefused, PreconditionFailed
from harebell.routing import Router, to_exchange, to_queue
from harebell.routing.exchanges.exchange import Dependence
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, KEEPING_TYPES
from harebell.routing.exchanges.storing_exchanges import DEFAULT_HISTORY, DelayedMessageExchange, RecentHistoryExchange
from harebell.routing.exchanges.system_exchange import SYSTEM_EXCHANGE, SystemExchange, is_reserved_service
from harebell.routing.table_values import Table


@pytest.fixture
def router() -> Router:
    router = Router(types=EXCHANGE_TYPES | KEEPING_TYPES)
    for name in ("q1", "q2"):
        router.add_queue(name)
    return router


@pytest.mark.parametrize("kind", sorted(KEEPING_TYPES))
def test_a_router_does_not_offer_what_its_broker_does_not_keep(kind: str) -> None:
    with pytest.raises(PreconditionFailed, match=f"unknown exchange type '{kind}'$"):
        Router().declare_exchange("x", kind, arguments={"x-delayed-type": "direct"})


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "zz"}, {"x-delayed-type": 1}, {"x-delayed-type": None}])
def test_a_delayed_exchange_needs_a_type(router: Router, arguments: Table) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        router.declare_exchange("x", "x-delayed-message", arguments=arguments)
    assert caught.value.detail == "Invalid argument, 'x-delayed-type' must be an existing exchange type"


@pytest.mark.parametrize("kind", ["x-delayed-message", "system", "x-zz"])
def test_types_that_no_delayed_exchange_can_have(router: Router, kind: str) -> None:
    with pytest.raises(PreconditionFailed):
        router.declare_exchange("x", "x-delayed-message", arguments={"x-delayed-type": kind})


def test_a_delayed_exchange_routes_as_its_type(router: Router) -> None:
    router.declare_exchange("d", "x-delayed-message", arguments={"x-delayed-type": "topic"})
    router.bind("d", to_queue("q1"), "a.#")
    router.bind("d", to_queue("q2"), "*.b")
    assert router.route("d", "a.b").queues == ("q1", "q2")
    assert router.route("d", "c").queues == ()
    router.unbind("d", to_queue("q1"), "a.#")
    assert router.route("d", "a.b").queues == ("q2",)
    assert not router.route("d", "a.b").cacheable  # the next one may ask for a delay
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'type'"):
        router.declare_exchange("d", "topic")


def test_arguments_and_bindings_are_the_types_own(router: Router) -> None:
    router.declare_exchange(
        "d", "x-delayed-message", arguments={"x-delayed-type": "x-consistent-hash", "hash-property": "message_id"}
    )
    with pytest.raises(PreconditionFailed, match="must be an integer"):
        router.bind("d", to_queue("q1"), "a")
    assert list(router.exchange("d").bindings()) == []
    router.bind("d", to_queue("q1"), "1")
    router.bind("d", to_queue("q2"), "1")
    assert router.exchange("d").depends_on is Dependence.PROPERTIES
    routes = {router.route("d", "k", None, partial(dict, message_id=str(n))).queues for n in range(50)}
    assert routes == {("q1",), ("q2",)}
    held = router.route("d", "k", lambda: {"x-delay": 5}, dict)
    assert (held.queues, held.delayed) == ((), (("d", 5),))


@pytest.mark.parametrize(
    "value, milliseconds",
    [
        (5000, 5000),
        ("5000", 5000),
        (2**32 - 1, 2**32 - 1),
        (2**32, 0),
        (0, 0),
        (-1, 0),
        ("-1", 0),
        ("5 s", 0),
        ("", 0),
        (True, 0),
        (1.5, 1),
        (None, 0),
        ([1], 0),
    ],
)
def test_delays(value: object, milliseconds: int) -> None:
    assert DelayedMessageExchange.delay({"x-delay": value}) == milliseconds
    assert DelayedMessageExchange.delay({}) == 0


def test_a_message_waits_where_it_is_held_back_and_goes_on_from_there(router: Router) -> None:
    router.declare_exchange("f", "fanout")
    router.declare_exchange("d", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    router.declare_exchange("d2", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    router.bind("f", to_queue("q1"), "")
    router.bind("f", to_exchange("d"), "")
    router.bind("d", to_queue("q2"), "")
    router.bind("d", to_exchange("d2"), "")
    calls: list[int] = []

    def headers() -> Table:
        calls.append(1)
        return {"x-delay": 100}

    now = router.route("f", "k", headers)
    assert (now.queues, now.delayed, len(calls)) == (("q1",), (("d", 100),), 1)
    assert repr(now) == "Route(queues=('q1',), cacheable=False, delayed=(('d', 100),))"
    later = router.route_keys("d", ("k",), headers, released=True)
    assert (later.queues, later.delayed) == (("q2",), (("d2", 100),))
    at_once = router.route("f", "k")
    assert (at_once.queues, at_once.delayed) == (("q1", "q2"), ())


def test_a_message_held_back_does_not_go_to_the_alternate(router: Router) -> None:
    router.declare_exchange(
        "d", "x-delayed-message", arguments={"x-delayed-type": "direct", "alternate-exchange": "amq.fanout"}
    )
    router.bind("amq.fanout", to_queue("q1"), "")
    assert router.route("d", "k", lambda: {"x-delay": 1}).queues == ()
    assert router.route("d", "k", dict).queues == ("q1",)


@pytest.mark.parametrize(
    "value, shown",
    [(0, "0"), (-5, "-5"), ("5", '<<"5">>'), (True, "true"), ([1], "[{signedint,1}]"), (None, "undefined")],
)
def test_the_length_of_a_history(value: object, shown: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        RecentHistoryExchange("x", arguments={"x-recent-history-length": value})
    assert caught.value.detail == (f"Invalid argument {shown}, 'x-recent-history-length' must be a positive integer")


def test_a_history_is_a_fanout_that_is_remembered(router: Router) -> None:
    assert RecentHistoryExchange("x").length == DEFAULT_HISTORY == 20
    assert RecentHistoryExchange("x", arguments={"x-recent-history-length": 3}).length == 3
    router.declare_exchange("h", "x-recent-history")
    router.declare_exchange("d", "x-delayed-message", arguments={"x-delayed-type": "x-recent-history"})
    router.bind("h", to_queue("q1"), "a")
    router.bind("h", to_exchange("d"), "b")
    router.bind("d", to_queue("q2"), "c")
    route = router.route("h", "whatever")
    assert (route.queues, route.remembered, route.cacheable) == (("q1", "q2"), ("h", "d"), False)
    assert "remembered=('h', 'd')" in repr(route)
    assert router.route("h", "", lambda: {"x-recent-history-no-store": True}).remembered == ()
    assert router.route("h", "", lambda: {"x-recent-history-no-store": "true"}).remembered == ("h", "d")
    assert router.route("h", "", lambda: {"x-delay": 5}).remembered == ("h",)


def test_a_router_that_keeps_can_be_pickled(router: Router) -> None:
    router.declare_exchange("d", "x-delayed-message", arguments={"x-delayed-type": "topic"})
    router.bind("d", to_queue("q1"), "#")
    twin = pickle.loads(pickle.dumps(router))
    assert twin.route("d", "k").queues == ("q1",)
    twin.declare_exchange("h", "x-recent-history")


def test_the_system_exchange_is_there_and_stays_as_it_is(router: Router) -> None:
    system = router.exchange(SYSTEM_EXCHANGE)
    assert isinstance(system, SystemExchange)
    assert (system.type, system.durable, system.internal) == ("system", True, False)
    assert router.check_publish(SYSTEM_EXCHANGE) is system
    assert router.route(SYSTEM_EXCHANGE, "amq.ping").queues == ()
    assert not router.declare_exchange(SYSTEM_EXCHANGE, "system", durable=True)
    attempts: list[Callable[[], object]] = [
        lambda: router.declare_exchange("mine", "system"),
        lambda: router.delete_exchange(SYSTEM_EXCHANGE),
        lambda: router.bind(SYSTEM_EXCHANGE, to_queue("q1"), "k"),
        lambda: router.bind("amq.direct", to_exchange(SYSTEM_EXCHANGE), "k"),
        lambda: system._detach(cast(Any, None), cast(Any, None)),
    ]
    for refused in attempts:
        with pytest.raises(AccessRefused, match="system"):
            refused()
    assert list(system.bindings()) == []
    assert not router.has_exchange("mine")
    with pytest.raises(PreconditionFailed, match="received 'topic' but current is 'system'"):
        router.declare_exchange(SYSTEM_EXCHANGE, "topic")


def test_names_of_services() -> None:
    assert is_reserved_service("amq.ping")
    assert not is_reserved_service("ping")
