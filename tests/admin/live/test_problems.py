"""Problems: each kind, from what makes it to what ends it, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from harebell.admin.live import problems as module
from harebell.admin.live.problems import FACTS, FIGURES, OF_NODE, Problems
from harebell.protocol.v091 import methods as m
from harebell.routing.steps import complete
from tests.admin.kit import Api, ApiThread
from tests.admin.live.streams import Watch
from tests.wire import Wire

MINUTE = 60_000


class Problem(NamedTuple):
    """A problem as a look has it; `more` are the facts beyond its name."""

    kind: str
    vhost: str
    of: str
    name: str
    more: dict[str, Any]
    figure: int
    limit: int
    since: int


class Doctor:
    """Looks at a broker, at times that the test chooses."""

    def __init__(self, own: ApiThread) -> None:
        self.own = own
        self.now = MINUTE
        self.gauges = {"mem_used": 1, "mem_limit": 100, "disk_free": 1 << 40, "fd_used": 1, "fd_total": 100}
        self.counts = own.management.context.counts
        self.problems = Problems(own.broker.node, self.counts, lambda: self.gauges, lambda: self.now)

    def look(self, seconds: int = 2) -> list[Problem]:
        """The problems after so many seconds."""
        self.now += seconds * 1000

        def find() -> list[Problem]:
            complete(self.counts.refreshing(whatever=True))
            found = []
            for each in self.problems.look():
                if each is not None:
                    facts = dict(zip(FACTS, each.facts, strict=True))
                    assert each.group == facts["vhost"]
                    assert facts.pop("id")
                    found.append(Problem(**facts, **dict(zip(FIGURES, each.gauges, strict=True))))
            return found

        return self.own.run(find)

    def kinds(self, seconds: int = 2) -> list[str]:
        return [each.kind for each in self.look(seconds)]


@pytest.fixture
def doctor(own: ApiThread) -> Doctor:
    return Doctor(own)


@pytest.fixture
def wire(own: ApiThread) -> Iterator[Wire]:
    with Wire(own.port).log_in() as wire:
        wire.channel()
        yield wire


def publish(api: Api, queue: str, count: int = 1) -> None:
    for _ in range(count):
        body = {"properties": {}, "routing_key": queue, "payload": "x" * 100, "payload_encoding": "string"}
        assert api("POST", "/api/exchanges/%2F/amq.default/publish", body).status == 200


def test_a_queue_that_grows_without_a_consumer(doctor: Doctor, api: Api) -> None:
    api.put("/api/queues/%2F/q")
    publish(api, "q")
    assert doctor.look() == [], "it does not grow yet, as far as one look knows"
    publish(api, "q", 2)
    (first,) = doctor.look()
    assert first == Problem("no_consumers", "/", "queue", "q", {}, 3, 0, doctor.now)
    began = doctor.now
    publish(api, "q")
    assert [(each.figure, each.since) for each in doctor.look()] == [(4, began)]
    assert doctor.kinds() == ["no_consumers"], "nothing came since, and nothing left"
    assert api("DELETE", "/api/queues/%2F/q/contents").status == 204
    assert doctor.look() == []
    publish(api, "q")
    assert doctor.kinds() == ["no_consumers"]
    doctor.problems.forget()
    assert doctor.look() == []


def test_a_stream_may_grow(doctor: Doctor, api: Api) -> None:
    api.put("/api/queues/%2F/s", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    doctor.look()
    publish(api, "s")
    assert doctor.look() == []


def test_consumers_that_are_too_slow_and_hold_what_they_have(doctor: Doctor, api: Api, wire: Wire) -> None:
    api.put("/api/queues/%2F/q")
    wire.call(1, m.BasicQos(0, 1, global_=False), m.BasicQosOk)
    wire.call(1, m.BasicConsume("q", "tag"), m.BasicConsumeOk)
    publish(api, "q")
    delivery = wire.expect(m.BasicDeliver).method
    assert isinstance(delivery, m.BasicDeliver)
    assert doctor.look() == [], "a consumer at its prefetch, and nothing waits"
    for _ in range(module.GREW):
        publish(api, "q")
        doctor.look(1)
    found = {each.kind: each for each in doctor.look(1)}
    assert set(found) == {"slow_consumers", "prefetch"}
    assert found["slow_consumers"].figure == module.GREW
    prefetch = found["prefetch"]
    assert (prefetch.name, prefetch.figure, prefetch.limit) == ("tag", 1, module.GREW)
    assert (prefetch.more["queue"], prefetch.more["user"]) == ("q", "guest")
    late = {each.kind: each for each in doctor.look(60)}
    assert late["unacked"].more["queues"] == ["q"]
    assert (late["unacked"].figure, doctor.now - late["unacked"].since >= module.OLD) == (1, True)
    wire.send(1, m.BasicAck(delivery.delivery_tag))
    wire.expect(m.BasicDeliver)
    assert "unacked" not in doctor.kinds(), "the oldest delivery is another one"


def test_limits_of_queues(doctor: Doctor, api: Api) -> None:
    api.put("/api/queues/%2F/a", {"arguments": {"x-max-length": 10}})
    api.put("/api/queues/%2F/b", {"arguments": {"x-max-length-bytes": 1000, "x-overflow": "reject-publish"}})
    publish(api, "a", 8)
    publish(api, "b", 8)
    assert doctor.look() == []
    publish(api, "a")
    publish(api, "b")
    found = {each.kind: each for each in doctor.look() if each.kind != "no_consumers"}
    assert (found["length"].name, found["length"].figure, found["length"].limit) == ("a", 9, 10)
    assert found["length"].more == {"overflow": "drop-head"}
    assert (found["bytes"].name, found["bytes"].figure, found["bytes"].limit) == ("b", 900, 1000)
    assert found["bytes"].more == {"overflow": "reject-publish"}


def test_exchanges_that_do_not_exist(doctor: Doctor, api: Api) -> None:
    api.put("/api/queues/%2F/q", {"arguments": {"x-dead-letter-exchange": "none"}})
    api.put("/api/exchanges/%2F/e", {"type": "fanout", "arguments": {"alternate-exchange": "none"}})
    found = {(each.kind, each.of, each.name): each.more for each in doctor.look()}
    assert found == {
        ("dead_letter_exchange", "queue", "q"): {"missing": "none"},
        ("alternate_exchange", "exchange", "e"): {"missing": "none"},
    }
    api.put("/api/exchanges/%2F/none", {"type": "fanout"})
    assert doctor.look() == []


def test_messages_without_a_queue(doctor: Doctor, api: Api, wire: Wire) -> None:
    wire.publish("", "none", b"x")
    wire.barrier()
    assert doctor.look() == [], "that was before anybody looked"
    for _ in range(3):
        wire.publish("", "none", b"x")
    wire.barrier()
    assert [(each.kind, each.name, each.figure) for each in doctor.look()] == [("unroutable", "/", 3)]
    wire.publish("", "none", b"x")
    wire.barrier()
    assert [each.figure for each in doctor.look()] == [4]
    assert doctor.kinds(59) == ["unroutable"]
    assert doctor.kinds(1) == []
    wire.publish("", "none", b"x")
    wire.barrier()
    assert [each.figure for each in doctor.look()] == [1]


def test_limits_of_a_virtual_host(doctor: Doctor, api: Api, wire: Wire) -> None:
    api.put("/api/vhost-limits/%2F/max-connections", {"value": 1})
    api.put("/api/vhost-limits/%2F/max-queues", {"value": 10})
    for number in range(8):
        api.put(f"/api/queues/%2F/q{number}")
    assert [(each.kind, each.figure, each.limit) for each in doctor.look()] == [("connections", 1, 1)]
    api.put("/api/queues/%2F/q8")
    assert [(each.kind, each.figure, each.limit) for each in doctor.look()] == [
        ("connections", 1, 1),
        ("queues", 9, 10),
    ]


def test_the_node_and_who_is_told(doctor: Doctor, own: ApiThread, monkeypatch: pytest.MonkeyPatch) -> None:
    doctor.gauges = {"mem_used": 80, "mem_limit": 100, "disk_free": 1, "fd_used": 80, "fd_total": 100}
    assert doctor.kinds() == ["memory", "disk", "descriptors"]
    assert {each.vhost for each in doctor.look()} == {OF_NODE}
    doctor.gauges = {"mem_used": 79, "mem_limit": 100, "disk_free": 0, "fd_used": 79, "fd_total": 100}
    assert doctor.kinds() == [], "0 bytes are free where nobody knows"
    api = own.api()
    api.put("/api/queues/%2F/q", {"arguments": {"x-dead-letter-exchange": "none"}})
    monkeypatch.setattr(module, "NEAR_RESOURCE", 0.0)
    own.add_user("here", "management", vhosts=("/",))
    own.add_user("nowhere", "management")
    told = {
        "guest": {"dead_letter_exchange", "memory", "descriptors"},
        "here": {"dead_letter_exchange"},
        "nowhere": set[str](),
    }
    for user, kinds in told.items():
        assert told_of(own.api(user)) == kinds, user


def told_of(api: Api) -> set[str]:
    """The kinds of problems that the user hears of."""
    with Watch(api, "problems") as watch:
        watch.until(lambda: watch.complete == {"problems"})
        return set(watch.list("problems", "kind"))


def test_blocked_publishers_and_clients_that_do_not_read(
    doctor: Doctor, own: ApiThread, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    (connection,) = own.broker.node.connections
    assert doctor.look() == []
    monkeypatch.setattr(type(connection), "state", property(lambda _: "blocked"))
    monkeypatch.setattr(type(connection), "unsent", property(lambda _: module.UNSENT))
    assert doctor.kinds() == ["blocked"]
    found = doctor.look(5)
    assert [(each.kind, each.name, each.figure) for each in found] == [
        ("blocked", connection.name, 0), ("unsent", connection.name, module.UNSENT),
    ]  # fmt: skip


class Shovels:
    """An actor for the parameters of shovels, of which one does not run."""

    def status(self) -> list[dict[str, object]]:
        return [
            {"vhost": "/", "name": "runs", "state": "running"},
            {"vhost": "/", "name": "ended", "state": "terminated", "reason": "no such queue"},
        ]


def test_a_shovel_that_does_not_run(doctor: Doctor, own: ApiThread) -> None:
    node = own.broker.node

    def furnish() -> None:
        node.parameters.components["shovel"] = Shovels()  # type: ignore[assignment]

    own.run(furnish)
    (found,) = doctor.look()
    assert (found.kind, found.name, found.more) == ("shovel", "ended", {"reason": "no such queue"})


def test_alarms_and_a_node_that_is_drained(doctor: Doctor, own: ApiThread, monkeypatch: pytest.MonkeyPatch) -> None:
    node = own.broker.node
    monkeypatch.setattr(node, "alarms", {"disk", "memory"})
    monkeypatch.setattr(node, "draining", True)
    found = [(each.kind, each.name) for each in doctor.look()]
    assert found == [("alarm", "disk"), ("alarm", "memory"), ("draining", node.name)]
