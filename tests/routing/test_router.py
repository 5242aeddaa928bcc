"""Declarations, refusals in RabbitMQ's words (each text was printed by one), cascades, and the walk of a message."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from harebell.errors import AccessRefused, AmqpError, NotFound, PreconditionFailed
from harebell.routing import Router, to_exchange, to_queue
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES
from harebell.routing.router import PREDECLARED


@pytest.fixture
def router() -> Router:
    router = Router("/")
    for name in ("q", "q1", "q2", "q3"):
        router.add_queue(name)
    router.declare_exchange("d", "direct")
    router.declare_exchange("f", "fanout")
    router.declare_exchange("ae", "direct", arguments={"alternate-exchange": "zz"})
    router.bind("d", to_queue("q"), "bound")
    router.declare_exchange("i", "direct", internal=True)
    return router


Q = to_queue("q")
DEFAULT = "operation not permitted on the default exchange"
REFUSALS: list[tuple[str, Callable[[Router], object], type[AmqpError], str]] = [
    (
        "type differs",
        lambda r: r.declare_exchange("d", "fanout"),
        PreconditionFailed,
        "inequivalent arg 'type' for exchange 'd' in vhost '/': received 'fanout' but current is 'direct'",
    ),
    (
        "durable differs",
        lambda r: r.declare_exchange("d", "direct", durable=True),
        PreconditionFailed,
        "inequivalent arg 'durable' for exchange 'd' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "auto_delete differs",
        lambda r: r.declare_exchange("d", "direct", auto_delete=True),
        PreconditionFailed,
        "inequivalent arg 'auto_delete' for exchange 'd' in vhost '/': received 'true' but current is 'false'",
    ),
    (
        "internal differs",
        lambda r: r.declare_exchange("i", "direct"),
        PreconditionFailed,
        "inequivalent arg 'internal' for exchange 'i' in vhost '/': received 'false' but current is 'true'",
    ),
    (
        "alternate differs",
        lambda r: r.declare_exchange("ae", "direct", arguments={"alternate-exchange": "yy"}),
        PreconditionFailed,
        "inequivalent arg 'alternate-exchange' for exchange 'ae' in vhost '/': received 'yy' but current is 'zz'",
    ),
    (
        "alternate missing",
        lambda r: r.declare_exchange("ae", "direct"),
        PreconditionFailed,
        "inequivalent arg 'alternate-exchange' for exchange 'ae' in vhost '/': "
        "received none but current is the value 'zz' of type 'longstr'",
    ),
    (
        "alternate extra",
        lambda r: r.declare_exchange("d", "direct", arguments={"alternate-exchange": "zz"}),
        PreconditionFailed,
        "inequivalent arg 'alternate-exchange' for exchange 'd' in vhost '/': "
        "received the value 'zz' of type 'longstr' but current is none",
    ),
    (
        "alternate not a name",
        lambda r: r.declare_exchange("new", "direct", arguments={"alternate-exchange": 5}),
        PreconditionFailed,
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'new' in vhost '/'",
    ),
    ("unknown type", lambda r: r.declare_exchange("d", "zzz"), PreconditionFailed, "unknown exchange type 'zzz'"),
    (
        "reserved name",
        lambda r: r.declare_exchange("amq.foo", "direct"),
        AccessRefused,
        "exchange name 'amq.foo' contains reserved prefix 'amq.*'",
    ),
    ("declare default", lambda r: r.declare_exchange("", "direct", durable=True), AccessRefused, DEFAULT),
    ("passive default", lambda r: r.declare_exchange("", "direct", passive=True), AccessRefused, DEFAULT),
    (
        "passive missing",
        lambda r: r.declare_exchange("nope", "", passive=True),
        NotFound,
        "no exchange 'nope' in vhost '/'",
    ),
    ("delete default", lambda r: r.delete_exchange(""), AccessRefused, DEFAULT),
    (
        "delete predeclared",
        lambda r: r.delete_exchange("amq.direct"),
        AccessRefused,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed",
    ),
    (
        "delete reserved, missing",
        lambda r: r.delete_exchange("amq.zz"),
        AccessRefused,
        "deletion of system exchange 'amq.zz' in vhost '/' not allowed",
    ),
    (
        "delete in use",
        lambda r: r.delete_exchange("d", if_unused=True),
        PreconditionFailed,
        "exchange 'd' in vhost '/' in use",
    ),
    ("bind from default", lambda r: r.bind("", Q, "q"), AccessRefused, DEFAULT),
    ("bind to default", lambda r: r.bind("d", to_exchange(""), "q"), AccessRefused, DEFAULT),
    ("unbind from default", lambda r: r.unbind("", Q, "q"), AccessRefused, DEFAULT),
    ("unbind to default", lambda r: r.unbind("d", to_exchange(""), "q"), AccessRefused, DEFAULT),
    ("bind no exchange", lambda r: r.bind("nope", Q, ""), NotFound, "no exchange 'nope' in vhost '/'"),
    ("bind no queue", lambda r: r.bind("d", to_queue("nope"), ""), NotFound, "no queue 'nope' in vhost '/'"),
    ("bind neither", lambda r: r.bind("nope", to_queue("nq"), ""), NotFound, "no exchange 'nope' in vhost '/'"),
    ("bind no target", lambda r: r.bind("d", to_exchange("nope"), ""), NotFound, "no exchange 'nope' in vhost '/'"),
    (
        "bind bad x-match",
        lambda r: r.bind("amq.headers", Q, "", {"x-match": "zz"}),
        PreconditionFailed,
        'Invalid x-match field value <<"zz">>; expected all, any, all-with-x, or any-with-x',
    ),
    ("publish, missing", lambda r: r.check_publish("nope"), NotFound, "no exchange 'nope' in vhost '/'"),
    (
        "publish, internal",
        lambda r: r.check_publish("i"),
        AccessRefused,
        "cannot publish to internal exchange 'i' in vhost '/'",
    ),
    ("route, missing", lambda r: r.route("nope", ""), NotFound, "no exchange 'nope' in vhost '/'"),
]


@pytest.mark.parametrize("case, act, error, text", REFUSALS, ids=[case[0] for case in REFUSALS])
def test_refusals(
    router: Router, case: str, act: Callable[[Router], object], error: type[AmqpError], text: str
) -> None:
    before = router.version
    with pytest.raises(AmqpError) as refused:
        act(router)
    assert type(refused.value) is error
    assert refused.value.detail == text
    assert router.version == before


def test_the_vhost_is_named_in_the_texts() -> None:
    with pytest.raises(NotFound, match="no exchange 'x' in vhost 'brk'"):
        Router("brk").exchange("x")


def test_what_every_vhost_has(router: Router) -> None:
    fresh = Router()
    assert {(x.name, x.type, x.internal, x.durable) for x in fresh.exchanges} == {
        ("", "direct", False, True),
        *((name, kind(name).type, internal, True) for name, kind, internal in PREDECLARED),
    }
    assert fresh.declare_exchange("amq.topic", "topic", durable=True) is False
    assert fresh.has_exchange("amq.match")
    assert not fresh.has_exchange("x")
    assert fresh.types == EXCHANGE_TYPES.keys()
    assert fresh.version == 0


def test_a_second_declaration(router: Router) -> None:
    before = router.version
    assert router.declare_exchange("d", "direct", arguments={"x-foo": 1}) is False  # only alternate-exchange counts
    assert router.declare_exchange("ae", "direct", arguments={"alternate-exchange": "zz"}) is False
    assert router.declare_exchange("d", "fanout", passive=True) is False  # passive asks for the name alone
    assert router.version == before


def test_every_change_moves_the_version(router: Router) -> None:
    seen = [router.version]
    for change in (
        lambda: router.declare_exchange("new", "fanout"),
        lambda: router.add_queue("new"),
        lambda: router.bind("new", to_queue("new"), ""),
        lambda: router.unbind("new", to_queue("new"), ""),
        lambda: router.remove_queue("new"),
        lambda: router.delete_exchange("new"),
    ):
        change()
        assert router.version > seen[-1]
        seen.append(router.version)


def test_what_changes_nothing_leaves_the_version(router: Router) -> None:
    before = router.version
    assert router.add_queue("q") is False
    assert router.bind("d", Q, "bound") is None
    for removed in (
        router.unbind("d", Q, "nope"),
        router.unbind("nope", Q, ""),
        router.unbind("d", to_queue("nope"), ""),
        router.remove_queue("nope"),
        router.delete_exchange("nope"),
        router.delete_exchange("nope", if_unused=True),
    ):
        assert (removed.bindings, removed.exchanges) == ((), ())
    assert router.version == before


def test_bindings_are_listed_from_both_ends(router: Router) -> None:
    router.bind("f", to_exchange("d"), "k", {"a": 1})
    router.bind("f", Q, "")
    assert [(b.source, b.binding_key) for b in router.bindings_to(Q)] == [("d", "bound"), ("f", "")]
    assert [b.arguments for b in router.bindings_to(to_exchange("d"))] == [{"a": 1}]
    assert router.bindings_to(to_queue("d")) == ()
    assert router.binding("f", Q, "") in router.bindings_to(Q)
    assert router.binding("f", Q, "another") is router.binding("f", to_queue("no"), "") is None
    assert list(router.queues) == ["q", "q1", "q2", "q3"]
    listed = [(b.source, b.destination.name) for b in router.bindings()]
    assert listed == [("", "q"), ("", "q1"), ("", "q2"), ("", "q3"), ("d", "q"), ("f", "d"), ("f", "q")]


# Removal


def test_a_removed_queue_takes_its_bindings_and_what_they_held(router: Router) -> None:
    router.declare_exchange("one", "fanout", auto_delete=True)
    router.declare_exchange("two", "topic", auto_delete=True)
    router.bind("one", to_exchange("two"), "")
    router.bind("two", to_queue("q1"), "#")
    removed = router.remove_queue("q1")
    assert removed.exchanges == ("two", "one")
    assert [(b.source, b.destination.name) for b in removed.bindings] == [("two", "q1"), ("one", "two")]
    assert not router.has_exchange("one")
    assert not router.has_exchange("two")
    assert router.route("", "q1").queues == ()
    assert list(router.bindings_to(to_queue("q1"))) == []


def test_no_route_leads_to_a_forgotten_queue_while_its_bindings_are_removed(router: Router) -> None:
    router.declare_exchange("one", "fanout", auto_delete=True, arguments={"alternate-exchange": "f"})
    router.bind("f", Q, "")
    for key in ("a", "b", "c"):
        router.bind("one", to_queue("q1"), key)
    bindings = router.forget_queue("q1")
    assert [binding.binding_key for binding in bindings] == ["a", "b", "c"]
    assert router.unbind_some(bindings[:1]).exchanges == ()
    assert "q1" not in router.queues
    assert router.route("one", "k").queues == ("q",)  # as if it had no binding
    assert router.route("", "q1").queues == ()
    assert "q1" not in {binding.destination.name for binding in router.bindings()}
    assert pickle.loads(pickle.dumps(router)).route("one", "k").queues == ("q",)
    assert router.unbind_some(bindings).exchanges == ("one",)
    assert router.bindings_to(to_queue("q1")) == ()
    router.add_queue("q1")
    router.bind("f", to_queue("q1"), "")
    assert router.route("f", "k").queues == ("q", "q1")


def test_a_deleted_exchange_may_be_another_ones_last_destination(router: Router) -> None:
    router.declare_exchange("one", "fanout", auto_delete=True)
    router.bind("one", to_exchange("f"), "")
    removed = router.delete_exchange("f", if_unused=True)  # a destination is not in use
    assert removed.exchanges == ("f", "one")


def test_auto_delete_waits_for_the_last_binding(router: Router) -> None:
    router.declare_exchange("one", "direct", auto_delete=True)
    router.bind("one", Q, "a")
    router.bind("one", Q, "b")
    assert router.unbind("one", Q, "a").exchanges == ()
    assert router.unbind("one", Q, "b").exchanges == ("one",)


def test_an_auto_delete_exchange_that_was_never_bound_stays(router: Router) -> None:
    router.declare_exchange("one", "direct", auto_delete=True)
    router.remove_queue("q")
    assert router.has_exchange("one")


@pytest.mark.parametrize("auto_delete", [True, False])
def test_an_exchange_bound_to_itself_goes_once(router: Router, auto_delete: bool) -> None:
    router.declare_exchange("self", "fanout", auto_delete=auto_delete)
    router.bind("self", to_exchange("self"), "")
    removed = router.delete_exchange("self")
    assert removed.exchanges == ("self",)
    assert len(removed.bindings) == 1


def test_a_ring_of_auto_delete_exchanges_goes_whole(router: Router) -> None:
    for name in ("r1", "r2", "r3"):
        router.declare_exchange(name, "fanout", auto_delete=True)
    router.bind("r1", to_exchange("r2"), "")
    router.bind("r2", to_exchange("r3"), "")
    router.bind("r3", to_exchange("r1"), "")
    assert set(router.unbind("r1", to_exchange("r2"), "").exchanges) == {"r1", "r2", "r3"}


# The walk


def test_the_default_exchange(router: Router) -> None:
    assert router.route("", "q1").queues == ("q1",)
    assert router.route("", "nope").queues == ()
    assert router.route_keys("", ("q2", "nope", "q1", "q2")).queues == ("q2", "q1")


def test_an_address_for_direct_replies_is_reached_by_the_default_exchange_alone(router: Router) -> None:
    router.bind("f", to_queue("q1"), "")
    queues, bindings, version = tuple(router.queues), len(tuple(router.bindings())), router.version
    router.add_address("reply")
    assert router.route("", "reply").queues == ("reply",)
    assert router.route_keys("", ("q2", "reply", "nope", "reply")).queues == ("q2", "reply")
    assert router.route_keys("f", ("reply",)).queues == ("q1",)
    assert (tuple(router.queues), len(tuple(router.bindings()))) == (queues, bindings)
    with pytest.raises(NotFound, match="no queue 'reply' in vhost"):
        router.bind("f", to_queue("reply"), "")
    assert router.version == version
    router.remove_address("reply")
    assert router.route("", "reply").queues == ()
    assert router.version > version


def test_queues_come_once_in_the_order_of_bindings(router: Router) -> None:
    for name in ("q3", "q1", "q2"):
        router.bind("f", to_queue(name), "")
    router.bind("f", to_queue("q1"), "again")
    router.bind("f", to_exchange("d"), "")
    router.bind("d", to_queue("q1"), "k")
    router.bind("d", to_queue("q"), "k")
    assert router.route("f", "k").queues == ("q3", "q1", "q2", "q")


def test_a_cycle_ends(router: Router) -> None:
    router.bind("f", to_exchange("d"), "")
    router.bind("d", to_exchange("f"), "k")
    router.bind("d", to_queue("q1"), "k")
    assert router.route("f", "k").queues == ("q1",)
    assert router.route("d", "k").queues == ("q1",)


def test_alternates_are_tried_in_turn_and_only_without_another_way(router: Router) -> None:
    router.declare_exchange("a3", "fanout")
    router.declare_exchange("a2", "direct", arguments={"alternate-exchange": "a3"})
    router.declare_exchange("a1", "direct", arguments={"alternate-exchange": "a2"})
    router.bind("a1", to_queue("q1"), "k1")
    router.bind("a2", to_queue("q2"), "k2")
    router.bind("a3", to_queue("q3"), "")
    assert router.route("a1", "k1").queues == ("q1",)
    assert router.route("a1", "k2").queues == ("q2",)
    assert router.route("a1", "k3").queues == ("q3",)
    assert router.route_keys("a1", ("k3", "k1")).queues == ("q1",)  # a copy's key counts before the alternate does


def test_an_alternate_from_a_policy(router: Router) -> None:
    router.declare_exchange("plain", "direct")
    router.declare_exchange("declared", "direct", arguments={"alternate-exchange": "amq.topic"})
    router.bind("amq.fanout", to_queue("q1"), "")
    before = router.version
    router.set_alternate("plain", "amq.fanout")
    assert (router.route("plain", "k").queues, router.version) == (("q1",), before + 1)
    router.set_alternate("plain", "amq.fanout")
    router.set_alternate("declared", "amq.fanout")
    assert (router.route("declared", "k").queues, router.version) == ((), before + 1)
    router.set_alternate("plain", None)
    assert (router.route("plain", "k").queues, router.version) == ((), before + 2)
    with pytest.raises(NotFound):
        router.set_alternate("nowhere", None)


def test_an_exchange_that_leads_nowhere_still_keeps_the_alternate_away(router: Router) -> None:
    router.declare_exchange("a1", "direct", arguments={"alternate-exchange": "f"})
    router.bind("f", to_queue("q1"), "")
    router.bind("a1", to_exchange("d"), "k")
    assert router.route("a1", "k").queues == ()


def test_alternates_that_take_nothing(router: Router) -> None:
    assert router.route("ae", "q").queues == ()  # there is no exchange zz
    router.declare_exchange("to default", "direct", arguments={"alternate-exchange": ""})
    assert router.route("to default", "q").queues == ()
    router.declare_exchange("to itself", "direct", arguments={"alternate-exchange": "to itself"})
    assert router.route("to itself", "q").queues == ()


def test_headers_are_read_at_most_once_and_only_for_a_headers_exchange(router: Router) -> None:
    calls = []

    def headers() -> dict[str, object]:
        calls.append(1)
        return {"a": 1}

    router.bind("amq.headers", to_queue("q1"), "", {"a": 1})
    router.bind("amq.match", to_queue("q2"), "", {"a": 1})
    router.bind("f", to_queue("q"), "")
    route = router.route("f", "", headers)
    assert (route.queues, route.cacheable, len(calls)) == (("q",), True, 0)
    router.bind("f", to_exchange("amq.headers"), "")
    router.bind("f", to_exchange("amq.match"), "")
    route = router.route("f", "", headers)
    assert (route.queues, route.cacheable, len(calls)) == (("q", "q1", "q2"), False, 1)
    route = router.route("amq.headers", "")
    assert (route.queues, route.cacheable) == ((), False)
    assert repr(route) == "Route(queues=(), cacheable=False)"


def test_internal_exchanges_are_reached_by_bindings(router: Router) -> None:
    router.bind("f", to_exchange("i"), "")
    router.bind("i", to_queue("q1"), "k")
    assert router.check_publish("f").name == "f"
    assert router.route("f", "k").queues == ("q1",)


def test_a_pickled_router_routes_the_same_and_goes_its_own_way(router: Router) -> None:
    router.bind("amq.topic", to_queue("q1"), "a.#")
    router.bind("amq.topic", to_exchange("amq.headers"), "#")
    router.bind("amq.headers", to_queue("q2"), "", {"h": 1})
    twin = pickle.loads(pickle.dumps(router))
    for name, key in [("amq.topic", "a.b"), ("amq.topic", "b"), ("d", "bound"), ("", "q3"), ("f", "")]:
        assert twin.route(name, key, lambda: {"h": 1}).queues == router.route(name, key, lambda: {"h": 1}).queues
    assert twin.version == router.version
    twin.add_queue("new")
    assert twin.route("", "new").queues == ("new",)
    assert router.route("", "new").queues == ()
    assert twin.remove_queue("q1").bindings[0].source == "amq.topic"
    assert router.route("amq.topic", "a").queues == ("q1",)


def test_a_router_adopts_an_exchange_of_another_one_without_its_bindings() -> None:
    here, there = Router(), Router()
    there.declare_exchange("x", "topic", durable=True, auto_delete=True, internal=True, arguments={"a": 1})
    there.add_queue("q")
    there.bind("x", to_queue("q"), "k")
    here.adopt(there.exchange("x"))
    adopted = here.exchange("x")
    assert (adopted.type, adopted.durable, adopted.auto_delete, adopted.internal) == ("topic", True, True, True)
    assert adopted.arguments == {"a": 1}
    assert adopted is not there.exchange("x")
    assert not list(adopted.bindings())


def test_some_bindings_are_removed_together_and_those_that_are_gone_are_left_out(router: Router) -> None:
    made = [router.bind("f", to_queue(name), "k") for name in ("q1", "q2", "q3")]
    bindings = [binding for binding in made if binding is not None]
    router.unbind("f", to_queue("q2"), "k")
    again = router.bind("f", to_queue("q2"), "k")  # another one in its place
    router.remove_queue("q3")
    assert router.unbind_some(bindings).bindings == (bindings[0],)
    assert router.route("f", "k").queues == ("q2",)
    assert again is not None
    assert router.unbind_some([again]).bindings == (again,)
    assert router.route("f", "k").queues == ()
