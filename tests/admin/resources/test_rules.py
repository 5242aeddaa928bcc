"""Policies, parameters, definitions and shovels over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harebell.admin import Management
from harebell.bridge import Shovels
from harebell.broker import Broker
from tests.admin.kit import Api, ApiThread

MAX: dict[str, Any] = {"pattern": "^q", "definition": {"max-length": 5}}


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_policies(api: Api, kind: str) -> None:
    path = f"/api/{kind}/%2F/p"
    assert api("GET", path).status == api("DELETE", path).status == 404
    assert api.put(path, {**MAX, "priority": 3, "apply-to": "queues"}) == 201
    assert api.put(path, {**MAX, "priority": 4, "apply-to": "queues"}) == 204
    found = {"vhost": "/", "name": "p", "apply-to": "queues", "priority": 4, **MAX}
    assert api.get(path) == found
    assert api.get(f"/api/{kind}") == api.get(f"/api/{kind}/%2F") == [found]
    other = "operator-policies" if kind == "policies" else "policies"
    assert api.get(f"/api/{other}") == []
    assert api("DELETE", path).status == 204
    assert api.get(f"/api/{kind}") == []


@pytest.mark.parametrize("body, reason", [
    ({}, "[{key_missing,pattern}]"), ({"pattern": "x"}, "[{key_missing,definition}]"),
    ({**MAX, "pattern": "("}, "pattern should be regular expression but is invalid"),
    ({**MAX, "definition": {"nope": 1}}, "are not recognised policy settings"),
    ({**MAX, "apply-to": "zz"}, "apply-to 'zz' unrecognised"),
    ({**MAX, "priority": "high"}, "priority should be a number"),
    ({**MAX, "definition": {}}, "no policy provided"),
])  # fmt: skip
def test_wrong_policies_are_refused(api: Api, body: Any, reason: str) -> None:
    answer = api("PUT", "/api/policies/%2F/p", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert reason in answer.reason
    assert api.get("/api/policies") == []


def test_a_policy_applies_at_once(api: Api) -> None:
    api.put("/api/queues/%2F/q")
    api.put("/api/policies/%2F/p", MAX)
    assert api.get("/api/queues/%2F/q")["policy"] == "p"
    api("DELETE", "/api/policies/%2F/p")
    assert api.get("/api/queues/%2F/q")["policy"] is None


def test_parameters(api: Api) -> None:
    path = "/api/parameters/federation/%2F/p"
    assert api("GET", path).status == api("DELETE", path).status == 404
    assert api.put(path, {"value": {"uri": "amqp://"}}) == 201
    assert api.put(path, {"value": [1, None]}) == 204
    found = {"value": [1, None], "vhost": "/", "component": "federation", "name": "p"}
    assert api.get(path) == found
    for each in ("", "/federation", "/federation/%2F"):
        assert api.get(f"/api/parameters{each}") == [found]
    assert api.get("/api/parameters/other") == api.get("/api/parameters/other/%2F") == []
    assert api("PUT", path, {}).reason == "[{key_missing,value}]"
    assert api("PUT", "/api/parameters/policy/%2F/p", {"value": {}}).status == 400
    assert api("DELETE", path).status == 204
    assert api.get("/api/parameters") == []


def test_operator_policies_are_listed_as_parameters(api: Api) -> None:
    """And policies are not; both are changed on paths of their own."""
    assert api.put("/api/policies/%2F/p", MAX) == 201
    assert api.put("/api/operator-policies/%2F/o", {**MAX, "apply-to": "queues"}) == 201
    found = api.get("/api/parameters/operator_policy/%2F/o")
    assert found.pop("value").items() >= {**MAX, "apply-to": "queues"}.items()
    assert found == {"vhost": "/", "component": "operator_policy", "name": "o"}
    for each in ("", "/operator_policy", "/operator_policy/%2F"):
        assert [it["name"] for it in api.get(f"/api/parameters{each}")] == ["o"]
    path = "/api/parameters/operator_policy/%2F/"
    assert api("GET", f"{path}p").status == api("DELETE", f"{path}o").status == 404
    assert api("PUT", f"{path}o", {"value": {}}).status == 400
    assert api.get("/api/parameters/policy") == []
    assert api.get("/api/operator-policies/%2F/o")["name"] == "o"


def test_limits_are_an_administrators_parameters(api: Api, own: ApiThread) -> None:
    maker = own.add_user("maker", "policymaker", vhosts=("/",))
    path = "/api/parameters/vhost-limits/%2F/limits"
    assert maker("PUT", path, {"value": {"max-queues": -1}}).status == 401
    assert api.put(path, {"value": {"max-queues": 3}}) == 201
    assert maker("DELETE", path).status == 401
    assert maker.get(path)["value"] == {"max-queues": 3}
    assert api("DELETE", path).status == 204


def test_a_policymaker_sees_its_virtual_hosts(api: Api, own: ApiThread) -> None:
    api.put("/api/vhosts/v")
    for vhost in ("%2F", "v"):
        api.put(f"/api/parameters/c/{vhost}/p", {"value": 1})
        api.put(f"/api/policies/{vhost}/p", MAX)
    maker = own.add_user("maker", "policymaker", vhosts=("v",))
    assert [each["vhost"] for each in maker.get("/api/parameters")] == ["v"]
    assert [each["vhost"] for each in maker.get("/api/policies")] == ["v"]
    assert maker.put("/api/policies/v/q", MAX) == 201
    assert maker.put("/api/parameters/c/v/q", {"value": 2}) == 201
    assert maker("DELETE", "/api/parameters/c/v/q").status == 204


def test_global_parameters_and_the_name_of_the_cluster(api: Api, own: ApiThread) -> None:
    path = "/api/global-parameters/g"
    assert api("GET", path).status == api("DELETE", path).status == 404
    assert api.put(path, {"value": {"a": 1}}) == 201
    assert api.put(path, {"value": 2}) == 204
    assert api.get(path) == {"name": "g", "value": 2}
    assert api.get("/api/global-parameters") == [{"name": "g", "value": 2}]
    assert api("DELETE", path).status == 204
    assert api.get("/api/cluster-name") == {"name": own.broker.node.name}
    assert api.put("/api/cluster-name", {"name": "orders"}) == 204
    assert api.get("/api/cluster-name") == {"name": "orders"}
    assert api.get("/api/overview")["cluster_name"] == "orders"
    assert api("PUT", "/api/cluster-name", {}).status == 400


# -- definitions


def fill(api: Api) -> None:
    api.put("/api/vhosts/v", {"description": "d", "tags": "t"})
    api.put("/api/users/u", {"password": "p", "tags": "management"})
    api.put("/api/permissions/v/u", {"configure": "", "write": "", "read": ".*"})
    api.put("/api/topic-permissions/v/u", {"exchange": "amq.topic", "write": "a", "read": "b"})
    api.put("/api/queues/v/q", {"durable": True, "arguments": {"x-max-length": 5}})
    api.put("/api/exchanges/v/x", {"type": "topic", "durable": True})
    api("POST", "/api/bindings/v/e/x/q/q", {"routing_key": "a.*", "arguments": {"n": 1}})
    api.put("/api/policies/v/p", MAX)
    api.put("/api/operator-policies/v/p", MAX)
    api.put("/api/parameters/c/v/p", {"value": {"a": 1}})
    api.put("/api/global-parameters/g", {"value": "x"})
    api.put("/api/vhost-limits/v/max-queues", {"value": 100})


def in_any_order(file: dict[str, Any]) -> dict[str, Any]:
    return {name: sorted(map(repr, each)) if isinstance(each, list) else each for name, each in file.items()}


def test_definitions_go_out_and_come_in(api: Api) -> None:
    fill(api)
    answer = api("GET", "/api/definitions?download=my%22file%0d%0ax.json")
    assert answer.headers["content-disposition"] == 'attachment; filename="myfilernx.json"'
    file = answer.json
    assert file["rabbitmq_version"] == file["rabbit_version"] == "3.13.7"
    assert file["product_name"] == "Harebell"
    assert api.get("/api/all-configuration") == file
    with ApiThread() as other:
        assert other.api()("POST", "/api/definitions", file).status == 204
        assert in_any_order(other.api().get("/api/definitions")) == in_any_order(file)
        assert other.api("u", "p").get("/api/whoami")["name"] == "u"


def test_definitions_of_one_virtual_host(api: Api) -> None:
    fill(api)
    file = api.get("/api/definitions/v")
    assert [each["name"] for each in file["queues"]] == ["q"]
    assert "users" not in file
    api.put("/api/vhosts/w")
    assert api("POST", "/api/definitions/w", file).status == 204
    copy = api.get("/api/definitions/w")
    for name in ("queues", "exchanges", "bindings", "policies"):
        assert copy[name] == file[name]
    assert api("GET", "/api/definitions/nowhere").status == api("POST", "/api/definitions/nowhere", {}).status == 404


@pytest.mark.parametrize("body, reason", [
    (b"{", "not_json"), (b"[]", "not_json"), (b'{"queues": [{]}', "not_json"),
    ({"queues": [{"name": "ok", "vhost": "/", "arguments": {}}, {"name": "q"}]}, "queues[1].vhost: missing"),
    ({"vhosts": [{"name": "v"}], "queues": [{"name": "q", "vhost": "v", "arguments": {"x-expires": "x"}}]}, "x-exp"),
    ({"policies": [{"name": "p", "vhost": "/", "pattern": "(", "definition": {"max-length": 1}}]}, "pattern"),
    ({"queues": 5}, "queues: expected a list"),
])  # fmt: skip
def test_a_wrong_file_changes_nothing(api: Api, body: Any, reason: str) -> None:
    before = api.get("/api/definitions")
    answer = api("POST", "/api/definitions", body)
    assert answer.status == 400
    assert reason in answer.reason
    assert api.get("/api/definitions") == before


def test_a_file_may_be_empty(api: Api) -> None:
    assert api("POST", "/api/definitions", b"").status == 204
    assert api("POST", "/api/definitions", {}).status == 204


def test_a_large_file_goes_through_in_slices(api: Api) -> None:
    queue = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    queues = [{"name": f"q{number}", **queue} for number in range(500)]
    assert api("POST", "/api/definitions", {"queues": queues}).status == 204
    assert len(api.get("/api/definitions")["queues"]) == 500


# -- shovels


def test_without_shovels_there_is_none(api: Api) -> None:
    assert api.get("/api/shovels") == api.get("/api/shovels/%2F") == []
    assert api("GET", "/api/shovels/vhost/%2F/s").status == 404
    assert api("DELETE", "/api/shovels/vhost/%2F/s").status == 404


async def test_shovels() -> None:
    shovels = Shovels()
    async with Broker(components={"shovel": shovels}) as broker, shovels.of(broker), Management(broker) as management:
        assert management.port is not None
        api = Api(management.port)

        def call(method: str, path: str, body: Any = None) -> Any:
            return asyncio.to_thread(api, method, path, body)

        value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://u:planted@localhost:1", "dest-queue": "b"}
        assert (await call("PUT", "/api/queues/%2F/a", {})).status == 201
        assert (await call("PUT", "/api/parameters/shovel/%2F/s", {"value": value})).status == 201
        assert (await call("PUT", "/api/parameters/shovel/%2F/bad", {"value": {}})).status == 400
        (found,) = (await call("GET", "/api/shovels")).json
        assert (found["name"], found["vhost"], found["type"], found["src_queue"]) == ("s", "/", "dynamic", "a")
        for path in ("/api/shovels", "/api/shovels/%2F", "/api/shovels/vhost/%2F/s"):
            answer = await call("GET", path)
            assert b"planted" not in answer.body
            assert b'"s"' in answer.body
        assert (await call("DELETE", "/api/shovels/vhost/%2F/s/restart")).status == 204
        assert (await call("DELETE", "/api/shovels/vhost/%2F/s")).status == 204
        assert (await call("GET", "/api/shovels")).json == []
        assert (await call("DELETE", "/api/shovels/vhost/%2F/s/restart")).status == 404
