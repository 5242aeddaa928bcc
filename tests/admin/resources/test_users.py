"""Users, permissions, virtual hosts and limits over HTTP."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from harebell.admin.resources import users
from harebell.broker.auth.users import make_user
from tests.admin.kit import Api, ApiThread


def test_create_change_and_delete_a_user(api: Api, own: ApiThread) -> None:
    assert api.put("/api/users/u", {"password": "one", "tags": "monitoring, management"}) == 201
    found = api.get("/api/users/u")
    assert (found["name"], found["tags"], found["limits"]) == ("u", ["monitoring", "management"], {})
    assert found["hashing_algorithm"] == "harebell_password_hashing_scrypt"
    assert own.api("u", "one").get("/api/whoami")["tags"] == ["monitoring", "management"]
    assert api.put("/api/users/u", {"password": "two", "tags": ["administrator"]}) == 204
    assert own.api("u", "one")("GET", "/api/whoami").status == 401
    assert own.api("u", "two").get("/api/whoami")["tags"] == ["administrator"]
    assert [each["name"] for each in api.get("/api/users")] == ["guest", "u"]
    assert api("DELETE", "/api/users/u").status == 204
    assert api("DELETE", "/api/users/u").status == api("GET", "/api/users/u").status == 404


def test_a_user_may_delete_itself_over_http(own: ApiThread) -> None:
    """As with RabbitMQ, where scripts add an administrator and then delete guest, all as guest."""
    assert own.api()("DELETE", "/api/users/guest").status == 204
    assert own.api()("GET", "/api/whoami").status == 401


def test_who_adds_a_virtual_host_over_http_has_all_permissions_in_it(api: Api) -> None:
    assert api.put("/api/vhosts/v") == 201
    found = api.get("/api/vhosts/v/permissions")
    assert found == [{"user": "guest", "vhost": "v", "configure": ".*", "write": ".*", "read": ".*"}]


def test_hashes_of_rabbitmq(api: Api, own: ApiThread) -> None:
    known = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # RabbitMQ's documentation: test12
    assert api.put("/api/users/u", {"password_hash": known, "tags": "management"}) == 201
    assert own.api("u", "test12").get("/api/whoami")["name"] == "u"
    assert api.get("/api/users/u")["password_hash"] == known
    body = {"password": "p", "tags": "management", "hashing_algorithm": "rabbit_password_hashing_sha512"}
    assert api.put("/api/users/v", body) == 201
    assert own.api("v", "p").get("/api/whoami")["name"] == "v"


def test_other_tags_keep_the_keys_of_scram(api: Api, own: ApiThread) -> None:
    users = own.broker.node.users
    own.run(lambda: users.put(make_user("s", "pw", (), scram=True)))
    before, shown = users.users["s"].extra, api.get("/api/users/s")
    body = {name: shown[name] for name in ("password_hash", "hashing_algorithm")}
    assert api.put("/api/users/s", {**body, "tags": "management"}) == 204
    assert (users.users["s"].extra, bool(before)) == (before, True)
    assert api.put("/api/users/s", {"password": "other", "tags": "management"}) == 204
    assert not users.users["s"].extra


def test_a_user_without_a_password_cannot_log_in(api: Api, own: ApiThread) -> None:
    for body in ({}, {"password_hash": ""}, {"password": ""}):
        assert api("PUT", "/api/users/u", {**body, "tags": "management"}).status in (201, 204)
        assert own.api("u", "")("GET", "/api/whoami").status == 401


@pytest.mark.parametrize("body, reason", [
    ({}, "tags_not_present"), ({"password": "x"}, "tags_not_present"), ({"tags": [1]}, "tags must be"),
    ({"tags": 5}, "tags must be"), ({"tags": "", "password": 5}, "password must be a string"),
    ({"tags": "", "password_hash": "!"}, "not base64"), ({"tags": "", "password_hash": "AAAA"}, "not base64"),
    ({"tags": "", "password": "x", "hashing_algorithm": "rot13"}, "rot13"), ({"tags": ["x"] * 101}, "at most 100"),
    ({"tags": "", "password": None}, "password must be a string"),
    ({"tags": "", "password_hash": None}, "password_hash must be a string"),
    *(
        ({"tags": "", "password": password, "password_hash": given}, "both_password_and_password_hash_are_provided")
        for password in ("x", "", None) for given in ("AAAA", "", None)
    ),
])  # fmt: skip
def test_wrong_users_are_refused(api: Api, body: Any, reason: str) -> None:
    answer = api("PUT", "/api/users/u", body)
    assert answer.status == 400
    assert reason in answer.reason
    assert api("GET", "/api/users/u").status == 404


def test_a_slow_hash_keeps_nobody_waiting(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made in a thread."""
    going, made = threading.Event(), make_user

    def slow(*arguments: Any) -> Any:
        assert going.wait(60)
        return made(*arguments)

    monkeypatch.setattr(users, "make_user", slow)
    answers = list[int]()
    thread = threading.Thread(target=lambda: answers.append(api.put("/api/users/u", {"password": "x", "tags": ""})))
    thread.start()
    assert api.get("/api/whoami")["name"] == "guest"
    going.set()
    thread.join(60)
    assert answers == [201]


