"""A purge that is undone, and all messages of a queue in another one, over HTTP."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import pytest

from harebell.broker.operations import messages as operations
from harebell.protocol.v091 import Properties, methods as m
from harebell.routing.definitions import Permission
from harebell.routing.naming import kept_from
from tests.admin.kit import Api, ApiThread
from tests.admin.resources.test_messages import publish
from tests.wire import PATIENCE, Wire


@pytest.fixture
def queue(guest: Api, vhost: str) -> str:
    guest.put(f"/api/queues/{vhost}/q", {"durable": True})
    guest.put(f"/api/queues/{vhost}/other", {"durable": True})
    return f"/api/queues/{vhost}/q"


def payloads(api: Api, queue: str) -> list[str]:
    return [each["payload"] for each in api.get(f"{queue}/browse?limit=500")["items"]]


def fill(api: Api, vhost: str, count: int, **more: Any) -> list[str]:
    for number in range(count):
        publish(api, vhost, f"m{number}", **more)
    return [f"m{number}" for number in range(count)]


def test_a_purge_is_undone(guest: Api, vhost: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "STEP", 2)
    sent = fill(guest, vhost, 7, properties={"headers": {"a": 1}, "message_id": "1", "delivery_mode": 2})
    before = guest.get(f"{queue}/browse")["items"]
    answer = guest("DELETE", f"{queue}/contents?keep=600")
    assert (answer.status, answer.json["count"]) == (200, 7)
    assert payloads(guest, queue) == []
    kept = f"/api/queues/{vhost}/{quote(answer.json['queue'], safe='')}"
    assert kept_from(answer.json["queue"]) == "q"
    there = guest.get(kept)
    assert (there["durable"], there["arguments"], there["messages"]) == (
        True,
        {"x-expires": 600_000, "x-queue-type": "classic"},
        7,
    )
    assert guest("POST", f"{kept}/move", {"destination": "q"}).json == {"count": 7}
    assert payloads(guest, queue) == sent
    after = guest.get(f"{queue}/browse")["items"]
    assert [{**each, "position": 0} for each in after] == [{**each, "position": 0} for each in before]
    assert payloads(guest, kept) == []


def test_a_deletion_is_undone(guest: Api, vhost: str, queue: str) -> None:
    guest("DELETE", queue)
    arguments = {"x-max-length": 50, "x-dead-letter-exchange": "amq.fanout"}
    assert guest.put(queue, {"durable": True, "arguments": arguments}) == 201
    bound = {"routing_key": "a.#", "arguments": {"n": 1}}
    assert guest("POST", f"/api/bindings/{vhost}/e/amq.topic/q/q", bound).status == 201
    sent = fill(guest, vhost, 3)
    before = guest.get(f"{queue}/bindings")
    kept = guest("DELETE", f"{queue}?keep=600").json
    assert guest("GET", queue).status == 404
    assert (kept["count"], kept["bindings"]) == (3, [{"source": "amq.topic", **bound}])
    assert kept["definition"] == {"durable": True, "auto_delete": False, "arguments": arguments}
    assert payloads(guest, f"/api/queues/{vhost}/{kept['queue']}") == sent
    assert guest.put(queue, kept["definition"]) == 201
    for binding in kept["bindings"]:
        assert guest("POST", f"/api/bindings/{vhost}/e/{binding.pop('source')}/q/q", binding).status == 201
    assert guest("POST", f"/api/queues/{vhost}/{kept['queue']}/move", {"destination": "q"}).json == {"count": 3}
    assert guest.get(f"{queue}/bindings") == before
    assert payloads(guest, queue) == sent
    assert guest("DELETE", f"{queue}?keep=600&if-empty=true").status == 400
    assert payloads(guest, queue) == sent


def test_what_is_kept_goes_when_its_time_is_over(own: ApiThread) -> None:
    api = own.api()
    api.put("/api/queues/%2F/q")
    fill(api, "%2F", 1)
    name = api("DELETE", "/api/queues/%2F/q/contents?keep=1").json["queue"]
    vhost, end = own.broker.node.vhosts["/"], time.monotonic() + PATIENCE
    while name in vhost.queues:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_in_the_order_of_their_delivery_and_no_more_than_are_there(guest: Api, vhost: str, queue: str) -> None:
    guest.put(f"/api/queues/{vhost}/p", {"arguments": {"x-max-priority": 9}})
    for number in (1, 9, 5):
        body = {
            "properties": {"priority": number},
            "routing_key": "p",
            "payload": str(number),
            "payload_encoding": "string",
        }
        assert guest("POST", f"/api/exchanges/{vhost}/amq.default/publish", body).json == {"routed": True}
    move = f"/api/queues/{vhost}/p/move"
    assert guest("POST", move, {"destination": "q", "limit": 2}).json == {"count": 2}
    assert guest("POST", move, {"destination": "q", "limit": 5}).json == {"count": 1}
    assert guest("POST", move, {"destination": "q"}).json == {"count": 0}
    assert payloads(guest, queue) == ["9", "5", "1"]


def test_those_with_a_consumer_stay_and_come_back(own: ApiThread) -> None:
    api = own.api()
    api.put("/api/queues/%2F/q")
    with Wire(own.port).log_in() as wire:
        wire.channel()
        wire.call(1, m.BasicQos(0, 1), m.BasicQosOk)
        wire.call(1, m.BasicConsume("q", "tag"), m.BasicConsumeOk)
        for body in (b"held", b"ready"):
            wire.publish("", "q", body, Properties())
        wire.expect(m.BasicDeliver)
        answer = api("DELETE", "/api/queues/%2F/q/contents?keep=60").json
        assert answer["count"] == 1
        wire.send(1, m.BasicNack(1, requeue=True))
        assert wire.expect(m.BasicDeliver).body == b"held"
    assert payloads(api, f"/api/queues/%2F/{answer['queue']}") == ["ready"]


def test_a_full_target_leaves_the_rest_where_it_is(guest: Api, vhost: str, queue: str) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    guest.put(f"/api/queues/{vhost}/short", {"arguments": arguments})
    fill(guest, vhost, 4)
    answer = guest("POST", f"{queue}/move", {"destination": "short"})
    assert answer.status == 400
    assert "is full" in answer.reason
    assert payloads(guest, queue) == ["m2", "m3"]
    assert payloads(guest, f"/api/queues/{vhost}/short") == ["m0", "m1"]


@pytest.mark.parametrize(("body", "status"), [
    ({}, 400), ({"destination": "none"}, 404), ({"destination": "q"}, 400), ({"destination": "other", "limit": 0}, 400),
    ({"destination": "other", "most": 1}, 400),
])  # fmt: skip
def test_what_is_refused(guest: Api, vhost: str, queue: str, body: dict[str, Any], status: int) -> None:
    fill(guest, vhost, 1)
    assert guest("POST", f"{queue}/move", body).status == status
    assert payloads(guest, queue) == ["m0"]


@pytest.mark.parametrize("keep", ["0", "-1", "x", "700000", ""])
def test_a_time_that_is_none(guest: Api, vhost: str, queue: str, keep: str) -> None:
    fill(guest, vhost, 1)
    assert guest("DELETE", f"{queue}/contents?keep={keep}").status == 400
    assert payloads(guest, queue) == ["m0"]


def test_streams_and_rights(own: ApiThread) -> None:
    api = own.api()
    api.put("/api/queues/%2F/s", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    assert api("DELETE", "/api/queues/%2F/s/contents?keep=5").status == 400
    api.put("/api/queues/%2F/q")
    api.put("/api/queues/%2F/hers")
    ann = own.add_user("ann", "management")
    own.run(lambda: own.broker.node.users.set_permission(Permission("/", "ann", "", "", "^q$")))
    fill(api, "%2F", 1)
    assert ann("DELETE", "/api/queues/%2F/q/contents?keep=5").status == 401  # she may declare nothing
    assert ann("POST", "/api/queues/%2F/q/move", {"destination": "hers"}).status == 401
    assert ann("POST", "/api/queues/%2F/hers/move", {"destination": "q"}).status == 401
    assert payloads(api, "/api/queues/%2F/q") == ["m0"]


def test_a_name_that_is_too_long_to_keep_what_is_there(guest: Api, vhost: str) -> None:
    long = f"/api/queues/{vhost}/{'q' * 240}"
    guest.put(long)
    for path in (f"{long}/contents?keep=60", f"{long}?keep=60"):
        answer = guest("DELETE", path)
        assert (answer.status, "do without `keep`" in answer.reason) == (400, True)
    assert guest("DELETE", long).status == 204


@pytest.mark.parametrize("operator", ["", "operator-"])
def test_no_policy_applies_to_what_is_kept(guest: Api, vhost: str, queue: str, operator: str) -> None:
    definition = {"expires": 50, "message-ttl": 50, "max-length": 1}
    kept = guest("DELETE", f"{queue}/contents?keep=600").json["queue"]
    fill(guest, vhost, 3)
    guest.put(f"/api/{operator}policies/{vhost}/p", {"pattern": ".*", "definition": definition, "apply-to": "queues"})
    later = guest("DELETE", f"{queue}/contents?keep=600").json
    for name, count in ((kept, 0), (later["queue"], later["count"])):
        there = guest.get(f"/api/queues/{vhost}/{quote(name, safe='')}")
        assert (there["messages"], there["policy"], there["operator_policy"]) == (count, None, None)
        assert there["effective_policy_definition"] == {}


def test_who_may_use_the_queue_may_use_what_is_kept_of_it(own: ApiThread) -> None:
    api, ann = own.api(), own.add_user("ann", "management")
    api.put("/api/queues/%2F/q")
    own.run(lambda: own.broker.node.users.set_permission(Permission("/", "ann", "^q$", "^(q|amq[.]default)$", "^q$")))
    own.add_user("bob", "management")
    own.run(lambda: own.broker.node.users.set_permission(Permission("/", "bob", "^b$", ".*", "^b$")))
    fill(api, "%2F", 2)
    kept = quote(ann("DELETE", "/api/queues/%2F/q/contents?keep=60").json["queue"], safe="")
    bob = own.api("bob", "bob")
    assert bob("POST", f"/api/queues/%2F/{kept}/move", {"destination": "q"}).status == 401
    kept = quote(ann("DELETE", f"/api/queues/%2F/{kept}?keep=60").json["queue"], safe="")  # of the same queue
    assert bob("GET", f"/api/queues/%2F/{kept}/browse").status == 401
    assert ann("POST", f"/api/queues/%2F/{kept}/move", {"destination": "q"}).json == {"count": 2}
    assert ann("PUT", f"/api/queues/%2F/{quote('amq.kept.1.q')}", {}).status in (400, 401)
