"""Queues over HTTP."""

from __future__ import annotations

import pytest

from harebell.protocol.v091 import methods as m
from tests.admin.kit import Api, ApiThread
from tests.wire import Wire


def test_declare_show_and_delete(guest: Api, vhost: str) -> None:
    path = f"/api/queues/{vhost}/q"
    body = {"durable": True, "auto_delete": False, "arguments": {"x-message-ttl": 600_000}}
    assert guest.put(path, body) == 201
    assert guest.put(path, body) == 204
    found = guest.get(path)
    assert found["arguments"] == {"x-message-ttl": 600_000}
    assert (found["durable"], found["auto_delete"], found["exclusive"], found["type"]) == (
        True,
        False,
        False,
        "classic",
    )
    assert (found["name"], found["vhost"], found["state"], found["consumers"]) == ("q", vhost, "running", 0)
    assert found["consumer_details"] == found["incoming"] == found["deliveries"] == []
    assert guest("DELETE", path).status == 204
    assert guest("GET", path).status == guest("DELETE", path).status == 404


@pytest.mark.parametrize("body, reason", [
    ({"durable": False}, "'durable' for queue 'q' in vhost '{}': received 'false' but current is 'true'"),
    ({}, "'durable' for queue 'q' in vhost '{}': received 'false' but current is 'true'"),
    ({"durable": True, "auto_delete": True},
     "'auto_delete' for queue 'q' in vhost '{}': received 'true' but current is 'false'"),
])  # fmt: skip
def test_another_declaration_must_be_the_same(guest: Api, vhost: str, body: object, reason: str) -> None:
    assert guest.put(f"/api/queues/{vhost}/q", {"durable": True}) == 201
    answer = guest("PUT", f"/api/queues/{vhost}/q", body)
    assert (answer.status, answer.json) == (
        400,
        {"error": "bad_request", "reason": f"inequivalent arg {reason}".format(vhost)},
    )


def test_empty_arguments_may_be_a_list(guest: Api, vhost: str) -> None:
    assert guest.put(f"/api/queues/{vhost}/q", {"arguments": []}) == 201
    assert guest("PUT", f"/api/queues/{vhost}/r", {"arguments": [1]}).status == 400


def test_reserved_names_and_missing_places(guest: Api, vhost: str) -> None:
    answer = guest("PUT", f"/api/queues/{vhost}/amq.q", {})
    assert (answer.status, answer.json["error"]) == (401, "not_authorised")
    assert guest("PUT", "/api/queues/nowhere/q", {}).status == 404
    assert guest("GET", "/api/queues/nowhere").status == 404


