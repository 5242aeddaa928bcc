"""Dead letters sent back over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from harebell.routing.definitions import Permission
from tests.admin.kit import Api, ApiThread
from tests.admin.resources.test_messages import get, publish
from tests.admin.resources.test_single_messages import browse, payloads


@pytest.fixture
def dead(guest: Api, vhost: str) -> str:
    """A queue with the dead letters of the queues "work" (two that were rejected) and "short" (one that expired)."""
    dead = f"/api/queues/{vhost}/dead"
    guest.put(dead, {"durable": True})
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    guest.put(f"/api/queues/{vhost}/work", {"arguments": letters})
    guest.put(f"/api/queues/{vhost}/short", {"arguments": letters})
    for payload in ("a", "b"):
        publish(guest, vhost, payload, routing_key="work")
        get(guest, f"/api/queues/{vhost}/work", "reject_requeue_false")
    publish(guest, vhost, "c", routing_key="short", properties={"expiration": "0"})
    publish(guest, vhost, "other", routing_key="dead")
    assert payloads(browse(guest, dead)) == ["a", "b", "c", "other"]
    return dead


def redrive(api: Api, dead: str, **body: Any) -> Any:
    answer = api("POST", f"{dead}/redrive", body)
    assert answer.status == 200, answer
    return answer.json


def test_a_dry_run_changes_nothing_and_says_what_the_other_does(guest: Api, vhost: str, dead: str) -> None:
    said = {"count": 3, "queues": {"work": 2, "short": 1}, "left": {"no dead letter": 1}}
    assert redrive(guest, dead, dry_run=True) == {"dry_run": True, **said}
    assert payloads(browse(guest, dead)) == ["a", "b", "c", "other"]
    assert redrive(guest, dead) == {"dry_run": False, **said}
    assert payloads(browse(guest, dead)) == ["other"]
    first, second = browse(guest, f"/api/queues/{vhost}/work")["items"]
    assert (first["payload"], second["payload"], first["redelivered"]) == ("a", "b", False)
    assert first["properties"]["headers"]["x-death"][0]["reason"] == "rejected", "its story stays"
    assert payloads(browse(guest, f"/api/queues/{vhost}/short")) == ["c"]
    assert redrive(guest, dead)["count"] == 0


@pytest.mark.parametrize("body, count, left", [
    ({"limit": 1}, 1, {}), ({"limit": "2"}, 2, {}), ({"reason": "expired"}, 1, {"not chosen": 2, "no dead letter": 1}),
    ({"from": "work"}, 2, {"not chosen": 1, "no dead letter": 1}),
    ({"from": "work", "reason": "expired"}, 0, {"not chosen": 3, "no dead letter": 1}),
])  # fmt: skip
def test_some_of_them(guest: Api, dead: str, body: Any, count: int, left: Any) -> None:
    found = redrive(guest, dead, dry_run=True, **body)
    assert (found["count"], found["left"]) == (count, left)
    assert redrive(guest, dead, **body) == {**found, "dry_run": False}


def test_letters_that_cannot_go_back_stay(guest: Api, vhost: str, dead: str) -> None:
    guest("DELETE", f"/api/queues/{vhost}/short")
    guest("DELETE", f"/api/queues/{vhost}/work")
    guest.put(f"/api/queues/{vhost}/work", {"arguments": {"x-max-length": 1, "x-overflow": "reject-publish"}})
    found = redrive(guest, dead)
    assert (found["count"], found["queues"]) == (1, {"work": 1})
    assert found["left"] == {"no dead letter": 1, "queue is gone": 1, "queue is full": 1}
    assert payloads(browse(guest, dead)) == ["b", "c", "other"]


@pytest.mark.parametrize("body, reason", [
    ({"limit": 0}, "limit"), ({"limit": "x"}, "limit"), ({"dry_run": "yes"}, "not_boolean"),
    ({"reason": 5}, "reason must be a string"), ({"from": []}, "from must be a string"),
    ({"dryrun": True}, "unknown field 'dryrun'"),
])  # fmt: skip
def test_wrong_requests_change_nothing(guest: Api, dead: str, body: Any, reason: str) -> None:
    answer = guest("POST", f"{dead}/redrive", body)
    assert answer.status == 400
    assert reason in answer.reason
    assert len(browse(guest, dead)["items"]) == 4


def test_streams_missing_queues_and_permissions(guest: Api, vhost: str, dead: str, serving: ApiThread) -> None:
    guest.put(f"/api/queues/{vhost}/s", {"durable": True, "arguments": {"x-queue-type": "stream"}})
    assert "its messages stay" in guest("POST", f"/api/queues/{vhost}/s/redrive", {}).reason
    assert guest("POST", f"/api/queues/{vhost}/none/redrive", {}).status == 404
    user = serving.add_user("redriver", "management", vhosts=(vhost,))
    serving.run(lambda: serving.broker.node.users.set_permission(Permission(vhost, user.user, "", "", ".*")))
    assert user("POST", f"{dead}/redrive", {"dry_run": True}).status == 401
    assert len(browse(guest, dead)["items"]) == 4
