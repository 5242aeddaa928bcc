"""The tracer takes messages where the router takes them, and says by which bindings."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from harebell.errors import AccessRefused, NotFound
from harebell.routing import Router, cc_bcc, parse_definitions, to_exchange, to_queue
from harebell.routing.exchanges.exchange import Dependence
from harebell.routing.explain import explain
from harebell.routing.topology import exchange_types, topology
from harebell.routing.trace import Tracer
from tests.fixtures.profiles import scaled
from tests.routing.topologies import definitions, messages


def first(count: int) -> int:
    return 0


def router_of(file: dict[str, Any]) -> Router:
    return topology(parse_definitions(file), types=exchange_types(first)).router


def reached(router: Router, exchange: str, keys: list[str], headers: dict[str, Any], properties: dict[str, Any]) -> Any:
    """The copies that a broker makes: at once, and when delays have passed."""
    route = router.route_keys(exchange, keys, lambda: headers, lambda: properties)
    queues = list(route.queues)
    for name, delay in route.delayed:
        later = partial(dict[str, Any], {**headers, "x-delay": -delay})
        queues += router.route_keys(name, keys, later, lambda: properties, released=True).queues
    return tuple(queues)


@settings(max_examples=scaled(60))
@given(definitions(), st.lists(messages(), min_size=1, max_size=6))
def test_as_the_router_does(file: dict[str, Any], sent: list[tuple[str, str, dict[str, Any], str | None]]) -> None:
    router = router_of(file)
    tracer = Tracer(router)
    for exchange, key, headers, message_id in sent:
        keys, properties = [key, *cc_bcc(headers)], {"message_id": message_id}
        if not router.has_exchange(exchange):
            with pytest.raises(NotFound):
                tracer.trace(exchange, keys, headers, properties)
            continue
        if router.exchange(exchange).internal:
            with pytest.raises(AccessRefused):
                tracer.trace(exchange, keys, headers, properties)
            continue
        trace = tracer.trace(exchange, keys, headers, properties)
        assert trace.queues == reached(router, exchange, keys, headers, properties)
        if not trace.chance and "x-delay" not in headers:
            explained = explain(router, exchange, keys, headers, properties)
            hops = {hop.binding.identity for step in explained.steps for hop in step.hops if hop.binding.source}
            assert {tracer.bindings[number].identity for number in trace.bindings} == hops
            assert len(trace.bindings) == len(hops)
        depends_on = tracer.depends_on
        if Dependence.HEADERS not in depends_on:
            assert tracer.trace(exchange, keys, {}, properties).queues == trace.queues
        if Dependence.PROPERTIES not in depends_on:
            assert tracer.trace(exchange, keys, headers, {}).queues == trace.queues


def test_a_copy_now_and_one_later() -> None:
    router = Router(types=exchange_types())
    router.add_queue("q")
    router.declare_exchange("in", "fanout")
    router.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    router.bind("in", to_queue("q"), "")
    router.bind("in", to_exchange("later"), "")
    router.bind("later", to_queue("q"), "")
    tracer = Tracer(router)
    assert tracer.trace("in", ["k"], {"x-delay": 5}).queues == ("q", "q")
    trace = tracer.trace("in", ["k"])
    assert (trace.queues, trace.bindings) == (("q",), (0, 1, 2))
    assert repr(trace) == "Trace(queues=('q',), bindings=(0, 1, 2), chance=False)"


def test_what_is_unbound_is_not_depended_on() -> None:
    router = Router(types=exchange_types())
    router.declare_exchange("hist", "x-recent-history")
    router.add_queue("q")
    router.bind("hist", to_queue("q"), "")
    assert Tracer(router).depends_on == frozenset()
    router.bind("amq.headers", to_queue("q"), "", {"h": 1})
    assert Tracer(router).depends_on == {Dependence.HEADERS}


def test_the_default_exchange() -> None:
    router = Router(types=exchange_types())
    router.add_queue("q")
    tracer = Tracer(router)
    assert (tracer.trace("", ["q"]).queues, tracer.trace("", ["r"]).queues) == (("q",), ())
    assert tracer.trace("", ["q"]).bindings == ()