def test_several_users_are_deleted_at_once(api: Api) -> None:
    for name in ("a", "b", "c"):
        api.put(f"/api/users/{name}", {"tags": ""})
    assert [each["name"] for each in api.get("/api/users/without-permissions")] == ["a", "b", "c"]
    assert api("POST", "/api/users/bulk-delete", {"users": ["a", "c", "nobody"]}).status == 204
    assert [each["name"] for each in api.get("/api/users")] == ["b", "guest"]
    for wrong in ({}, {"users": "b"}, {"users": [1]}):
        assert api("POST", "/api/users/bulk-delete", wrong).status == 400
    assert len(api.get("/api/users")) == 2


def test_limits_of_users(api: Api) -> None:
    api.put("/api/users/u", {"tags": ""})
    assert api.get("/api/user-limits") == api.get("/api/user-limits/u") == []
    assert api.put("/api/user-limits/u/max-connections", {"value": 5}) == 204
    assert api.put("/api/user-limits/u/max-channels", {"value": "7"}) == 204
    limits = {"max-connections": 5, "max-channels": 7}
    assert api.get("/api/user-limits") == api.get("/api/user-limits/u") == [{"user": "u", "value": limits}]
    assert api.get("/api/users/u")["limits"] == limits
    api.put("/api/users/u", {"password": "x", "tags": "management"})
    assert api.get("/api/users/u")["limits"] == limits, "another password leaves them"
    assert api("DELETE", "/api/user-limits/u/max-connections").status == 204
    assert api("DELETE", "/api/user-limits/u/max-channels").status == 204
    assert api.get("/api/user-limits") == []
    for path, body in (("u/max-beers", {"value": 1}), ("u/max-channels", {"value": "x"}), ("u/max-channels", {})):
        assert api("PUT", f"/api/user-limits/{path}", body).status == 400
    assert api("PUT", "/api/user-limits/nobody/max-channels", {"value": 1}).status == 404


# -- permissions


def test_permissions(api: Api) -> None:
    api.put("/api/users/u", {"tags": ""})
    path, patterns = "/api/permissions/%2F/u", {"configure": "^a", "write": "", "read": ".*"}
    assert api("GET", path).status == api("DELETE", path).status == 404
    assert api.put(path, patterns) == 201
    assert api.put(path, patterns) == 204
    found = {"user": "u", "vhost": "/", **patterns}
    assert api.get(path) == found
    assert api.get("/api/users/u/permissions") == [found]
    assert found in api.get("/api/permissions")
    assert found in api.get("/api/vhosts/%2F/permissions")
    assert api("DELETE", path).status == 204
    assert api.get("/api/users/u/permissions") == []


@pytest.mark.parametrize("path, body, reason", [
    ("%2F/guest", {}, "[{key_missing,configure},{key_missing,write},{key_missing,read}]"),
    ("%2F/guest", {"configure": "", "write": 5, "read": ""}, "write must be a string"),
    ("%2F/guest", {"configure": "(", "write": "", "read": ""}, "not a regular expression"),
    ("%2F/nobody", {"configure": "", "write": "", "read": ""}, "vhost_or_user_not_found"),
    ("nowhere/guest", {"configure": "", "write": "", "read": ""}, "vhost_or_user_not_found"),
])  # fmt: skip
def test_wrong_permissions_are_refused(api: Api, path: str, body: Any, reason: str) -> None:
    answer = api("PUT", f"/api/permissions/{path}", body)
    assert answer.status == 400
    assert reason in answer.reason
    assert len(api.get("/api/permissions")) == 1