def test_a_queue_is_deleted_if_it_is_empty_and_unused(guest: Api, vhost: str, serving: ApiThread) -> None:
    path = f"/api/queues/{vhost}/q"
    guest.put(path, {"durable": True})
    with Wire(serving.port).log_in(vhost=vhost) as wire:
        wire.channel()
        wire.publish("", "q", b"x")
        wire.call(1, m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
        answer = guest("DELETE", f"{path}?if-empty=true")
        assert (answer.status, answer.reason) == (400, f"queue 'q' in vhost '{vhost}' not empty")
        wire.call(1, m.BasicConsume("q", "tag"), m.BasicConsumeOk)
        answer = guest("DELETE", f"{path}?if-unused=true")
        assert (answer.status, answer.reason) == (400, f"queue 'q' in vhost '{vhost}' in use")
        assert guest("DELETE", f"{path}?if-unused=false").status == 204
    guest.put(path, {})
    assert guest("DELETE", f"{path}?if-empty=true&if-unused=true").status == 204


def test_a_queue_whose_dead_letters_wait_for_a_place_is_not_empty(guest: Api, vhost: str, serving: ApiThread) -> None:
    path = f"/api/queues/{vhost}/q"
    arguments = {
        "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "nowhere",
        "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    }  # fmt: skip
    guest.put(path, {"durable": True, "arguments": arguments})
    with Wire(serving.port).log_in(vhost=vhost) as wire:
        wire.channel()
        wire.publish("", "q", b"x")
        wire.call(1, m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
    assert (guest.get(path)["messages_ready"], guest.get(path)["messages_dlx"]) == (0, 1)
    assert guest("DELETE", f"{path}?if-empty=true").status == 400


def test_purge(guest: Api, vhost: str, serving: ApiThread) -> None:
    path = f"/api/queues/{vhost}/q"
    guest.put(path)
    with Wire(serving.port).log_in(vhost=vhost) as wire:
        wire.channel()
        for _ in range(5):
            wire.publish("", "q", b"four")
        wire.call(1, m.QueueDeclare("q", passive=True), m.QueueDeclareOk)
        found = guest.get(path)
        assert (found["messages"], found["message_bytes"]) == (5, 20)
        assert guest("DELETE", f"{path}/contents").status == 204
        assert guest.get(path)["messages"] == 0
    guest.put(f"/api/queues/{vhost}/s", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    assert guest("DELETE", f"/api/queues/{vhost}/s/contents").status == 400
    assert guest("DELETE", f"/api/queues/{vhost}/none/contents").status == 404


def test_what_consumers_and_unacknowledged_messages_show(guest: Api, vhost: str, serving: ApiThread) -> None:
    path = f"/api/queues/{vhost}/q"
    guest.put(path, {"arguments": {"x-single-active-consumer": True}})
    with Wire(serving.port).log_in(vhost=vhost) as wire:
        wire.channel()
        for _ in range(5):
            wire.publish("", "q", b"x")
        wire.call(1, m.BasicQos(0, 2), m.BasicQosOk)
        for tag in ("one", "two"):
            wire.call(1, m.BasicConsume("q", tag), m.BasicConsumeOk)
        wire.take(m.BasicDeliver, 2)
        found = guest.get(path)
        assert (found["messages"], found["messages_ready"], found["messages_unacknowledged"]) == (5, 3, 2)
        assert (found["message_bytes_unacknowledged"], found["message_bytes_ready"]) == (2, 3)
        assert found["single_active_consumer_tag"] == "one"
        assert found["message_stats"]["deliver"] == found["message_stats"]["deliver_get"] == 2
        consumers = {each["consumer_tag"]: each for each in found["consumer_details"]}
        assert [consumers[tag]["active"] for tag in ("one", "two")] == [True, False]
        assert consumers["two"]["activity_status"] == "waiting"
        assert consumers["one"]["queue"] == {"name": "q", "vhost": vhost}
        assert consumers["one"]["channel_details"]["user"] == "guest"
        assert {each["consumer_tag"] for each in guest.get(f"/api/consumers/{vhost}")} == {"one", "two"}
        wire.send(1, m.BasicAck(0, multiple=True))
        wire.take(m.BasicDeliver, 2)
        assert guest.get(path)["message_stats"]["ack"] == 2


def test_an_exclusive_queue_names_its_owner_and_is_another_ones(guest: Api, vhost: str, serving: ApiThread) -> None:
    with Wire(serving.port).log_in(vhost=vhost) as wire:
        wire.channel()
        wire.call(1, m.QueueDeclare("mine", exclusive=True), m.QueueDeclareOk)
        found = guest.get(f"/api/queues/{vhost}/mine")
        assert found["exclusive"] is True
        assert found["owner_pid_details"]["name"].startswith("127.0.0.1:")
        for method, path in (("DELETE", ""), ("DELETE", "/contents")):
            answer = guest(method, f"/api/queues/{vhost}/mine{path}")
            assert answer.status == 400
            assert "cannot obtain exclusive access to locked queue 'mine'" in answer.reason


def test_arguments_are_changed_in_place(guest: Api, vhost: str) -> None:
    path = f"/api/queues/{vhost}/q"
    guest.put(path, {"arguments": {"x-max-length": 5}})
    answer = guest("PATCH", path, {"arguments": {"x-max-length": None, "x-message-ttl": 1000}})
    assert (answer.status, answer.json["arguments"]) == (200, {"x-message-ttl": 1000})
    assert guest.get(path)["arguments"] == {"x-message-ttl": 1000}
    for wrong in ({"x-queue-type": "stream"}, {"x-nothing": 1}, {"x-message-ttl": -1}):
        assert guest("PATCH", path, {"arguments": wrong}).status == 400
    assert guest("PATCH", f"/api/queues/{vhost}/none", {"arguments": {}}).status == 404
    assert guest.get(path)["arguments"] == {"x-message-ttl": 1000}


def test_policies_in_force_are_shown(guest: Api, vhost: str) -> None:
    guest.put(f"/api/queues/{vhost}/q", {"arguments": {"x-message-ttl": 9000}})
    guest.put(f"/api/policies/{vhost}/short", {"pattern": "^q", "definition": {"max-length": 3}, "apply-to": "queues"})
    guest.put(f"/api/operator-policies/{vhost}/op", {"pattern": "^q", "definition": {"expires": 60_000}})
    found = guest.get(f"/api/queues/{vhost}/q")
    assert (found["policy"], found["operator_policy"]) == ("short", "op")
    assert found["effective_policy_definition"] == {"expires": 60_000, "max-length": 3}


def test_lists_without_statistics(guest: Api, vhost: str) -> None:
    guest.put(f"/api/queues/{vhost}/q")
    (found,) = guest.get(f"/api/queues/{vhost}?disable_stats=true")
    assert "messages" not in found
    assert found["name"] == "q"
    (found,) = guest.get(f"/api/queues/{vhost}?disable_stats=true&enable_queue_totals=true")
    assert found["messages"] == 0
    (found,) = guest.get(f"/api/queues/{vhost}?columns=name,messages,message_stats.publish_details.rate")
    assert found == {"name": "q", "messages": 0}


def test_a_user_sees_its_own_virtual_hosts(guest: Api, vhost: str, serving: ApiThread) -> None:
    guest.put(f"/api/queues/{vhost}/q")
    stranger, insider = (
        serving.add_user("stranger", "management"),
        serving.add_user("insider", "management", vhosts=(vhost,)),
    )
    assert stranger.get("/api/queues") == []
    assert [each["name"] for each in insider.get("/api/queues")] == ["q"]
    assert stranger("GET", f"/api/queues/{vhost}/q").status == 401
    watcher = serving.add_user("watcher", "monitoring")
    assert "q" in [each["name"] for each in watcher.get("/api/queues")]


def test_permissions_of_amqp_decide_here_too(guest: Api, vhost: str, serving: ApiThread) -> None:
    """An administrator without permissions in a virtual host sees it, and changes nothing in it."""
    guest.put(f"/api/queues/{vhost}/q")
    boss = serving.add_user("boss", "administrator")
    assert boss.get(f"/api/queues/{vhost}/q")["name"] == "q"
    get = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    for method, path, body in (
        ("PUT", "/r", {}),
        ("PATCH", "/q", {"arguments": {"x-max-length": 1}}),
        ("DELETE", "/q", None),
        ("DELETE", "/q/contents", None),
        ("POST", "/q/get", get),
    ):
        answer = boss(method, f"/api/queues/{vhost}{path}", body)
        assert answer.status == 401, (method, path, answer)
        assert "refused for user 'boss'" in answer.reason
    assert guest.get(f"/api/queues/{vhost}/q")["arguments"] == {}


def test_the_actions_of_mirrors_do_nothing(guest: Api, vhost: str) -> None:
    guest.put(f"/api/queues/{vhost}/q")
    assert guest("POST", f"/api/queues/{vhost}/q/actions", {"action": "sync"}).status == 204
    assert guest("POST", f"/api/queues/{vhost}/q/actions", {"action": "dance"}).status == 400
    assert guest("POST", f"/api/queues/{vhost}/none/actions", {"action": "sync"}).status == 404
