"""Messages over HTTP: publish and get, with all their options."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from harebell.admin.resources import messages
from harebell.protocol.v091 import Properties, methods as m
from tests.admin.kit import Api, ApiThread
from tests.wire import Wire


@pytest.fixture
def queue(guest: Api, vhost: str) -> str:
    guest.put(f"/api/queues/{vhost}/q", {"durable": True})
    return f"/api/queues/{vhost}/q"


def publish(api: Api, vhost: str, payload: str = "hello", exchange: str = "amq.default", **more: Any) -> Any:
    body = {"properties": {}, "routing_key": "q", "payload": payload, "payload_encoding": "string", **more}
    return api("POST", f"/api/exchanges/{vhost}/{exchange}/publish", body)


def get(api: Api, queue: str, ackmode: str = "ack_requeue_false", **more: Any) -> Any:
    body = {"count": 10, "ackmode": ackmode, "encoding": "auto", **more}
    return api("POST", f"{queue}/get", body)


def test_an_alarm_stops_no_publication_over_http(own: ApiThread) -> None:
    """As on RabbitMQ. Clients of AMQP wait (tests/broker/test_alarms.py)."""
    api, node = own.api(), own.broker.node
    api.put("/api/queues/%2F/dead", {"durable": True})
    arguments = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    api.put("/api/queues/%2F/q", {"durable": True, "arguments": arguments})
    for resource in ("memory", "disk"):
        own.run(lambda resource=resource: node.raise_alarm(resource))  # type: ignore[misc]
    assert [publish(api, "%2F", payload).json for payload in ("one", "two")] == [{"routed": True}] * 2
    assert api("POST", "/api/queues/%2F/q/move", {"destination": "dead"}).status == 200
    assert [each["payload"] for each in get(api, "/api/queues/%2F/dead").json] == ["one", "two"]


def test_publish_and_get(guest: Api, vhost: str, queue: str) -> None:
    properties = {
        "content_type": "text/plain", "delivery_mode": 2, "priority": 3, "headers": {"a": [1, {"b": None}], "c": 1.5},
        "correlation_id": "c", "reply_to": "r", "expiration": "60000", "message_id": "m", "timestamp": 1_700_000_000,
        "type": "t", "user_id": "guest", "app_id": "app", "content_encoding": "utf-8",
    }  # fmt: skip
    assert publish(guest, vhost, properties=properties).json == {"routed": True}
    (found,) = get(guest, queue).json
    assert found == {
        "payload_bytes": 5, "redelivered": False, "exchange": "", "routing_key": "q", "message_count": 0,
        "properties": properties, "payload": "hello", "payload_encoding": "string",
    }  # fmt: skip
    assert get(guest, queue).json == []


def test_what_reaches_no_queue_is_not_routed(guest: Api, vhost: str, queue: str) -> None:
    assert publish(guest, vhost, routing_key="nowhere").json == {"routed": False}
    assert publish(guest, vhost, exchange="amq.fanout").json == {"routed": False}
    counts = guest.get(f"/api/exchanges/{vhost}/amq.fanout")["message_stats"]
    assert (counts["publish_in"], counts["publish_out"]) == (1, 0)


@pytest.mark.parametrize("ackmode, left, redelivered", [
    ("ack_requeue_true", 2, True), ("reject_requeue_true", 2, True), ("ack_requeue_false", 0, None),
    ("reject_requeue_false", 0, None),
])  # fmt: skip
def test_what_becomes_of_what_was_got(
    guest: Api, vhost: str, queue: str, ackmode: str, left: int, redelivered: bool | None
) -> None:
    for payload in ("one", "two"):
        publish(guest, vhost, payload)
    found = get(guest, queue, ackmode).json
    assert [(each["payload"], each["redelivered"], each["message_count"]) for each in found] == [
        ("one", False, 1), ("two", False, 0),
    ]  # fmt: skip
    assert guest.get(queue)["messages_ready"] == left
    assert [each["redelivered"] for each in get(guest, queue).json] == [redelivered] * left


def test_rejected_messages_are_dead_lettered(guest: Api, vhost: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    guest.put(f"/api/queues/{vhost}/q", {"arguments": arguments})
    guest.put(f"/api/queues/{vhost}/dead")
    publish(guest, vhost)
    assert len(get(guest, f"/api/queues/{vhost}/q", "reject_requeue_false").json) == 1
    (letter,) = get(guest, f"/api/queues/{vhost}/dead").json
    assert letter["properties"]["headers"]["x-death"][0]["reason"] == "rejected"


def test_bodies_that_are_no_text_come_in_base64(guest: Api, vhost: str, queue: str) -> None:
    raw = b"\xff\x00binary"
    publish(guest, vhost, base64.b64encode(raw).decode(), payload_encoding="base64")
    publish(guest, vhost, "text")
    found = get(guest, queue, "ack_requeue_true").json
    assert [each["payload_encoding"] for each in found] == ["base64", "string"]
    assert base64.b64decode(found[0]["payload"]) == raw
    assert [each["payload_encoding"] for each in get(guest, queue, "ack_requeue_true", encoding="base64").json] == [
        "base64", "base64",
    ]  # fmt: skip
    cut = get(guest, queue, truncate=2).json
    shown = base64.b64encode(raw[:2]).decode()
    assert [(each["payload"], each["payload_bytes"]) for each in cut] == [(shown, 8), ("te", 4)]


def test_unknown_properties_have_no_meaning(guest: Api, vhost: str, queue: str) -> None:
    given = {"colour": "red", "cluster_id": "c", "content_type": "a/b", "expiration": "+60000"}
    assert publish(guest, vhost, properties=given).json == {"routed": True}
    assert get(guest, queue).json[0]["properties"] == {"content_type": "a/b", "expiration": "+60000"}


def test_none_are_got(guest: Api, vhost: str, queue: str) -> None:
    publish(guest, vhost)
    for ackmode in ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"):
        assert get(guest, queue, ackmode, count=0).json == []
    assert guest.get(queue)["messages_ready"] == 1
    assert get(guest, f"/api/queues/{vhost}/none", count=0).status == 404


def test_properties_without_any_are_a_list(guest: Api, vhost: str, queue: str) -> None:
    """As RabbitMQ has it, and takes it."""
    publish(guest, vhost, properties=[])
    assert get(guest, queue).json[0]["properties"] == []


@pytest.mark.parametrize("change, reason", [
    ({"payload_encoding": "rot13"}, "unsupported_encoding"),
    ({"payload_encoding": "base64", "payload": "!!"}, "not_base64"),
    ({"payload_encoding": None}, "[{key_missing,payload_encoding}]"), ({"payload": None}, "[{key_missing,payload}]"),
    ({"routing_key": None}, "[{key_missing,routing_key}]"), ({"properties": None}, "[{key_missing,properties}]"),
    ({"properties": {"delivery_mode": "x"}}, "not_int: delivery_mode"), ({"properties": {"priority": 256}}, "not_int"),
    ({"properties": {"priority": True}}, "not_int"), ({"properties": {"timestamp": -1}}, "not_int: timestamp"),
    ({"properties": {"message_id": 5}}, "not_a_string: message_id"), ({"properties": {"headers": [1]}}, "not_a_table"),
    ({"properties": [1]}, "must be an object"),
    ({"properties": {"expiration": "soon"}}, "invalid expiration 'soon': no_integer"),
    ({"properties": {"expiration": ""}}, "invalid expiration '': no_integer"),
    ({"properties": {"expiration": "-1"}}, "invalid expiration '-1': {value_negative,-1}"),
    ({"properties": {"expiration": '5"\\s'}}, "invalid expiration '5\"\\s': {leftover_string,\"\\\"\\\\s\"}"),
    ({"properties": {"expiration": "315360000001"}}, "{value_too_large,315360000001}"),
    ({"properties": {"expiration": "0" * 5_000}}, "expiration is 5000 characters long"),
    ({"properties": {"user_id": "other"}}, "user_id property set to 'other' but authenticated user was 'guest'"),
    ({"properties": {"message_id": "x" * 300}}, ""), ({"routing_key": "x" * 300}, ""),
])  # fmt: skip
def test_wrong_publications_are_refused(guest: Api, vhost: str, queue: str, change: Any, reason: str) -> None:
    body = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string", **change}
    body = {name: value for name, value in body.items() if value is not None}
    answer = guest("POST", f"/api/exchanges/{vhost}/amq.default/publish", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert reason in answer.reason
    assert guest.get(queue)["messages"] == 0


def test_publications_that_have_no_place(guest: Api, vhost: str) -> None:
    assert publish(guest, vhost, exchange="none").status == 404
    guest.put(f"/api/exchanges/{vhost}/internal", {"internal": True})
    assert publish(guest, vhost, exchange="internal").status == 401
    assert publish(guest, "nowhere").status == 404


def test_a_message_that_is_too_large(vhost: str) -> None:
    with ApiThread(max_message_size=100) as own:
        own.api().put("/api/queues/%2F/q")
        answer = publish(own.api(), "%2F", "x" * 101)
        assert (answer.status, answer.reason) == (400, "message size 101 is larger than configured max size 100")
        assert publish(own.api(), "%2F", "x" * 100).json == {"routed": True}


@pytest.mark.parametrize("change, reason", [
    ({"ackmode": "eat"}, "ackmode is one of"), ({"encoding": "rot13"}, "Unsupported encoding"),
    ({"count": -1}, "count"),
    ({"count": "x"}, "count"), ({"count": True}, "count"), ({"count": None}, "[{key_missing,count}]"),
    ({"ackmode": None}, "[{key_missing,ackmode}]"), ({"encoding": None}, "[{key_missing,encoding}]"),
    ({"truncate": -1}, "truncate"),
])  # fmt: skip
def test_wrong_gets_are_refused(guest: Api, vhost: str, queue: str, change: Any, reason: str) -> None:
    publish(guest, vhost)
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", **change}
    answer = guest("POST", f"{queue}/get", {name: value for name, value in body.items() if value is not None})
    assert answer.status == 400
    assert reason in answer.reason
    assert guest.get(queue)["messages"] == 1


def test_gets_that_have_no_place(guest: Api, vhost: str) -> None:
    assert get(guest, f"/api/queues/{vhost}/none").status == 404
    guest.put(f"/api/queues/{vhost}/s", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    answer = get(guest, f"/api/queues/{vhost}/s")
    assert answer.status == 400
    assert "not supported by stream" in answer.reason


def test_a_count_may_be_a_text_and_one_answer_has_a_limit(
    guest: Api, vhost: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        publish(guest, vhost)
    assert len(get(guest, queue, "ack_requeue_true", count="2").json) == 2
    monkeypatch.setattr(messages, "MOST_GOT", 3)
    assert len(get(guest, queue, "ack_requeue_true").json) == 3
    monkeypatch.setattr(messages, "MOST_BYTES", 6)
    assert len(get(guest, queue).json) == 2


def test_an_expired_message_is_not_got(guest: Api, vhost: str, queue: str) -> None:
    publish(guest, vhost, properties={"expiration": "0"})
    assert get(guest, queue).json == []


def test_copies_and_hidden_copies(guest: Api, vhost: str, queue: str) -> None:
    for name in ("cc", "bcc"):
        guest.put(f"/api/queues/{vhost}/{name}")
    publish(guest, vhost, properties={"headers": {"CC": ["cc"], "BCC": ["bcc"]}})
    for name in ("q", "cc", "bcc"):
        (found,) = get(guest, f"/api/queues/{vhost}/{name}").json
        assert found["properties"]["headers"] == {"CC": ["cc"]}


def test_a_consumer_gets_what_was_published_and_can_reply(guest: Api, vhost: str, serving: ApiThread) -> None:
    with Wire(serving.port).log_in(vhost=vhost) as wire:
        wire.channel()
        wire.call(1, m.BasicConsume("amq.rabbitmq.reply-to", no_ack=True), m.BasicConsumeOk)
        guest.put(f"/api/queues/{vhost}/asked")
        wire.publish("", "asked", b"?", Properties(reply_to="amq.rabbitmq.reply-to"))
        wire.call(1, m.QueueDeclare("asked", passive=True), m.QueueDeclareOk)
        (asked,) = get(guest, f"/api/queues/{vhost}/asked").json
        assert publish(guest, vhost, "answer", routing_key=asked["properties"]["reply_to"]).json == {"routed": True}
        assert wire.expect(m.BasicDeliver).body == b"answer"


def test_the_firehose_sees_publications_by_http(guest: Api, vhost: str, queue: str) -> None:
    assert guest.put(f"/api/vhosts/{vhost}", {"tracing": True}) == 204
    guest.put(f"/api/queues/{vhost}/trace")
    guest("POST", f"/api/bindings/{vhost}/e/amq.rabbitmq.trace/q/trace", {"routing_key": "publish.#"})
    publish(guest, vhost)
    (found,) = get(guest, f"/api/queues/{vhost}/trace").json
    assert found["payload"] == "hello"
    headers = found["properties"]["headers"]
    assert (headers["connection"], headers["user"], headers["routed_queues"]) == ("HTTP API", "guest", ["q"])


def test_an_answer_comes_when_the_message_is_on_the_disk(tmp_path: Path) -> None:
    stored = tmp_path / "data"
    with ApiThread(stored) as own:
        own.api().put("/api/queues/%2F/q", {"durable": True})
        own.api().put("/api/queues/%2F/r", {"durable": True})
        before = own.broker.node.batch.commit.syncs
        assert publish(own.api(), "%2F", properties={"delivery_mode": 2}).json == {"routed": True}
        assert own.broker.node.batch.commit.syncs > before
        assert len(get(own.api(), "/api/queues/%2F/q", "ack_requeue_true").json) == 1
    with ApiThread(stored) as own:
        (found,) = get(own.api(), "/api/queues/%2F/q").json
        assert (found["payload"], found["redelivered"]) == ("hello", True)
    with ApiThread(stored) as own:
        assert get(own.api(), "/api/queues/%2F/q").json == []


def test_a_queue_that_refuses_is_not_routed(guest: Api, vhost: str) -> None:
    guest.put(f"/api/queues/{vhost}/q", {"arguments": {"x-max-length": 1, "x-overflow": "reject-publish"}})
    assert publish(guest, vhost).json == {"routed": True}
    assert publish(guest, vhost).json == {"routed": False}
