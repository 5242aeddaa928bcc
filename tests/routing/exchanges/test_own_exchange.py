"""An exchange of a program's own type, without a broker: routes, explanations, traces, and what a matcher may do."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from harebell.errors import PluginFailed, PreconditionFailed
from harebell.routing import Router, to_exchange, to_queue
from harebell.routing.exchanges.exchange import NO_MESSAGE, Dependence
from harebell.routing.exchanges.exchange_types import EXCHANGE_TYPES, KEEPING_TYPES, types_with
from harebell.routing.exchanges.own_exchange import RoutedMessage
from harebell.routing.explain import explain
from harebell.routing.trace import Tracer
from tests.broker.own_plugins import TYPES, Faulty

KEYS = st.text("ab.", max_size=4)


class Fan:
    """A fanout, written as a plug-in: each binding matches."""

    depends_on = Dependence.KEY

    def __init__(self, arguments: object) -> None:
        self.bindings: list[object] = []
        self.add, self.remove = self.bindings.append, self.bindings.remove

    def match(self, message: RoutedMessage) -> list[object]:
        return self.bindings


class Exact(Fan):
    """A direct exchange, written as a plug-in."""

    def match(self, message: RoutedMessage) -> list[object]:
        return [each for each in self.bindings if getattr(each, "binding_key", None) in message.routing_keys]


def nothing(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


def own_router() -> Router:
    own = {"x-fan": Fan, "x-exact": Exact, **TYPES.exchange_types}
    return Router(types=types_with(own, nothing))  # type: ignore[arg-type]  # Fan is written without types


@given(
    st.lists(st.tuples(st.booleans(), KEYS, st.integers(0, 3)), max_size=12),
    st.lists(st.integers(0, 11), max_size=4),
    st.lists(KEYS, min_size=1, max_size=3),
    st.sampled_from([("fanout", "x-fan"), ("direct", "x-exact")]),
)
def test_a_built_in_type_written_as_a_plug_in_routes_as_it_does(
    made: list[tuple[bool, str, int]], removed: list[int], keys: list[str], kinds: tuple[str, str]
) -> None:
    """Queues, explanations and traces, of messages that a delayed exchange lets pass too."""
    routers = []
    for kind in kinds:
        router = own_router()
        router.declare_exchange("x", kind)
        router.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": kind})
        for name in "0123":
            router.add_queue(name)
            router.declare_exchange(f"to-{name}", "fanout")
            router.bind(f"to-{name}", to_queue(name), "")
        ends = [to_exchange(f"to-{n}") if exchange else to_queue(str(n)) for exchange, _, n in made]
        for source in ("x", "later"):
            for end, (_, key, _) in zip(ends, made, strict=True):
                router.bind(source, end, key)
            for at in removed:
                if at < len(made):
                    router.unbind(source, ends[at], made[at][1])
        routers.append(router)
    for source in ("x", "later"):
        expected, found = (sorted(router.route_keys(source, keys).queues) for router in routers)
        assert found == expected
        expected, found = (shown(router, source, keys) for router in routers)
        assert [line.replace(f"'{source}' ({kinds[1]})", f"'{source}' ({kinds[0]})") for line in found] == expected
        traces = [Tracer(router).trace(source, keys) for router in routers]
        told = [(sorted(trace.queues), sorted(trace.bindings), trace.chance) for trace in traces]
        assert told[0] == told[1]
    assert routers[1].route_keys("x", keys).cacheable


def shown(router: Router, source: str, keys: list[str]) -> list[str]:
    """The lines of the explanation; the order of bindings to one destination and others is not the same."""
    return sorted(explain(router, source, keys).text().splitlines()[:-1])


def test_what_a_message_shows_follows_from_what_its_matcher_depends_on() -> None:
    whole = {"headers": {"a": 1}, "properties": {"type": "t"}, "body": b"b"}
    message = RoutedMessage(("k",), whole, Dependence.MESSAGE)
    assert (message.headers, message.properties, message.body) == ({"a": 1}, {"type": "t"}, b"b")
    by_headers = RoutedMessage(("k",), {"a": 1}, Dependence.HEADERS)
    assert by_headers.headers == {"a": 1}
    by_key = RoutedMessage(("k",), NO_MESSAGE, Dependence.KEY)
    for one, parts in ((by_headers, ("properties", "body")), (by_key, ("headers", "properties", "body"))):
        for part in parts:
            with pytest.raises(RuntimeError, match=f"it uses the message's {part}, and depends_on is"):
                getattr(one, part)
    odd = RoutedMessage(("k",), {"headers": None, "properties": None, "body": None}, Dependence.MESSAGE)
    assert (odd.headers, odd.properties, odd.body) == ({}, {}, b"")


def test_explanations_by_headers_and_by_the_whole_message() -> None:
    router = own_router()
    for kind in ("x-tenant", "x-word"):
        router.declare_exchange(kind, kind)
        router.add_queue(kind)
        router.bind(kind, to_queue(kind), "fire")
    assert explain(router, "x-tenant", ["k"], {"tenant": "fire"}).queues == (("x-tenant", True),)
    assert explain(router, "x-word", ["k"], {}, {"type": "fire"}).queues == (("x-word", True),)
    assert explain(router, "x-word", ["k"], {}, {}, b"a fire").queues == (("x-word", True),)
    assert "0 of 1 bindings match" in explain(router, "x-word", ["k"]).text()
    assert router.route("x-word", "k").queues == ()  # there is no message yet
    assert not router.route("x-word", "k").by_headers


def test_failures_end_a_walk_or_match_nothing() -> None:
    reports: list[tuple[str, Exception]] = []
    router = Router(types=types_with(TYPES.exchange_types, lambda what, error: reports.append((what, error))))
    router.declare_exchange("alternate", "fanout")
    router.declare_exchange("x", "x-faulty", arguments={"alternate-exchange": "alternate"})
    router.add_queue("q")
    router.bind("x", to_queue("q"), "")
    router.add_queue("rest")
    router.bind("alternate", to_queue("rest"), "")
    Faulty.fault = "match"
    try:
        for asked in (lambda: router.route("x", "k"), lambda: explain(router, "x", ["k"])):
            with pytest.raises(PluginFailed, match="exchange 'x' of type 'x-faulty' cannot match"):
                asked()
        route = router.route_keys("x", ["k"], lenient=True)
        assert (route.queues, route.cacheable, route.by_headers) == (("rest",), False, False)
    finally:
        Faulty.fault = ""
    assert [(what, type(error)) for what, error in reports] == [
        ("exchange 'x' of type 'x-faulty' cannot match", ZeroDivisionError)
    ] * 3
    assert router.route("x", "k").queues == ("q",)


def test_a_refusal_changes_nothing() -> None:
    router = own_router()
    router.declare_exchange("x", "x-prefix", arguments={"longest": 1})
    router.add_queue("q")
    version = router.version
    with pytest.raises(PreconditionFailed, match="longer than 1"):
        router.bind("x", to_queue("q"), "ab")
    assert (router.version, list(router.exchange("x").bindings())) == (version, [])
    with pytest.raises(PreconditionFailed, match="longest must be a number"):
        router.declare_exchange("y", "x-prefix", arguments={"longest": []})
    assert not router.has_exchange("y")


def test_the_types_beside_it_are_all_there() -> None:
    assert set(types_with({}, nothing)) == set(EXCHANGE_TYPES | KEEPING_TYPES)


class Wrong(Fan):
    """Does what a matcher may not do, as `how` says."""

    how = ""

    def __init__(self, arguments: object) -> None:
        super().__init__(arguments)
        if self.how == "depends_on":
            self.depends_on = "chance"  # type: ignore[assignment]
        if self.how in ("add", "remove"):
            setattr(self, self.how, lambda binding: 1 // 0)

    def match(self, message: RoutedMessage) -> list[object]:
        if self.how == "refuses":
            raise PreconditionFailed("not today")
        return ["what is this?"] if self.how == "foreign" else self.bindings


def test_what_a_matcher_may_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    own = types_with({"x-wrong": Wrong}, lambda what, error: reports.append(f"{what}: {error}"))  # type: ignore[dict-item]
    router = Router(types=own)
    monkeypatch.setattr(Wrong, "how", "depends_on")
    with pytest.raises(PluginFailed, match="exchange 'x' of type 'x-wrong' cannot be made: its plug-in failed"):
        router.declare_exchange("x", "x-wrong")
    assert "depends_on is 'chance', and must be one of" in reports.pop()
    assert not router.has_exchange("x")

    monkeypatch.setattr(Wrong, "how", "add")
    router.declare_exchange("x", "x-wrong")
    router.add_queue("q")
    with pytest.raises(PluginFailed, match="cannot be bound"):
        router.bind("x", to_queue("q"), "")
    assert "division" in reports.pop()
    assert not list(router.exchange("x").bindings())

    monkeypatch.setattr(Wrong, "how", "remove")
    router.declare_exchange("y", "x-wrong")
    router.bind("y", to_queue("q"), "")
    router.unbind("y", to_queue("q"), "")
    assert "a binding cannot be removed" in reports.pop()
    assert not list(router.exchange("y").bindings())

    monkeypatch.setattr(Wrong, "how", "refuses")
    with pytest.raises(PreconditionFailed, match="not today"):
        router.route("x", "k")
    monkeypatch.setattr(Wrong, "how", "foreign")
    with pytest.raises(PluginFailed, match="cannot match"):
        router.route("x", "k")
    assert "match gave 'what is this?', which is no binding of this exchange" in reports.pop()
    assert not reports
