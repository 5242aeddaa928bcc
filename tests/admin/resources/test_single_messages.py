"""Browse, drop, copy and move: single messages over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from harebell.admin.resources import single_messages
from harebell.broker.operations import messages as operations
from harebell.routing.definitions import Permission
from tests.admin.kit import Api, ApiThread
from tests.admin.resources.test_messages import get, publish


@pytest.fixture
def queue(guest: Api, vhost: str) -> str:
    guest.put(f"/api/queues/{vhost}/q", {"durable": True})
    return f"/api/queues/{vhost}/q"


def browse(api: Api, queue: str, **query: Any) -> Any:
    answer = api("GET", f"{queue}/browse?{urlencode(query)}")
    assert answer.status == 200, answer
    return answer.json


def payloads(found: Any) -> list[str]:
    return [each["payload"] for each in found["items"]]


def test_what_is_browsed_stays_as_it_was(guest: Api, vhost: str, queue: str) -> None:
    assert browse(guest, queue) == {"items": [], "next_offset": None}
    for number in range(5):
        publish(guest, vhost, f"m{number}", properties={"priority": number, "headers": {"n": number}})
    found = browse(guest, queue)
    assert payloads(found) == ["m0", "m1", "m2", "m3", "m4"]
    assert found["next_offset"] is None
    first = found["items"][0]
    assert (first["position"], first["redelivered"], first["delivery_count"], first["routing_key"]) == (
        0,
        False,
        0,
        "q",
    )
    assert first["properties"] == {"priority": 0, "headers": {"n": 0}}
    page = browse(guest, queue, offset=1, limit=2, truncate=1, encoding="base64")
    assert (payloads(page), page["next_offset"]) == (["bQ==", "bQ=="], 3)
    assert payloads(browse(guest, queue, filter="n > 1 AND n < 4")) == ["m2", "m3"]
    assert browse(guest, queue, offset=9)["items"] == []
    assert [each["redelivered"] for each in get(guest, queue).json] == [False] * 5


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_the_next_offset_is_null_at_the_end(guest: Api, vhost: str, kind: str) -> None:
    path = f"/api/queues/{vhost}/{kind}"
    guest.put(path, {"durable": True, "arguments": {"x-queue-type": kind}})
    for number in range(3):
        publish(guest, vhost, f"m{number}", routing_key=kind)
    for offset in range(5):
        for limit in range(1, 5):
            found = browse(guest, path, offset=offset, limit=limit)
            end = offset + limit
            expected = [f"m{number}" for number in range(3)][offset:end]
            assert (payloads(found), found["next_offset"]) == (expected, end if end < 3 else None), (offset, limit)


def test_more_than_the_most_is_the_most(guest: Api, vhost: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_messages, "MOST", 2)
    for number in range(3):
        publish(guest, vhost, f"m{number}")
    found = browse(guest, queue, limit=3)
    assert (payloads(found), found["next_offset"]) == (["m0", "m1"], 2)


def test_messages_that_came_back_and_those_that_expire(guest: Api, vhost: str, queue: str) -> None:
    publish(guest, vhost, "a")
    publish(guest, vhost, "b", properties={"expiration": "600000"})
    get(guest, queue, "reject_requeue_true", count=1)
    back, expiring = browse(guest, queue)["items"]
    assert (back["payload"], back["redelivered"], back["delivery_count"]) == ("a", True, 1)
    assert "expires" not in back
    assert expiring["expires"] > 1_700_000_000_000


def test_a_browsing_with_a_filter_ends(guest: Api, vhost: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MOST_EXAMINED", 3)
    monkeypatch.setattr(operations, "STEP", 2)
    for number in range(5):
        publish(guest, vhost, properties={"headers": {"n": number}})
    found = browse(guest, queue, filter="n = 4")
    assert found == {"items": [], "next_offset": 3}
    assert len(browse(guest, queue, filter="n = 4", offset=found["next_offset"])["items"]) == 1


def test_priorities_are_shown_in_the_order_of_delivery(guest: Api, vhost: str) -> None:
    path = f"/api/queues/{vhost}/q"
    guest.put(path, {"arguments": {"x-max-priority": 5}})
    for priority in (1, 5, 3):
        publish(guest, vhost, str(priority), properties={"priority": priority})
    assert payloads(browse(guest, path)) == ["5", "3", "1"]


def test_a_stream_is_browsed_and_copied_from(guest: Api, vhost: str, queue: str) -> None:
    stream = f"/api/queues/{vhost}/s"
    guest.put(stream, {"durable": True, "arguments": {"x-queue-type": "stream"}})
    for number in range(3):
        publish(guest, vhost, f"s{number}", routing_key="s")
    found = browse(guest, stream, offset=1)
    assert [(each["payload"], each["position"]) for each in found["items"]] == [("s1", 1), ("s2", 2)]
    assert browse(guest, stream, offset=5)["items"] == []
    assert guest("POST", f"{stream}/messages/2/copy", {"destination": "q"}).status == 204
    assert guest("POST", f"{stream}/messages/9/copy", {"destination": "q"}).status == 404
    assert payloads(browse(guest, queue)) == ["s2"]
    answer = guest("DELETE", f"{stream}/messages/1")
    assert answer.status == 400
    assert "not supported by stream" in answer.reason
    assert guest("POST", f"{queue}/messages/0/move", {"destination": "s"}).status == 204
    assert payloads(browse(guest, stream)) == ["s0", "s1", "s2", "s2"]


def test_one_is_dropped_copied_and_moved(guest: Api, vhost: str, queue: str) -> None:
    other = f"/api/queues/{vhost}/other"
    guest.put(other)
    for number in range(4):
        publish(guest, vhost, f"m{number}", properties={"headers": {"n": number}})
    assert guest("DELETE", f"{queue}/messages/1").status == 204
    assert guest("DELETE", f"{queue}/messages/1").status == 404
    assert guest("POST", f"{queue}/messages/2/move", {"destination": "other"}).status == 204
    assert guest("POST", f"{queue}/messages/0/copy", {"destination": "other"}).status == 204
    assert payloads(browse(guest, queue)) == ["m0", "m3"]
    moved, copied = get(guest, other).json
    assert (moved["payload"], moved["routing_key"], moved["properties"]) == ("m2", "q", {"headers": {"n": 2}})
    assert (copied["payload"], copied["redelivered"]) == ("m0", False)
    for action in ("move", "copy"):
        assert guest("POST", f"{queue}/messages/1/{action}", {"destination": "other"}).status == 404
    assert payloads(browse(guest, queue)) == ["m0", "m3"]


def test_a_message_of_a_group_leaves_the_others_free(guest: Api, vhost: str, queue: str) -> None:
    groups = f"/api/queues/{vhost}/groups"
    guest.put(groups, {"durable": True, "arguments": {"x-message-group": "g"}})
    for number in range(4):
        publish(guest, vhost, f"m{number}", routing_key="groups", properties={"headers": {"g": "one"}})
    assert guest("DELETE", f"{groups}/messages/1").status == 204
    assert guest("POST", f"{groups}/messages/0/move", {"destination": "q"}).status == 204
    assert payloads(browse(guest, queue)) == ["m0"]
    assert [each["payload"] for each in get(guest, groups).json] == ["m2", "m3"]


def test_a_queue_that_refuses_changes_nothing(guest: Api, vhost: str, queue: str) -> None:
    guest.put(f"/api/queues/{vhost}/full", {"arguments": {"x-max-length": 0, "x-overflow": "reject-publish"}})
    publish(guest, vhost, "a")
    publish(guest, vhost, "b")
    for action in ("move", "copy"):
        answer = guest("POST", f"{queue}/messages/0/{action}", {"destination": "full"})
        assert (answer.status, "it is full" in answer.reason) == (400, True)
    assert payloads(browse(guest, queue)) == ["a", "b"]
    assert [each["redelivered"] for each in get(guest, queue).json] == [False, False]


@pytest.mark.parametrize("query, reason", [
    ("offset=-1", "offset must be a whole number"), ("limit=0", "limit must be a whole number from 1"),
    ("limit=x", "limit"), ("truncate=x", "truncate"), ("encoding=rot13", "Unsupported encoding"),
    ("filter=n+%3D", "filter: "), ("offset=99999999999999999999", "offset"),
])  # fmt: skip
def test_wrong_questions(guest: Api, queue: str, query: str, reason: str) -> None:
    answer = guest("GET", f"{queue}/browse?{query}")
    assert answer.status == 400
    assert reason in answer.reason


def test_wrong_places(guest: Api, vhost: str, queue: str) -> None:
    publish(guest, vhost)
    assert guest("GET", f"/api/queues/{vhost}/none/browse").status == 404
    assert guest("DELETE", f"{queue}/messages/x").status == 404
    assert guest("POST", f"{queue}/messages/0/move", {"destination": "none"}).status == 404
    assert guest("POST", f"{queue}/messages/0/move", {}).reason == "[{key_missing,destination}]"
    assert guest("POST", f"{queue}/messages/0/move", {"destination": 5}).status == 400
    assert len(get(guest, queue).json) == 1


def test_the_permissions_of_amqp_count(guest: Api, vhost: str, queue: str, serving: ApiThread) -> None:
    publish(guest, vhost)
    guest.put(f"/api/queues/{vhost}/other")
    user = serving.add_user("browser", "management", vhosts=(vhost,))
    serving.run(lambda: serving.broker.node.users.set_permission(Permission(vhost, user.user, "", "", ".*")))
    assert len(browse(user, queue)["items"]) == 1
    assert user("POST", f"{queue}/messages/0/copy", {"destination": "other"}).status == 401
    serving.run(lambda: serving.broker.node.users.set_permission(Permission(vhost, user.user, ".*", ".*", "")))
    assert user("GET", f"{queue}/browse").status == 401
    assert user("DELETE", f"{queue}/messages/0").status == 401


def test_what_was_moved_and_dropped_is_so_after_a_restart(tmp_path: Path) -> None:
    with ApiThread(tmp_path / "data") as own:
        for name in ("q", "r"):
            own.api().put(f"/api/queues/%2F/{name}", {"durable": True})
        for number in range(3):
            publish(own.api(), "%2F", f"m{number}", properties={"delivery_mode": 2})
        assert own.api()("POST", "/api/queues/%2F/q/messages/1/move", {"destination": "r"}).status == 204
        assert own.api()("DELETE", "/api/queues/%2F/q/messages/0").status == 204
    with ApiThread(tmp_path / "data") as own:
        assert payloads(browse(own.api(), "/api/queues/%2F/q")) == ["m2"]
        assert payloads(browse(own.api(), "/api/queues/%2F/r")) == ["m1"]
