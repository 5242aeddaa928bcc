"""Exchanges and bindings over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from tests.admin.kit import Api


def test_declare_show_and_delete(guest: Api, vhost: str) -> None:
    path = f"/api/exchanges/{vhost}/x"
    body = {"type": "topic", "durable": True, "internal": True, "arguments": {"alternate-exchange": "amq.fanout"}}
    assert guest.put(path, body) == 201
    assert guest.put(path, body) == 204
    found = guest.get(path)
    assert found["alternate_exchange"] == "amq.fanout"
    assert (found["type"], found["durable"], found["internal"], found["auto_delete"]) == ("topic", True, True, False)
    assert guest("DELETE", path).status == 204
    assert guest("GET", path).status == guest("DELETE", path).status == 404
    assert guest.put(path) == 201, "direct, when nothing is said"


@pytest.mark.parametrize("name, body, status, reason", [
    ("amq.direct", {"type": "fanout", "durable": True}, 400,
     "inequivalent arg 'type' for exchange 'amq.direct' in vhost '{}': received 'fanout' but current is 'direct'"),
    ("x", {"type": "nothing"}, 400, "unknown exchange type 'nothing'"),
    ("x", {"type": "system"}, 400, "unknown exchange type 'system'"),
    ("amq.own", {"type": "direct"}, 401, "ACCESS_REFUSED - exchange name 'amq.own' contains reserved prefix 'amq.*'"),
    ("amq.default", {"type": "direct"}, 401, "ACCESS_REFUSED - operation not permitted on the default exchange"),
    ("x", {"type": 5}, 400, "type must be a string"),
    ("n" * 256, {}, 400, f"exchange name: '{'n' * 60}...' has 256 bytes, and may have 255"),
    ("%0A", {}, 401, "ACCESS_REFUSED - operation not permitted on the default exchange"),
])  # fmt: skip
def test_refused_declarations(guest: Api, vhost: str, name: str, body: object, status: int, reason: str) -> None:
    answer = guest("PUT", f"/api/exchanges/{vhost}/{name}", body)
    assert (answer.status, answer.reason) == (status, reason.format(vhost))


def test_those_that_are_always_there(guest: Api, vhost: str) -> None:
    found = {each["name"]: each for each in guest.get(f"/api/exchanges/{vhost}")}
    assert {"", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"} <= found.keys()
    assert guest.get(f"/api/exchanges/{vhost}/amq.default")["name"] == ""
    assert guest.get(f"/api/exchanges/{vhost}//")["name"] == ""
    answer = guest("DELETE", f"/api/exchanges/{vhost}/amq.direct")
    assert answer.status == 401


def test_an_exchange_is_deleted_if_it_is_unused(guest: Api, vhost: str) -> None:
    guest.put(f"/api/exchanges/{vhost}/x")
    guest.put(f"/api/queues/{vhost}/q")
    guest("POST", f"/api/bindings/{vhost}/e/x/q/q", {})
    answer = guest("DELETE", f"/api/exchanges/{vhost}/x?if-unused=true")
    assert (answer.status, answer.reason) == (400, f"exchange 'x' in vhost '{vhost}' in use")
    assert guest("DELETE", f"/api/exchanges/{vhost}/x").status == 204
    guest.put(f"/api/exchanges/{vhost}/x")
    assert guest("DELETE", f"/api/exchanges/{vhost}/x?if-unused=true").status == 204


def test_a_policy_that_applies_is_shown(guest: Api, vhost: str) -> None:
    guest.put(f"/api/exchanges/{vhost}/x")
    guest.put(f"/api/policies/{vhost}/ae", {"pattern": "^x", "definition": {"alternate-exchange": "amq.fanout"}})
    found = guest.get(f"/api/exchanges/{vhost}/x")
    assert (found["policy"], found["alternate_exchange"]) == ("ae", "amq.fanout")


# -- bindings


def test_bind_list_show_and_unbind(guest: Api, vhost: str) -> None:
    guest.put(f"/api/exchanges/{vhost}/x", {"type": "topic"})
    guest.put(f"/api/queues/{vhost}/a%2Fb")
    base = f"/api/bindings/{vhost}/e/x/q/a%2Fb"
    keys = []
    bodies: tuple[dict[str, Any], ...] = (
        {"routing_key": "a.*.#"},
        {"routing_key": "a/b~c", "arguments": {"n": 1}},
        {"routing_key": "x/y+z w%é"},
        {"arguments": {"n": 1}},
        {},
    )
    for body in bodies:
        answer = guest("POST", base, body)
        assert answer.status == 201
        location = answer.headers["location"]
        assert location.startswith("a%2Fb/")
        keys.append(unquote(location.partition("/")[2]))
        followed = guest.get(f"/api/bindings/{vhost}/e/x/q/{location}")
        assert (followed["routing_key"], followed["arguments"]) == (
            body.get("routing_key", ""),
            body.get("arguments", {}),
        )
    assert keys[0] == "a.%2A.%23"
    assert keys[1].startswith("a%2Fb%7Ec~")
    assert keys[2] == "x%2Fy%2Bz+w%25%C3%A9"
    assert keys[3].startswith("~")
    assert keys[4] == "~"
    assert len(set(keys)) == 5
    assert guest("POST", base, {}).headers["location"] == "a%2Fb/~", "the same binding again is the same"
    found = guest.get(base)
    assert sorted(each["properties_key"] for each in found) == sorted(keys)
    assert guest.get(f"/api/queues/{vhost}/a%2Fb/bindings")[0] == {
        "source": "", "vhost": vhost, "destination": "a/b", "destination_type": "queue", "routing_key": "a/b",
        "arguments": {}, "properties_key": "a%2Fb",
    }  # fmt: skip
    assert len(guest.get(f"/api/exchanges/{vhost}/x/bindings/source")) == 5
    assert len(guest.get(f"/api/bindings/{vhost}")) == 6
    for key in keys:
        escaped = key.replace("%", "%25")
        shown = guest.get(f"{base}/{escaped}")
        assert shown["properties_key"] == key
        assert guest("DELETE", f"{base}/{escaped}").status == 204
        assert guest("DELETE", f"{base}/{escaped}").status == guest("GET", f"{base}/{escaped}").status == 404
    assert guest.get(base) == []


def test_exchanges_are_bound_to_exchanges(guest: Api, vhost: str) -> None:
    for name in ("x", "y"):
        guest.put(f"/api/exchanges/{vhost}/{name}")
    assert guest("POST", f"/api/bindings/{vhost}/e/x/e/y", {"routing_key": "k"}).status == 201
    (found,) = guest.get(f"/api/exchanges/{vhost}/y/bindings/destination")
    assert (found["source"], found["destination_type"], found["routing_key"]) == ("x", "exchange", "k")
    assert guest.get(f"/api/bindings/{vhost}/e/x/e/y") == [found]
    assert found in guest.get("/api/bindings")


@pytest.mark.parametrize("path, status, reason", [
    ("x/q/none", 404, "no queue 'none' in vhost '{}'"),
    ("none/q/q", 404, "no exchange 'none' in vhost '{}'"),
    ("x/z/q", 404, "Not Found"),
    (f"x/q/{'n' * 256}", 404, f"no queue '{'n' * 255}...' in vhost '{{}}'"),
    (f"x/e/{'n' * 256}", 404, f"no exchange '{'n' * 255}...' in vhost '{{}}'"),
    (f"{'n' * 256}/q/q", 404, f"no exchange '{'n' * 255}...' in vhost '{{}}'"),
    ("amq.default/q/q", 401, "ACCESS_REFUSED - operation not permitted on the default exchange"),
])  # fmt: skip
def test_refused_bindings(guest: Api, vhost: str, path: str, status: int, reason: str) -> None:
    guest.put(f"/api/exchanges/{vhost}/x")
    guest.put(f"/api/queues/{vhost}/q")
    answer = guest("POST", f"/api/bindings/{vhost}/e/{path}", {})
    assert (answer.status, answer.reason) == (status, reason.format(vhost))
    assert guest("GET", f"/api/bindings/{vhost}/e/x/z/q").status == 404


def test_a_binding_key_that_amqp_could_not_carry(guest: Api, vhost: str) -> None:
    guest.put(f"/api/queues/{vhost}/q")
    base = f"/api/bindings/{vhost}/e/amq.direct/q/q"
    assert guest("POST", base, {"routing_key": "k" * 255}).status == 201
    answer = guest("POST", base, {"routing_key": "k" * 256})
    assert (answer.status, answer.reason) == (400, f"routing_key: '{'k' * 60}...' has 256 bytes, and may have 255")
    assert len(guest.get(base)) == 1


def test_line_ends_are_taken_out_of_names(guest: Api, vhost: str) -> None:
    assert guest.put(f"/api/queues/{vhost}/l%0Aq") == guest.put(f"/api/exchanges/{vhost}/l%0D%0Ae") == 201
    assert guest.put(f"/api/queues/{vhost}/lq") == guest.put(f"/api/exchanges/{vhost}/le") == 204
    assert guest("POST", f"/api/bindings/{vhost}/e/l%0Ae/q/l%0Dq", {"routing_key": "k"}).status == 201
    (found,) = guest.get(f"/api/bindings/{vhost}/e/le/q/lq")
    assert (found["source"], found["destination"]) == ("le", "lq")
    assert guest("GET", f"/api/queues/{vhost}/l%0Aq").status == 404
    answer = guest("PUT", f"/api/queues/{vhost}/%0A", {})
    assert (answer.status, answer.reason) == (400, "queue name: is empty")


def test_the_default_exchange_has_its_bindings(guest: Api, vhost: str) -> None:
    guest.put(f"/api/queues/{vhost}/q")
    (found,) = guest.get(f"/api/bindings/{vhost}/e/amq.default/q/q")
    assert found["source"] == ""
    assert guest.get(f"/api/bindings/{vhost}/e//q/q/q") == found
