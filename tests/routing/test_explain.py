from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from harebell.errors import NotFound
from harebell.routing import Router, to_exchange, to_queue
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, KEEPING_TYPES
from harebell.routing.exchanges.hashing import RandomExchange
from harebell.routing.explain import Reached, explain, explaining


@pytest.fixture
def router() -> Router:
    router = Router(types=EXCHANGE_TYPES | KEEPING_TYPES)
    for name in ("q1", "q2", "q3"):
        router.add_queue(name)
    return router


def test_a_way_through_several_exchanges(router: Router) -> None:
    router.declare_exchange("orders", "topic")
    router.declare_exchange("all", "fanout")
    router.declare_exchange("odd", "headers", arguments={"alternate-exchange": "rest"})
    router.declare_exchange("rest", "direct", arguments={"alternate-exchange": "nowhere"})
    router.bind("orders", to_queue("q1"), "order.#")
    router.bind("orders", to_queue("q1"), "*.eu")
    router.bind("orders", to_queue("q2"), "order.us")
    router.bind("orders", to_exchange("all"), "#")
    router.bind("all", to_queue("q3"), "")
    router.bind("all", to_exchange("orders"), "back")
    router.bind("all", to_exchange("odd"), "")
    router.bind("odd", to_queue("q2"), "", {"x-match": "any", "h": 1})
    got = explain(router, "orders", ["order.eu"])
    assert got.queues == (Reached("q1", True), Reached("q3", True))
    assert [(step.exchange, step.outcome, len(step.hops), step.bindings) for step in got.steps] == [
        ("orders", "matched", 3, 4),
        ("all", "matched", 3, 3),
        ("odd", "alternate", 0, 1),
        ("rest", "alternate", 0, 0),
    ]
    assert got.text() == (
        "a message to exchange 'orders' with 'order.eu'\n"
        "exchange 'orders' (topic): 3 of 4 bindings match\n"
        "  'order.#' -> queue 'q1'\n"
        "  '*.eu' -> queue 'q1'\n"
        "  '#' -> exchange 'all'\n"
        "exchange 'all' (fanout): 3 of 3 bindings match\n"
        "  '' -> queue 'q3'\n"
        "  'back' -> exchange 'orders', where it was before\n"
        "  '' -> exchange 'odd'\n"
        "exchange 'odd' (headers): 0 of 1 bindings match; to its alternate exchange 'rest'\n"
        "exchange 'rest' (direct): no bindings; to its alternate exchange 'nowhere', which does not exist\n"
        "reaches 'q1', 'q3'"
    )
    with_header = explain(router, "orders", ["order.eu", "cc"], {"h": 1})
    assert '\'\' [{<<"x-match">>,longstr,<<"any">>},{<<"h">>,signedint,1}] -> queue \'q2\'' in with_header.text()
    assert with_header.text().startswith("a message to exchange 'orders' with 'order.eu', 'cc'\n")


def test_the_default_exchange(router: Router) -> None:
    got = explain(router, "", ["q2", "nope"])
    assert got.queues == (Reached("q2", True),)
    assert "exchange '' (direct): 1 of 3 bindings match\n  'q2' -> queue 'q2'" in got.text()
    assert explain(router, "", ["nope"]).text().endswith("0 of 3 bindings match\nreaches no queue")


def test_an_address_for_direct_replies(router: Router) -> None:
    router.add_address("reply")
    got = explain(router, "", ["reply", "q2"])
    assert (
        got.queues
        == (Reached("reply", True), Reached("q2", True))
        == tuple(Reached(name, True) for name in router.route_keys("", ["reply", "q2"]).queues)
    )


def test_an_unknown_exchange(router: Router) -> None:
    with pytest.raises(NotFound):
        explain(router, "nope", ["k"])


def test_an_exchange_reached_twice_in_one_step(router: Router) -> None:
    router.declare_exchange("a", "fanout")
    router.declare_exchange("b", "fanout", arguments={"alternate-exchange": "a"})
    router.bind("a", to_exchange("b"), "1")
    router.bind("a", to_exchange("b"), "2")
    got = explain(router, "a", ["k"])
    assert [step.exchange for step in got.steps] == ["a", "b"]
    assert "before" not in got.text()


def test_only_the_bindings_that_match_are_shown(router: Router) -> None:
    for key in ("a.#", "b.#", "*"):
        router.bind("amq.topic", to_queue("q1"), key)
    hops = explain(router, "amq.topic", ["a", "x.y"]).steps[0].hops
    assert [hop.binding.binding_key for hop in hops] == ["a.#", "*"]


def test_many_bindings_are_tried_in_steps(router: Router) -> None:
    for number in range(200):
        router.bind("amq.topic", to_queue("q1"), f"{number % 2}.{number}.#")
    router.bind("amq.topic", to_queue("q1"), "#")
    steps = explaining(router, "amq.topic", ["1.7"])
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
        count += 1
    assert count >= 3
    assert found == explain(router, "amq.topic", ["1.7"])
    assert [hop.binding.binding_key for hop in found.steps[0].hops] == ["1.7.#", "#"]


