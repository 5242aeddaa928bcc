"""Why a message goes where it goes, over HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from harebell.admin.resources import explain
from tests.admin.kit import Api, ApiThread


def ask(api: Api, vhost: str, exchange: str, **query: Any) -> Any:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in query.items()}
    return api("GET", f"/api/exchanges/{vhost}/{exchange}/explain?{urlencode(texts)}")


def bind(
    api: Api, vhost: str, source: str, kind: str, destination: str, key: str = "", arguments: object = None
) -> None:
    body = {"routing_key": key, "arguments": arguments or {}}
    assert api("POST", f"/api/bindings/{vhost}/e/{source}/{kind}/{destination}", body).status == 201


def test_each_exchange_and_the_bindings_that_match(guest: Api, vhost: str) -> None:
    guest.put(f"/api/exchanges/{vhost}/h", {"type": "headers", "arguments": {"alternate-exchange": "rest"}})
    guest.put(f"/api/exchanges/{vhost}/rest", {"type": "fanout"})
    for queue in ("a", "b", "c"):
        guest.put(f"/api/queues/{vhost}/{queue}")
    bind(guest, vhost, "amq.topic", "q", "a", "order.#")
    bind(guest, vhost, "amq.topic", "q", "a", "other.#")
    bind(guest, vhost, "amq.topic", "e", "h", "order.*")
    bind(guest, vhost, "h", "q", "b", arguments={"x-match": "all", "kind": "big"})
    bind(guest, vhost, "rest", "q", "c")
    found = ask(guest, vhost, "amq.topic", routing_key="order.eu", headers={"kind": "big"}).json
    assert (found["exchange"], found["routing_keys"]) == ("amq.topic", ["order.eu"])
    assert [(each["name"], each["certain"]) for each in found["queues"]] == [("a", True), ("b", True)]
    first, second = found["steps"]
    assert (first["type"], first["outcome"], first["bindings"], first["matched"]) == ("topic", "matched", 3, 2)
    assert [(each["routing_key"], each["destination"]) for each in first["matches"]] == [
        ("order.#", "a"), ("order.*", "h"),
    ]  # fmt: skip
    assert second["matches"][0]["arguments"] == {"x-match": "all", "kind": "big"}
    without = ask(guest, vhost, "amq.topic", routing_key="order.eu").json
    assert [each["name"] for each in without["queues"]] == ["a", "c"]
    assert (without["steps"][1]["outcome"], without["steps"][1]["alternate"]) == ("alternate", "rest")
    assert guest.get(f"/api/queues/{vhost}/a")["messages"] == 0, "nothing was published"


def test_copies_properties_chance_and_delays(guest: Api, vhost: str) -> None:
    for queue in ("a", "b"):
        guest.put(f"/api/queues/{vhost}/{queue}")
    copied = ask(guest, vhost, "amq.default", routing_key="a", properties={"headers": {"CC": ["b"]}}).json
    assert [each["name"] for each in copied["queues"]] == ["a", "b"]
    guest.put(f"/api/exchanges/{vhost}/r", {"type": "x-random"})
    bind(guest, vhost, "r", "q", "a")
    bind(guest, vhost, "r", "q", "b")
    picked = ask(guest, vhost, "r").json
    assert (picked["steps"][0]["chosen_by"], picked["queues"][0]["certain"]) == ("chance", False)
    guest.put(f"/api/exchanges/{vhost}/d", {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}})
    bind(guest, vhost, "d", "q", "a")
    held = ask(guest, vhost, "d", headers={"x-delay": 500}).json
    assert (held["steps"][0]["outcome"], held["steps"][0]["delay"], held["queues"]) == ("delayed", 500, [])
    assert [each["name"] for each in ask(guest, vhost, "d", columns="queues").json["queues"]] == ["a"]


def test_only_the_first_of_many_bindings_are_shown(guest: Api, vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST_SHOWN", 2)
    guest.put(f"/api/queues/{vhost}/a")
    for key in "xyz":
        bind(guest, vhost, "amq.fanout", "q", "a", key)
    (step,) = ask(guest, vhost, "amq.fanout").json["steps"]
    assert (step["matched"], len(step["matches"])) == (3, 2)


def test_why_each_binding_matches_or_not(guest: Api, vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "STEP", 1)
    guest.put(f"/api/queues/{vhost}/a")
    guest.put(f"/api/exchanges/{vhost}/d", {"type": "x-delayed-message", "arguments": {"x-delayed-type": "topic"}})
    for exchange in ("amq.topic", "d"):
        for key in ("order.#", "order.us", "order.uk"):
            bind(guest, vhost, exchange, "q", "a", key)
    (step,) = ask(guest, vhost, "amq.topic", routing_key="order.eu", misses="9").json["steps"]
    assert [each["reason"] for each in step["matches"]] == ["the pattern 'order.#' matches the key 'order.eu'"]
    assert [(each["routing_key"], each["reason"]) for each in step["misses"]] == [
        ("order.us", "word 2 of the key is 'eu', not 'us'"), ("order.uk", "word 2 of the key is 'eu', not 'uk'"),
    ]  # fmt: skip
    (step,) = ask(guest, vhost, "amq.topic", routing_key="order.eu", misses="1").json["steps"]
    assert len(step["misses"]) == 1
    (step,) = ask(guest, vhost, "amq.topic", routing_key="order.eu").json["steps"]
    assert "misses" not in step
    (step,) = ask(guest, vhost, "d", routing_key="order.eu", headers={"x-delay": 5}, misses="9").json["steps"]
    assert (step["outcome"], "misses" in step) == ("delayed", False)


def test_the_policies_and_limits_of_the_queues(guest: Api, vhost: str) -> None:
    guest.put(f"/api/queues/{vhost}/a", {"arguments": {"x-max-length": 7, "x-message-ttl": 60000}})
    policy = {"pattern": "^a$", "definition": {"overflow": "reject-publish"}}
    assert guest.put(f"/api/policies/{vhost}/strict", policy) == 201
    limit = {"pattern": "^a$", "definition": {"max-length": 5}, "apply-to": "queues"}
    assert guest.put(f"/api/operator-policies/{vhost}/small", limit) == 201
    (queue,) = ask(guest, vhost, "amq.default", routing_key="a").json["queues"]
    assert (queue["policy"], queue["operator_policy"], queue["type"]) == ("strict", "small", "classic")
    assert (queue["messages_ready"], queue["consumers"]) == (0, 0)
    assert queue["limits"] == {"max_length": 5, "message_ttl": 60000, "overflow": "reject-publish"}


def test_who_may_publish_it(guest: Api, vhost: str, serving: ApiThread) -> None:
    serving.add_user("writer", "management")
    own = ask(guest, vhost, "amq.topic").json["permission"]
    assert own == {"user": "guest", "allowed": True, "reason": ""}
    none = ask(guest, vhost, "amq.topic", user="writer").json["permission"]
    assert (none["user"], none["allowed"]) == ("writer", False)
    assert "writer" in none["reason"]
    assert guest.put(f"/api/permissions/{vhost}/writer", {"configure": "", "write": "^amq", "read": ""}) == 201
    assert ask(guest, vhost, "amq.topic", user="writer").json["permission"]["allowed"]
    forged = ask(guest, vhost, "amq.topic", user="writer", properties={"user_id": "guest"}).json["permission"]
    assert "user_id property set to 'guest'" in forged["reason"]
    unknown = ask(guest, vhost, "amq.topic", user="nobody").json["permission"]
    assert (unknown["allowed"], unknown["reason"]) == (False, "there is no user 'nobody'")
    writer = serving.api("writer")
    assert ask(writer, vhost, "amq.topic").json["permission"]["user"] == "writer"
    assert ask(writer, vhost, "amq.topic", user="guest").status == 401


@pytest.mark.parametrize("query, reason", [
    ({"headers": "[1]"}, "headers must be a JSON object"), ({"headers": "{"}, "headers must be a JSON object"),
    ({"properties": "x"}, "properties must be a JSON object"),
    ({"misses": "-1"}, "misses must be a whole number"),
    ({"properties": {"headers": 5}}, "headers must be an object"), ({"headers": {"CC": "a"}}, "CC"),
    ({"routing_key": "x" * 256}, "routing_key"), ({"properties": {"priority": "low"}}, "not_int: priority"),
])  # fmt: skip
def test_wrong_questions(guest: Api, vhost: str, query: Any, reason: str) -> None:
    answer = ask(guest, vhost, "amq.topic", **query)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert reason in answer.reason


def test_an_exchange_that_does_not_exist(guest: Api, vhost: str, serving: ApiThread) -> None:
    assert ask(guest, vhost, "none").status == 404
    assert ask(serving.add_user("explainer", "management"), vhost, "amq.topic").status == 401