def test_topic_permissions(api: Api) -> None:
    api.put("/api/users/u", {"tags": ""})
    path = "/api/topic-permissions/%2F/u"
    assert api("GET", path).status == api("DELETE", path).status == 404
    assert api.put(path, {"exchange": "amq.topic", "write": "^a", "read": "^b"}) == 201
    assert api.put(path, {"exchange": "other", "write": "", "read": ""}) == 204
    first = {"user": "u", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": "^b"}
    assert api.get(path)[0] == first
    assert api.get(f"{path}/amq.topic") == [first]
    assert api("GET", f"{path}/none").status == 404
    for each in ("/api/topic-permissions", "/api/users/u/topic-permissions", "/api/vhosts/%2F/topic-permissions"):
        assert first in api.get(each)
    assert api("DELETE", f"{path}/amq.topic").status == 204
    assert [each["exchange"] for each in api.get(path)] == ["other"]
    assert api("DELETE", path).status == 204
    assert api.get("/api/topic-permissions") == []
    assert api("PUT", path, {}).reason == "[{key_missing,exchange},{key_missing,write},{key_missing,read}]"
    assert api("PUT", "/api/topic-permissions/%2F/nobody", {}).status == 400


# -- virtual hosts


def test_create_change_and_delete_a_virtual_host(api: Api, own: ApiThread) -> None:
    body = {"description": "for orders", "tags": "production,eu", "default_queue_type": "quorum"}
    assert api.put("/api/vhosts/v", body) == 201
    found = api.get("/api/vhosts/v")
    assert (found["name"], found["description"], found["tags"]) == ("v", "for orders", ["production", "eu"])
    metadata = {"description": "for orders", "tags": ["production", "eu"], "default_queue_type": "quorum"}
    assert found["metadata"] == metadata
    assert found["default_queue_type"] == "quorum"
    assert found["cluster_state"] == {own.broker.node.name: "running"}
    assert api.get("/api/permissions/v/guest")["configure"] == ".*", "its creator has all permissions"
    assert api.put("/api/vhosts/v", {"tags": ["x"]}) == 204
    found = api.get("/api/vhosts/v")
    assert (found["description"], found["tags"]) == ("", ["x"]), "what is not named becomes empty, as with RabbitMQ"
    assert api("DELETE", "/api/vhosts/v").status == 204
    assert api("DELETE", "/api/vhosts/v").status == api("GET", "/api/vhosts/v").status == 404
    assert api("PUT", "/api/vhosts/v", {"default_queue_type": "none"}).status == 400


def test_a_virtual_host_is_traced(api: Api) -> None:
    assert api.put("/api/vhosts/v", {"tracing": True}) == 201
    assert api.get("/api/vhosts/v")["tracing"] is True
    for wrong in (None, "x", 0):
        answer = api("PUT", "/api/vhosts/v", {"tracing": wrong, "description": "new"})
        assert (answer.status, answer.json["reason"]) == (400, ["not_boolean", wrong])
    found = api.get("/api/vhosts/v")
    assert (found["tracing"], found["description"]) == (True, ""), "nothing of a wrong body is done"
    assert api.put("/api/vhosts/v", {"description": "d"}) == 204
    assert api.get("/api/vhosts/v")["tracing"] is True
    assert api.put("/api/vhosts/v", {"tracing": "false"}) == 204
    assert api.get("/api/vhosts/v")["tracing"] is False


def test_a_virtual_host_is_started(api: Api) -> None:
    node = api.get("/api/nodes")[0]["name"]
    assert api("POST", f"/api/vhosts/%2F/start/{node}", {}).status == 204
    assert api("POST", "/api/vhosts/%2F/start/other", {}).status == 404


def test_limits_of_virtual_hosts(api: Api) -> None:
    assert api.get("/api/vhost-limits") == api.get("/api/vhost-limits/%2F") == []
    assert api("GET", "/api/vhost-limits/nowhere").status == 404
    assert api.put("/api/vhost-limits/%2F/max-queues", {"value": 1}) == 204
    assert api.put("/api/vhost-limits/%2F/max-connections", {"value": -1}) == 204
    (found,) = api.get("/api/vhost-limits/%2F")
    assert found == {"vhost": "/", "value": {"max-queues": 1, "max-connections": -1}}
    assert api.put("/api/queues/%2F/a") == 201
    answer = api("PUT", "/api/queues/%2F/b", {})
    assert (answer.status, answer.reason) == (400, "cannot declare queue 'b': queue limit in vhost '/' (1) is reached")
    for name in ("max-queues", "max-connections", "max-queues"):
        assert api("DELETE", f"/api/vhost-limits/%2F/{name}").status == 204
    assert api.get("/api/vhost-limits") == api.get("/api/parameters") == []
    for name, body in (("max-beers", {"value": 1}), ("max-queues", {}), ("max-queues", {"value": "x"})):
        assert api("PUT", f"/api/vhost-limits/%2F/{name}", body).status == 400