def test_chance(router: Router) -> None:
    router.declare_exchange("r", "x-random")
    router.declare_exchange("f", "fanout")
    router.declare_exchange("g", "fanout")
    router.bind("f", to_queue("q3"), "")
    router.bind("f", to_exchange("r"), "")
    router.bind("r", to_queue("q1"), "")
    assert explain(router, "f", ["k"]).queues == (Reached("q3", True), Reached("q1", True))  # one way only
    router.bind("r", to_exchange("g"), "")
    router.bind("g", to_queue("q2"), "")
    router.bind("g", to_queue("q3"), "")
    got = explain(router, "f", ["k"])
    assert set(got.queues) == {Reached("q3", True), Reached("q1", False), Reached("q2", False)}
    assert "exchange 'r' (x-random): one of 2 bindings, by chance" in got.text()
    assert "perhaps exchange 'g' (fanout): 2 of 2 bindings match" in got.text()
    assert got.text().endswith("reaches 'q3', perhaps 'q1', perhaps 'q2'")


def test_hashes(router: Router) -> None:
    router.declare_exchange("h", "x-consistent-hash", arguments={"hash-property": "message_id"})
    router.declare_exchange("m", "x-modulus-hash")
    for name in ("q1", "q2", "q3"):
        router.bind("h", to_queue(name), "2")
        router.bind("m", to_queue(name), "")
    for number in range(10):
        properties: dict[str, object] = {"message_id": str(number)}
        got = explain(router, "h", ["k"], None, properties)
        assert tuple(queue for queue, _ in got.queues) == router.route("h", "k", None, partial(dict, properties)).queues
        assert "exchange 'h' (x-consistent-hash): 1 of 3 bindings, by hash" in got.text()
        assert explain(router, "m", [str(number)]).queues == (Reached(router.route("m", str(number)).queues[0], True),)


def test_delays(router: Router) -> None:
    router.declare_exchange("d", "x-delayed-message", arguments={"x-delayed-type": "topic"})
    router.bind("d", to_queue("q1"), "a.*")
    router.bind("d", to_queue("q2"), "b.*")
    got = explain(router, "d", ["a.b"], {"x-delay": 500})
    assert got.queues == ()
    assert got.text().endswith("exchange 'd' (x-delayed-message): held back for 500 ms\nreaches no queue yet")
    assert explain(router, "d", ["a.b"], {"x-delay": 500}, released=True).queues == (Reached("q1", True),)
    assert explain(router, "d", ["a.b"]).queues == (Reached("q1", True),)


def test_the_system_exchange(router: Router) -> None:
    assert "exchange 'amq.system' (system): the server answers" in explain(router, "amq.system", ["amq.ping"]).text()


exchanges = st.sampled_from(["x0", "x1", "x2", "x3"])
arguments = st.sampled_from([{}, {"h": 1}, {"x-match": "any", "h": 1, "i": 2}])
keys = st.sampled_from(["", "1", "2", "a.b"])


@given(
    kinds=st.lists(
        st.sampled_from(["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-modulus-hash", "x-random"]),
        min_size=4,
        max_size=4,
    ),
    alternates=st.lists(st.none() | exchanges | st.sampled_from(["", "nowhere"]), min_size=4, max_size=4),
    bindings=st.lists(
        st.tuples(
            exchanges,
            exchanges.map(to_exchange) | st.sampled_from(["q1", "q2", "q3"]).map(to_queue),
            st.sampled_from(["1", "2", "#", "*", "a.*"]),
            arguments,
        ),
        max_size=14,
    ),
    routing_keys=st.lists(keys, min_size=1, max_size=2),
    headers=st.dictionaries(st.sampled_from(["h", "i"]), st.integers(1, 2)),
    drawn=st.integers(0, 5),
)
def test_it_tells_what_the_router_does(
    kinds: list[str],
    alternates: list[str | None],
    bindings: list[tuple[Any, ...]],
    routing_keys: list[str],
    headers: dict[str, object],
    drawn: int,
) -> None:
    fixed = partial(RandomExchange, draw=lambda count: drawn % count)
    router = Router(types=EXCHANGE_TYPES | {"x-random": fixed})
    for number, (kind, alternate) in enumerate(zip(kinds, alternates, strict=True)):
        router.declare_exchange(
            f"x{number}", kind, arguments={} if alternate is None else {"alternate-exchange": alternate}
        )
    for name in ("q1", "q2", "q3"):
        router.add_queue(name)
    for source, destination, key, table in bindings:
        if router.exchange(source).type == "x-consistent-hash" and not key.isdigit():
            continue
        router.bind(source, destination, key, table)
    route = router.route_keys("x0", routing_keys, lambda: headers)
    got = explain(router, "x0", routing_keys, headers)
    if "x-random" not in {step.type for step in got.steps}:
        assert tuple(queue for queue, _ in got.queues) == route.queues
        assert all(certain for _, certain in got.queues)
    else:
        assert {queue for queue, certain in got.queues if certain} <= set(route.queues)
        assert set(route.queues) <= {queue for queue, _ in got.queues}
    assert got.text().startswith("a message to exchange 'x0'")
