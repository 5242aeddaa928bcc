"""Random declarations, bindings and removals on the router and on the naive one; after each step they agree."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from harebell.routing import Binding, Destination, Router
from harebell.routing.router import Removed
from tests.fixtures.profiles import scaled
from tests.routing.naive import Made, NaiveExchange, NaiveRouter

exchange_names = st.sampled_from(["x1", "x2", "x3", "x4"])
queue_names = st.sampled_from(["q1", "q2", "q3"])
destinations = st.builds(Destination, st.just("queue"), queue_names) | st.builds(
    Destination, st.just("exchange"), exchange_names
)
binding_keys = st.sampled_from(["", "a", "b", "a.b", "a.*", "#", "#.b", "*.#"])
routing_keys = st.lists(st.sampled_from(["", "a", "b", "a.b", "c.b", "q1", "q2"]), min_size=1, max_size=3)
arguments = st.sampled_from(
    [{}, {"h": 1}, {"h": "1"}, {"h": None}, {"x-match": "any", "h": 1, "i": 2}, {"x-match": "any"}]
)
headers = st.dictionaries(st.sampled_from(["h", "i"]), st.sampled_from([1, 2, "1", True]), max_size=2)


class RouterModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router()
        self.naive = NaiveRouter()

    @rule(
        name=exchange_names,
        kind=st.sampled_from(["direct", "fanout", "topic", "headers"]),
        auto_delete=st.booleans(),
        alternate=st.none() | exchange_names | st.just("nowhere"),
    )
    def declare(self, name: str, kind: str, auto_delete: bool, alternate: str | None) -> None:
        if name in self.naive.exchanges:
            return
        table = {} if alternate is None else {"alternate-exchange": alternate}
        assert self.router.declare_exchange(name, kind, auto_delete=auto_delete, arguments=table)
        self.naive.exchanges[name] = NaiveExchange(kind, auto_delete, alternate)

    @rule(name=queue_names)
    def add_queue(self, name: str) -> None:
        if name in self.naive.gone:
            self.unbind_rest(name)
        assert self.router.add_queue(name) is (name not in self.naive.queues)
        self.naive.queues.add(name)

    @rule(source=exchange_names, destination=destinations, key=binding_keys, table=arguments)
    def bind(self, source: str, destination: Destination, key: str, table: dict[str, object]) -> None:
        there = self.naive.queues if destination.kind == "queue" else self.naive.exchanges
        if source not in self.naive.exchanges or destination.name not in there:
            return
        made = (source, destination, key, tuple(table.items()))
        new = self.router.bind(source, destination, key, table)
        assert (new is not None) is (made not in self.naive.bindings)
        if new is not None:
            self.naive.bindings.append(made)

    @rule(source=exchange_names, destination=destinations, key=binding_keys, table=arguments)
    def unbind_anything(self, source: str, destination: Destination, key: str, table: dict[str, object]) -> None:
        made = (source, destination, key, tuple(table.items()))
        removed = self.router.unbind(source, destination, key, table)
        assert bool(removed.bindings) is (made in self.naive.bindings)
        if removed.bindings:
            self.naive.drop([made])

    @precondition(lambda self: self.naive.bindings)
    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        made = data.draw(st.sampled_from(self.naive.bindings))
        before = set(self.naive.exchanges)
        removed = self.router.unbind(made[0], made[1], made[2], dict(made[3]))
        self.naive.drop([made])
        assert set(removed.exchanges) == before - set(self.naive.exchanges)

    @rule(name=queue_names)
    def remove_queue(self, name: str) -> None:
        if name in self.naive.gone:
            assert self.router.remove_queue(name) == Removed()
            return
        before, bound = set(self.naive.exchanges), len(self.naive.bindings)
        self.naive.queues.discard(name)
        self.naive.drop([b for b in self.naive.bindings if b[1] == Destination("queue", name)])
        removed = self.router.remove_queue(name)
        assert set(removed.exchanges) == before - set(self.naive.exchanges)
        assert len(removed.bindings) == bound - len(self.naive.bindings)

    @precondition(lambda self: self.naive.queues)
    @rule(data=st.data())
    def forget_queue(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.naive.queues)))
        self.naive.queues.discard(name)
        bindings = self.router.forget_queue(name)
        assert len(bindings) == sum(b[1] == Destination("queue", name) for b in self.naive.bindings)
        if bindings:
            self.naive.gone.add(name)

    @precondition(lambda self: self.naive.gone)
    @rule(data=st.data(), count=st.integers(1, 3))
    def unbind_gone(self, data: st.DataObject, count: int) -> None:
        self.unbind_rest(data.draw(st.sampled_from(sorted(self.naive.gone))), count)

    def unbind_rest(self, name: str, count: int | None = None) -> None:
        before = set(self.naive.exchanges)
        bindings = self.router.bindings_to(Destination("queue", name))[:count]
        removed = self.router.unbind_some(bindings)
        self.naive.drop([_made(binding) for binding in bindings])
        assert set(removed.exchanges) == before - set(self.naive.exchanges)

    @rule(name=exchange_names)
    def delete_exchange(self, name: str) -> None:
        before = set(self.naive.exchanges)
        if name in before:
            self.naive.delete(name)
        assert set(self.router.delete_exchange(name).exchanges) == before - set(self.naive.exchanges)

    @rule(exchange=exchange_names | st.just(""), keys=routing_keys, table=headers)
    def route(self, exchange: str, keys: list[str], table: dict[str, object]) -> None:
        if exchange in self.naive.exchanges or exchange == "":
            route = self.router.route_keys(exchange, keys, lambda: table)
            assert len(route.queues) == len(set(route.queues))
            assert set(route.queues) == self.naive.reach(exchange, keys, table)
            if route.cacheable:
                assert self.router.route_keys(exchange, keys, lambda: {"h": 1}).queues == route.queues

    @invariant()
    def the_tables_agree(self) -> None:
        assert {x.name for x in self.router.exchanges if x.name and not x.name.startswith("amq.")} == set(
            self.naive.exchanges
        )
        assert set(self.router.queues) == self.naive.queues
        listed = [b for b in self.router.bindings() if b.source]
        made = set(map(_made, listed))
        assert len(listed) == len(made)
        assert made == self.naive.listed()
        for destination in {b.destination for b in listed}:
            assert {b.identity for b in self.router.bindings_to(destination)} == {
                b.identity for b in listed if b.destination == destination
            }


def _made(binding: Binding) -> Made:
    return binding.source, binding.destination, binding.binding_key, tuple(binding.arguments.items())


RouterModel.TestCase.settings = settings(max_examples=scaled(60), stateful_step_count=40)
TestRouterModel = RouterModel.TestCase
