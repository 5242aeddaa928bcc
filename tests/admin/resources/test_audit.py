"""The audit log: which acts are recorded, with what, for whom, and that it is bounded and has no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harebell.admin.audit import EVENTLESS, NO_CHANGES
from harebell.admin.documents.endpoints import ENDPOINTS
from harebell.protocol.v091 import Table, methods as m
from harebell.protocol.v091.codec import PROTOCOL_HEADER
from tests.admin.kit import Api, ApiThread
from tests.wire import Wire

SECRET = "marker-of-a-secret"
MAX = {"pattern": "^q", "definition": {"max-length": 5}}

Record = dict[str, Any]


def latest(api: Api, after: int) -> list[Record]:
    """The records after that one, the oldest first."""
    return [each for each in reversed(api.get("/api/audit")) if each["number"] > after]


def newest(api: Api) -> int:
    return max((each["number"] for each in api.get("/api/audit")), default=0)


def facts(it: Record) -> tuple[str, ...]:
    return tuple(it[name] for name in ("user", "protocol", "vhost", "kind", "name", "act", "outcome"))


HTTP: list[tuple[str, str, Any, tuple[str, str, str]]] = [
    ("PUT", "/api/queues/%2F/q", {}, ("queue", "q", "created")),
    ("DELETE", "/api/queues/%2F/q/contents", None, ("queue", "q", "purged")),
    ("PATCH", "/api/queues/%2F/q", {"arguments": {"x-max-length": 5}}, ("queue", "q", "changed")),
    ("PUT", "/api/exchanges/%2F/x", {"type": "topic"}, ("exchange", "x", "created")),
    ("POST", "/api/bindings/%2F/e/x/q/q", {"routing_key": "k"}, ("binding", "x -> q", "created")),
    ("DELETE", "/api/bindings/%2F/e/x/q/q/k", None, ("binding", "x -> q", "deleted")),
    ("PUT", "/api/policies/%2F/p", MAX, ("policy", "p", "set")),
    ("DELETE", "/api/policies/%2F/p", None, ("policy", "p", "cleared")),
    ("PUT", "/api/operator-policies/%2F/p", MAX, ("operator.policy", "p", "set")),
    ("DELETE", "/api/operator-policies/%2F/p", None, ("operator.policy", "p", "cleared")),
    ("PUT", "/api/parameters/c/%2F/p", {"value": {"uri": SECRET}}, ("parameter", "p", "set")),
    ("DELETE", "/api/parameters/c/%2F/p", None, ("parameter", "p", "cleared")),
    ("PUT", "/api/vhost-limits/%2F/max-queues", {"value": 99}, ("parameter", "limits", "set")),
    ("DELETE", "/api/exchanges/%2F/x", None, ("exchange", "x", "deleted")),
    ("DELETE", "/api/queues/%2F/q", None, ("queue", "q", "deleted")),
]


def test_an_act_over_http_is_one_record(api: Api) -> None:
    for method, path, body, (kind, name, act) in HTTP:
        before = newest(api)
        assert api(method, path, body).status < 300, path
        found = latest(api, before)
        assert [facts(each) for each in found] == [("guest", "http", "/", kind, name, act, "done")], path
        assert found[0]["peer"] == "127.0.0.1"


def test_acts_on_the_whole_broker(api: Api) -> None:
    before = newest(api)
    api.put("/api/vhosts/v")
    api.put("/api/vhosts/v", {"description": "new"})
    api.put("/api/vhosts/v", {"description": "new"})
    api.put("/api/vhosts/v", {"description": "new", "tracing": True})
    api.put("/api/vhosts/v", {"description": "new", "tracing": True})
    api.put("/api/users/u", {"password": SECRET, "tags": "management"})
    api.put("/api/users/u", {"password": SECRET + "2", "tags": "management"})
    api.put("/api/permissions/v/u", {"configure": "c", "write": "", "read": ".*"})
    api.put("/api/user-limits/u/max-channels", {"value": 7})
    api.put("/api/global-parameters/g", {"value": SECRET})
    api("DELETE", "/api/global-parameters/g")
    api("DELETE", "/api/permissions/v/u")
    api("DELETE", "/api/users/u")
    api("DELETE", "/api/vhosts/v")
    found = latest(api, before)
    assert [(each["kind"], each["name"], each["act"]) for each in found if each["name"] != "guest"] == [
        ("vhost", "v", "created"), ("vhost", "v", "changed"),
        ("vhost", "v", "tracing.on"), ("user", "u", "created"), ("user.tags", "u", "set"),
        ("user", "u", "password.changed"), ("permission", "u", "created"), ("user.limits", "u", "set"),
        ("parameter", "g", "set"), ("parameter", "g", "cleared"), ("permission", "u", "deleted"),
        ("user", "u", "deleted"), ("vhost", "v", "deleted"),
    ]  # fmt: skip
    assert {each["user"] for each in found} == {"guest"}
    permissions = [each["details"] for each in found if (each["kind"], each["name"]) == ("permission", "u")]
    assert permissions == [{"configure": "c", "write": "", "read": ".*"}, {}]


def test_a_question_is_no_act(api: Api) -> None:
    api.put("/api/queues/%2F/q")
    before = newest(api)
    wrong = {"queues": [{"vhost": "nowhere", "name": "q", "durable": True, "auto_delete": False, "arguments": {}}]}
    documents: tuple[Any, ...] = ({"queues": []}, wrong)
    for document in documents:
        api("POST", "/api/definitions?plan=true", document)
    for body in ({"dry_run": True}, {"dry_run": True, "limit": -1}):
        api("POST", "/api/queues/%2F/q/redrive", body)
    assert latest(api, before) == []
    assert api("DELETE", "/api/queues/%2F/none?plan=true").status == 404
    assert api("POST", "/api/definitions?plan=no", wrong).status == 400
    assert [(each["kind"], each["outcome"]) for each in latest(api, before)] == [
        ("queue", "refused"), ("definitions", "refused"),
    ]  # fmt: skip


ONE, BOUND, TO = "/api/queues/%2F/q", "/api/bindings/%2F/e/x/q/q", {"destination": "to"}
PUBLISHED = {"properties": {}, "routing_key": "q", "payload": "1", "payload_encoding": "string"}
HELD = {**PUBLISHED, "properties": {"message_id": "m", "headers": {"x-delay": 3_600_000}}}
DELAYED: dict[str, Any] = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}}
BEGUN: list[tuple[str, str, Any]] = [  # makes what the routes below change
    ("PUT", ONE, {}),
    ("PUT", "/api/queues/%2F/to", {}),
    *[("POST", "/api/exchanges/%2F/amq.default/publish", PUBLISHED)] * 4,
    ("PUT", "/api/exchanges/%2F/d", DELAYED),
    *[("POST", "/api/exchanges/%2F/d/publish", HELD)] * 2,
    ("PUT", "/api/users/one", {"password": "1", "tags": ""}),
    ("PUT", "/api/users/two", {"password": "2", "tags": ""}),
]
ROUTES: list[tuple[str, str, str, Any]] = [
    ("PUT", "/api/cluster-name", "/api/cluster-name", {"name": "c"}),
    ("DELETE", "/api/reset", "/api/reset", None),
    ("DELETE", "/api/reset/{node}", "/api/reset/{NODE}", None),
    ("DELETE", "/api/auth/attempts/{node}", "/api/auth/attempts/{NODE}", None),
    ("POST", "/api/definitions", "/api/definitions", {"queues": []}),
    ("POST", "/api/all-configuration", "/api/all-configuration", {"queues": []}),
    ("POST", "/api/definitions/{vhost}", "/api/definitions/%2F", {"queues": []}),
    ("PUT", "/api/parameters/{component}/{vhost}/{name}", "/api/parameters/c/%2F/p", {"value": {}}),
    ("DELETE", "/api/parameters/{component}/{vhost}/{name}", "/api/parameters/c/%2F/p", None),
    ("PUT", "/api/global-parameters/{name}", "/api/global-parameters/g", {"value": 1}),
    ("DELETE", "/api/global-parameters/{name}", "/api/global-parameters/g", None),
    ("PUT", "/api/policies/{vhost}/{name}", "/api/policies/%2F/p", MAX),
    ("DELETE", "/api/policies/{vhost}/{name}", "/api/policies/%2F/p", None),
    ("PUT", "/api/operator-policies/{vhost}/{name}", "/api/operator-policies/%2F/p", MAX),
    ("DELETE", "/api/operator-policies/{vhost}/{name}", "/api/operator-policies/%2F/p", None),
    ("PUT", "/api/vhost-limits/{vhost}/{name}", "/api/vhost-limits/%2F/max-queues", {"value": 99}),
    ("DELETE", "/api/vhost-limits/{vhost}/{name}", "/api/vhost-limits/%2F/max-queues", None),
    ("PUT", "/api/user-limits/{user}/{name}", "/api/user-limits/one/max-channels", {"value": 9}),
    ("DELETE", "/api/user-limits/{user}/{name}", "/api/user-limits/one/max-channels", None),
    ("PUT", "/api/exchanges/{vhost}/{exchange}", "/api/exchanges/%2F/x", {"type": "topic"}),
    ("POST", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}", BOUND, {"routing_key": "k"}),
    ("DELETE", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}", "/api/bindings/%2F/e/x/q/q/k", None),
    ("DELETE", "/api/exchanges/{vhost}/{exchange}", "/api/exchanges/%2F/x", None),
    ("DELETE", "/api/exchanges/{vhost}/{exchange}/delayed/{number}", "/api/exchanges/%2F/d/delayed/{HELD}", None),
    ("DELETE", "/api/exchanges/{vhost}/{exchange}/delayed/ids/{id}", "/api/exchanges/%2F/d/delayed/ids/m", None),
    ("PUT", "/api/queues/{vhost}/{queue}", "/api/queues/%2F/new", {}),
    ("PATCH", "/api/queues/{vhost}/{queue}", ONE, {"arguments": {"x-max-length": 50}}),
    ("POST", "/api/queues/{vhost}/{queue}/messages/{position}/copy", ONE + "/messages/{AT}/copy", TO),
    ("POST", "/api/queues/{vhost}/{queue}/messages/{position}/move", ONE + "/messages/{AT}/move", TO),
    ("DELETE", "/api/queues/{vhost}/{queue}/messages/{position}", ONE + "/messages/{AT}", None),
    ("POST", "/api/queues/{vhost}/{queue}/move", ONE + "/move", {**TO, "limit": 1}),
    ("POST", "/api/queues/{vhost}/{queue}/redrive", ONE + "/redrive", {}),
    ("DELETE", "/api/queues/{vhost}/{queue}/contents", ONE + "/contents", None),
    ("DELETE", "/api/queues/{vhost}/{queue}", ONE, None),
    ("PUT", "/api/vhosts/{vhost}", "/api/vhosts/v", {}),
    ("PUT", "/api/permissions/{vhost}/{user}", "/api/permissions/v/one", {"configure": "", "write": "", "read": ""}),
    ("DELETE", "/api/permissions/{vhost}/{user}", "/api/permissions/v/one", None),
    ("PUT", "/api/topic-permissions/{vhost}/{user}", "/api/topic-permissions/v/one",
     {"exchange": "amq.topic", "write": "", "read": ""}),
    ("DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", "/api/topic-permissions/v/one/amq.topic", None),
    ("DELETE", "/api/connections/username/{user}", "/api/connections/username/guest", None),
    ("DELETE", "/api/vhosts/{vhost}", "/api/vhosts/v", None),
    ("PUT", "/api/users/{user}", "/api/users/three", {"password": "3", "tags": ""}),
    ("POST", "/api/users/bulk-delete", "/api/users/bulk-delete", {"users": ["one", "two"]}),
    ("DELETE", "/api/users/{user}", "/api/users/three", None),
]  # fmt: skip
ELSEWHERE = {  # with a live client, with a shovel, or the same code under another path
    ("PUT", "/api/consumers/{vhost}/{channel}/{consumer}/prefetch"),
    ("DELETE", "/api/connections/{connection}"),
    ("DELETE", "/api/shovels/vhost/{vhost}/{name}"),
    ("DELETE", "/api/shovels/vhost/{vhost}/{name}/restart"),
    ("DELETE", "/api/topic-permissions/{vhost}/{user}"),
}


def test_each_route_that_changes_something_is_tried_or_named() -> None:
    changing = {(each.method, each.path) for each in ENDPOINTS if each.method not in ("GET", "HEAD")}
    acts = {each for each in changing if not each[1].endswith(NO_CHANGES)}
    assert {(method, pattern) for method, pattern, _, _ in ROUTES} | ELSEWHERE == acts
    assert set(EVENTLESS) <= acts


def test_each_route_that_changes_something_leaves_one_record(api: Api, own: ApiThread) -> None:
    for method, path, body in BEGUN:
        assert api(method, path, body).status < 300, path
    for method, pattern, path, body in ROUTES:
        if "{AT}" in path:
            path = path.replace("{AT}", str(api.get(ONE + "/browse")["items"][0]["position"]))
        if "{HELD}" in path:
            path = path.replace("{HELD}", str(api.get("/api/exchanges/%2F/d/delayed")[0]["number"]))
        path = path.replace("{NODE}", api.get("/api/nodes")[0]["name"])
        before = newest(api)
        assert api(method, path, body).status < 300, (method, path)
        found = latest(api, before)
        by = {(each["user"], each["protocol"], each["outcome"]) for each in found}
        assert by == {("guest", "http", "done")}, (method, pattern)
        assert len(found) == len({(each["kind"], each["name"], each["act"]) for each in found}), (method, pattern)


METHODS: list[tuple[m.Method, type[m.Method], tuple[str, str, str]]] = [
    (m.QueueDeclare("q"), m.QueueDeclareOk, ("queue", "q", "created")),
    (m.ExchangeDeclare("x", "topic"), m.ExchangeDeclareOk, ("exchange", "x", "created")),
    (m.QueueBind("q", "x", "k"), m.QueueBindOk, ("binding", "x -> q", "created")),
    (m.QueueUnbind("q", "x", "k"), m.QueueUnbindOk, ("binding", "x -> q", "deleted")),
    (m.QueuePurge("q"), m.QueuePurgeOk, ("queue", "q", "purged")),
    (m.ExchangeDelete("x"), m.ExchangeDeleteOk, ("exchange", "x", "deleted")),
    (m.QueueDelete("q"), m.QueueDeleteOk, ("queue", "q", "deleted")),
]


def test_an_act_over_amqp_0_9_1_is_one_record(api: Api, own: ApiThread) -> None:
    with Wire(own.port) as wire:
        wire.log_in()
        wire.channel()
        for method, answer, (kind, name, act) in METHODS:
            before = newest(api)
            wire.call(1, method, answer)
            found = latest(api, before)
            assert [facts(each) for each in found] == [("guest", "amqp 0-9-1", "/", kind, name, act, "done")]
            assert found[0]["peer"].startswith("127.0.0.1:")


def test_a_refusal_over_amqp_0_9_1_is_one_record_and_a_passive_declaration_none(api: Api, own: ApiThread) -> None:
    api.put("/api/queues/%2F/q", {"durable": True})
    before = newest(api)
    with Wire(own.port) as wire:
        wire.log_in()
        wire.channel(1)
        wire.channel(2)
        wire.call(1, m.QueueDeclare("q"), m.ChannelClose)
        wire.call(2, m.QueueDeclare("none", passive=True), m.ChannelClose)
    (found,) = latest(api, before)
    assert facts(found) == ("guest", "amqp 0-9-1", "/", "queue", "q", "created", "refused")
    assert "inequivalent arg 'durable'" in found["reason"]


def test_what_the_broker_does_by_itself_has_no_user(api: Api, own: ApiThread) -> None:
    with Wire(own.port) as wire:
        wire.log_in()
        wire.channel()
        wire.call(1, m.QueueDeclare("mine", exclusive=True), m.QueueDeclareOk)
        before = newest(api)
        wire.call(0, m.ConnectionClose(200, "", 0, 0), m.ConnectionCloseOk)
    (found,) = latest(api, before)
    assert (found["kind"], found["name"], found["act"], found["protocol"]) == ("queue", "mine", "deleted", "")


@pytest.mark.parametrize(("method", "path", "body", "kind"), [
    ("PUT", "/api/policies/%2F/p", {"pattern": "("}, "policy"),
    ("PUT", "/api/users/u", {"password_hash": SECRET, "tags": ""}, "user"),
    ("DELETE", "/api/queues/%2F/none", None, "queue"),
    ("POST", "/api/definitions", {"users": [{"name": "u", "password_hash": SECRET}]}, "definitions"),
])  # fmt: skip
def test_a_refusal_over_http_is_one_record(api: Api, method: str, path: str, body: Any, kind: str) -> None:
    before = newest(api)
    assert api(method, path, body).status >= 400
    (found,) = latest(api, before)
    assert (found["kind"], found["outcome"]) == (kind, "refused")
    assert SECRET not in json.dumps(found)


def test_an_unauthorised_request_and_a_wrong_password_are_records(api: Api, own: ApiThread) -> None:
    other = own.add_user("other", "management")
    before = newest(api)
    assert other("PUT", "/api/vhosts/v", {}).status == 401
    assert own.api("other", SECRET)("PUT", "/api/vhosts/v", {}).status == 401
    denied, login = latest(api, before)
    assert facts(denied) == ("other", "http", "v", "vhost", "v", "set", "refused")
    assert (login["kind"], login["name"], login["protocol"]) == ("login", "other", "http")
    assert SECRET not in json.dumps(login)


def test_no_secret_is_recorded(api: Api) -> None:
    api.put("/api/users/u", {"password": SECRET, "tags": "x"})
    api.put("/api/parameters/c/%2F/p", {"value": {"uri": SECRET}})
    api.put("/api/global-parameters/g", {"value": SECRET})
    hashes = [each["password_hash"] for each in api.get("/api/users")]
    api("POST", "/api/definitions", api.get("/api/definitions"))
    text = json.dumps(api.get("/api/audit"))
    assert '"u"' in text
    assert '"imported"' in text
    assert not [each for each in (SECRET, *hashes) if each in text]


def test_the_details_have_arguments_as_json_has_them(api: Api) -> None:
    arguments = {"x-max-length": 7, "note": [1, {"a": True}]}
    for path in ("queues/%2F/q", "exchanges/%2F/x"):
        body = {"arguments": arguments} if path.startswith("queues") else {"arguments": arguments, "type": "topic"}
        assert api.put(f"/api/{path}", body) == 201
        assert api.get("/api/audit")[0]["details"]["arguments"] == arguments
    assert api("POST", "/api/bindings/%2F/e/x/q/q", {"routing_key": "k", "arguments": {"a": 1}}).status == 201
    told = api.get("/api/audit")[0]["details"]
    assert (told["routing_key"], told["arguments"]) == ("k", {"a": 1})


def test_who_sees_what(api: Api, own: ApiThread) -> None:
    api.put("/api/vhosts/v")
    api.put("/api/vhosts/w")
    for vhost in "vw":
        api.put(f"/api/queues/{vhost}/q")
    api.put("/api/permissions/v/guest", {"configure": "", "write": "", "read": ""})
    for tag in ("management", "policymaker", "monitoring"):
        user = own.add_user(tag, tag, vhosts=("v",))
        seen = user.get("/api/audit")
        assert {each["vhost"] for each in seen} == {"v"}
        assert {each["kind"] for each in seen} == {"queue", "vhost"}
    assert {each["vhost"] for each in api.get("/api/audit")} >= {"v", "w"}
    assert own.add_user("nobody")("GET", "/api/audit").status == 401


def test_filters_and_pages(api: Api) -> None:
    for name in ("one", "two", "onetwo"):
        api.put(f"/api/queues/%2F/{name}")
    api("DELETE", "/api/queues/%2F/one")

    def names(query: str) -> list[str]:
        return [each["name"] for each in api.get(f"/api/audit?kind=queue&{query}")]

    assert names("") == ["one", "onetwo", "two", "one"]
    assert names("act=deleted") == ["one"]
    assert names("name=two") == ["onetwo", "two"]
    assert names("user=other") == names("outcome=refused") == names("vhost=v") == names("until=5") == []
    assert names("since=5&user=guest&outcome=done&vhost=%2F") == names("")
    page = api.get("/api/audit?kind=queue&page=2&page_size=3")
    assert (page["total_count"], [each["name"] for each in page["items"]]) == (4, ["one"])
    assert api("GET", "/api/audit?since=today").status == 400


def test_a_refused_login_over_amqp_is_a_record_without_its_password(api: Api, own: ApiThread) -> None:
    before = newest(api)
    with Wire(own.port) as wire:
        wire.raw(PROTOCOL_HEADER)
        wire.expect(m.ConnectionStart)
        client: Table = {"capabilities": {"authentication_failure_close": True}}
        wire.send(0, m.ConnectionStartOk(client, "PLAIN", f"\0guest\0{SECRET}".encode(), "en_US"))
        wire.expect(m.ConnectionClose)
    (found,) = latest(api, before)
    assert facts(found) == ("", "amqp 0-9-1", "", "login", "guest", "login", "refused")
    assert found["peer"].startswith("127.0.0.1:")
    assert SECRET not in json.dumps(found)


def asked(api: Api, own: ApiThread, service: str, request: Any, *, refused: bool = False) -> list[Record]:
    """The records of a request to a service, whose refusal closes the channel."""
    before = newest(api)
    with Wire(own.port) as wire:
        wire.log_in()
        wire.channel()
        wire.publish("amq.system", service, json.dumps(request).encode())
        if refused:
            wire.expect(m.ChannelClose)
        else:
            wire.barrier()
    return latest(api, before)


@pytest.mark.parametrize("request_", [
    {"do": "add-vhost", "name": "/"},
    {"do": "nonsense"},
    {"do": "set-policy", "vhost": "/", "name": "p", "pattern": "(", "definition": {}},
    {"do": "set-password", "name": "none", "password_hash": SECRET, "hashing_algorithm": SECRET},
    {"do": "import-definitions", "definitions": {"users": [{"name": SECRET, "password_hash": SECRET}]}},
    [SECRET],
])  # fmt: skip
def test_what_the_service_for_administrators_refuses_is_one_record(api: Api, own: ApiThread, request_: Any) -> None:
    (found,) = asked(api, own, "amq.administer", request_, refused=True)
    assert facts(found) == ("guest", "amqp 0-9-1", "/", "service", "amq.administer", "asked", "refused")
    assert found["reason"]
    assert found["details"] == ({"do": request_["do"]} if isinstance(request_, dict) else {})
    assert SECRET not in json.dumps(found)


def test_services_that_change_something(api: Api, own: ApiThread) -> None:
    api.put("/api/queues/%2F/q", {})
    change = {"queue": "q", "arguments": {"x-max-length": 7}}
    (found,) = asked(api, own, "amq.change-queue", change)
    assert facts(found) == ("guest", "amqp 0-9-1", "/", "queue", "q", "changed", "done")
    assert found["details"] == {"arguments": {"x-max-length": 7}}
    (found,) = asked(api, own, "amq.change-queue", {"queue": "none", "arguments": {}}, refused=True)
    assert facts(found)[3:] == ("service", "amq.change-queue", "asked", "refused")
    api.put("/api/exchanges/%2F/d", DELAYED)
    api("POST", "/api/exchanges/%2F/d/publish", HELD)
    (found,) = asked(api, own, "amq.revoke", {"exchange": "d", "id": "m"})
    assert (facts(found)[3:], found["details"]) == (("exchange", "d", "delayed.deleted", "done"), {"messages": 1})
    assert asked(api, own, "amq.revoke", {"exchange": "d", "id": "m"}) == []
    (found,) = asked(api, own, "amq.revoke", {}, refused=True)
    assert facts(found)[3:] == ("service", "amq.revoke", "asked", "refused")


def test_an_act_by_the_service_for_administrators_is_its_clients(api: Api, own: ApiThread) -> None:
    before = newest(api)
    request = {"do": "add-vhost", "name": "v"}
    with Wire(own.port) as wire:
        wire.log_in()
        wire.channel()
        wire.publish("amq.system", "amq.administer", json.dumps(request).encode())
        wire.barrier()
    (found,) = latest(api, before)
    assert facts(found) == ("guest", "amqp 0-9-1", "v", "vhost", "v", "created", "done")
