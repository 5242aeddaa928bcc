"""Definitions over HTTP: what an import would do, and that every export can be imported."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from harebell.admin.documents.endpoints import ENDPOINTS
from tests.admin.kit import Api, ApiThread, part

FILE = {
    "queues": [
        {"vhost": "/", "name": "new", "durable": True},
        {"vhost": "/", "name": "there", "durable": True, "arguments": {"x-max-length": 5}},
        {"vhost": "/", "name": "same", "durable": True},
    ],
    "policies": [{"vhost": "/", "name": "p", "pattern": "^a", "definition": {"max-length": 5}, "priority": 0}],
}


def test_a_plan_changes_nothing_and_says_what_would(own: ApiThread) -> None:
    api = own.api()
    for name in ("there", "same"):
        api.put(f"/api/queues/%2F/{name}", {"durable": True})
    api.put("/api/policies/%2F/p", {"pattern": "^b", "definition": {"max-length": 5}})
    before = api.get("/api/definitions"), api.get("/api/audit")
    reply = api("POST", "/api/definitions?plan=true", FILE)
    assert reply.status == 200
    plan = reply.json
    assert {name: plan[name] for name in ("new", "changed", "kept", "same")} == {
        "new": 1, "changed": 1, "kept": 1, "same": 1
    }  # fmt: skip
    assert plan["objects"] == [
        {"section": "policies", "object": {"vhost": "/", "name": "p"}, "fate": "changed",
         "differs": {"pattern": {"now": "^b", "file": "^a"}}},
        {"section": "queues", "object": {"vhost": "/", "name": "new"}, "fate": "new", "differs": {}},
        {"section": "queues", "object": {"vhost": "/", "name": "there"}, "fate": "kept",
         "differs": {"arguments": {"now": {}, "file": {"x-max-length": 5}}}},
    ]  # fmt: skip
    assert (api.get("/api/definitions"), api.get("/api/audit")) == before
    assert api("POST", "/api/definitions?plan=false", FILE).status == 204
    assert api.get("/api/queues/%2F/new")["durable"] is True


def test_a_plan_for_one_virtual_host_and_one_that_cannot_be(own: ApiThread) -> None:
    api = own.api()
    file = {"queues": [{"name": f"q{number}", "durable": True} for number in range(300)]}
    plan = api("POST", "/api/definitions/%2F?plan=true", file).json
    assert (plan["new"], len(plan["objects"])) == (300, 300)
    assert plan["objects"][299]["object"] == {"vhost": "/", "name": "q299"}
    wrong = api("POST", "/api/definitions?plan=true", {"queues": [{"vhost": "none", "name": "q"}]})
    assert (wrong.status, "none" in wrong.reason) == (400, True)
    user = own.add_user("user", "management", vhosts=("/",))
    assert user("POST", "/api/definitions?plan=true", file).status == 401


MAX: dict[str, Any] = {"pattern": ".", "definition": {"max-length": 5}}
PERMISSION = {"configure": ".*", "write": ".*", "read": ".*"}

NAMES = (
    "plain", "a\nb", "\r\na", "a\r", "\n", "n" * 255, "n" * 256, "n" * 254 + "\n\n", "é" * 127, "é" * 128, "\0", "a b",
    "a/b", "a+b", "%2F", "~", "a~b", "\u2028", "\ufffd", "#", "?", ".", "..", "*", "(", "amq.default", "amq.x",
    "amq.direct", "{", "[]", "null", '"',
)  # fmt: skip

MAKING: dict[str, tuple[str, *tuple[Any, ...]]] = {
    "PUT /api/queues/{vhost}/{queue}": ("/api/queues/%2F/{}", {}),
    "PUT /api/exchanges/{vhost}/{exchange}": ("/api/exchanges/%2F/{}", {}),
    "POST /api/bindings/{vhost}/e/{source}/{kind}/{destination}": (
        "/api/bindings/%2F/e/amq.direct/q/there", {"routing_key": "{}"}, {"arguments": {"{}": "{}"}}
    ),
    "PUT /api/vhosts/{vhost}": ("/api/vhosts/{}", {"description": "{}", "tags": ["{}"]}),
    "PUT /api/users/{user}": ("/api/users/{}", {"password_hash": "", "tags": ["{}"]}),
    "PUT /api/permissions/{vhost}/{user}": ("/api/permissions/%2F/there", {**PERMISSION, "read": "{}"}),
    "PUT /api/topic-permissions/{vhost}/{user}": (
        "/api/topic-permissions/%2F/there", {"exchange": "{}", "write": "{}", "read": "{}"}
    ),
    "PUT /api/policies/{vhost}/{name}": ("/api/policies/%2F/{}", MAX),
    "PUT /api/operator-policies/{vhost}/{name}": ("/api/operator-policies/%2F/{}", MAX),
    "PUT /api/parameters/{component}/{vhost}/{name}": ("/api/parameters/{}/%2F/{}", {"value": {"{}": "{}"}}),
    "PUT /api/global-parameters/{name}": ("/api/global-parameters/{}", {"value": "{}"}),
    "PUT /api/vhost-limits/{vhost}/{name}": ("/api/vhost-limits/%2F/{}", {"value": 5}),
    "PUT /api/user-limits/{user}/{name}": ("/api/user-limits/there/{}", {"value": 5}),
    "PUT /api/cluster-name": ("/api/cluster-name", {"name": "{}"}),
}  # fmt: skip
"""The requests that make something whose name the client chooses: path and bodies; {} stands for the name."""

OTHERS = {
    "PUT /api/feature-flags/{name}/enable", "PUT /api/consumers/{vhost}/{channel}/{consumer}/prefetch",
    "PATCH /api/queues/{vhost}/{queue}",
}  # fmt: skip
"""Those with PUT or PATCH that make nothing."""


def test_each_request_that_makes_something_is_tried() -> None:
    there = {f"{each.method} {each.path}" for each in ENDPOINTS if each.method in ("PUT", "PATCH")}
    assert there - OTHERS <= MAKING.keys()


def test_a_byte_order_mark(own: ApiThread) -> None:
    """Some editors begin a file with it."""
    api, mark = own.api(), b"\xef\xbb\xbf"
    file = mark + b'{"queues": [{"name": "q", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}}]}'
    assert api("POST", "/api/definitions", file).status == 204
    assert api("PUT", "/api/queues/%2F/p", mark + b'{"durable": true}').status == 201
    assert api("POST", "/api/definitions", mark).status == 204
    assert {each["name"] for each in api.get("/api/queues")} == {"q", "p"}


def named(value: Any, name: str) -> Any:
    """The body with the name for each {}."""
    if isinstance(value, dict):
        return {named(each, name): named(inner, name) for each, inner in value.items()}
    if isinstance(value, list):
        return [named(each, name) for each in value]
    return name if value == "{}" else value


@pytest.mark.parametrize("request_line", MAKING)
def test_whatever_was_made_can_be_exported_and_imported(api: Api, request_line: str) -> None:
    api.put("/api/queues/%2F/there")
    api.put("/api/users/there", {"tags": ""})
    path, *bodies = MAKING[request_line]
    made = []
    for name, body in product(NAMES, bodies):
        reply = api(request_line.split()[0], path.replace("{}", part(name)), named(body, name))
        assert reply.status in (201, 204, 400, 401, 404), (name, reply)
        if reply.status < 300:
            made.append(name)
    file = api("GET", "/api/definitions").body
    with ApiThread() as other:
        reply = other.api()("POST", "/api/definitions", file)
        assert reply.status == 204, (made, reply)
        assert in_any_order(other.api().get("/api/definitions")) == in_any_order(api.get("/api/definitions"))


def in_any_order(file: dict[str, Any]) -> dict[str, Any]:
    return {name: sorted(map(repr, each)) if isinstance(each, list) else each for name, each in file.items()}
