"""Changes: who is told of what, and that no secret is told."""

from __future__ import annotations

import pytest

from harebell.admin.live import changes
from harebell.admin.live.changes import Change
from harebell.admin.login.users import User
from tests.admin.kit import ApiThread
from tests.admin.live.streams import Watch

EVENTS = {
    "queue.created": ("a", None),
    "vhost.created": ("a", None),
    "policy.set": ("a", None),
    "connection.created": ("a", "other"),
    "channel.created": ("a", "management"),
    "connection.closed": (None, None),
    "user.created": (None, "root"),
    "permission.created": ("a", "other"),
    "topic.permission.created": ("a", "other"),
    "alarm.set": (None, None),
    "queue.deleted": ("b", None),
}
TOLD = {
    "administrator": set(EVENTS),
    "monitoring": set(EVENTS) - {"user.created", "permission.created", "topic.permission.created"},
    "policymaker": {"queue.created", "vhost.created", "policy.set"},
    "management": {"queue.created", "vhost.created", "policy.set", "channel.created"},
}


@pytest.mark.parametrize("tag", TOLD)
def test_who_is_told_of_what(serving: ApiThread, tag: str) -> None:
    name = tag
    serving.api().put("/api/vhosts/a")
    serving.add_user(name, tag, vhosts=("a",))
    try:
        user = User(serving.broker.node, name, "127.0.0.1")
        told = {
            event
            for event, (vhost, about) in EVENTS.items()
            if Change(1, event, vhost, about, b"").is_for(user)
        }  # fmt: skip
        assert told == TOLD[tag]
    finally:
        serving.api()("DELETE", f"/api/users/{name}")
        serving.api()("DELETE", "/api/vhosts/a")


def test_changes_come_in_order_with_who_made_them(own: ApiThread) -> None:
    api = own.api()
    with Watch(api, "changes") as watch:
        watch.until(lambda: bool(watch.columns) or watch.columns == {})
        while not own.run(lambda: own.management.context.feed.listeners):
            pass
        api.put("/api/queues/%2F/q")
        api("DELETE", "/api/queues/%2F/q")
        secret = {
            "value": {
                "src-uri": "amqp://u:hidden@localhost",
                "src-queue": "a",
                "dest-uri": "amqp://",
                "dest-queue": "b",
            }
        }
        api.put("/api/parameters/none/%2F/s", secret)
        api.put("/api/global-parameters/s", secret)
        watch.until(lambda: sum(each["event"].startswith("parameter.") for each in watch.changes) >= 1)
        names = [each["event"] for each in watch.changes]
        assert names[:2] == ["queue.created", "queue.deleted"]
        assert {each["user_who_performed_action"] for each in watch.changes} == {"guest"}
        assert all(each["at"] > 0 for each in watch.changes)
        assert "hidden" not in repr(watch.changes)


def test_one_that_is_late_is_told_that_it_missed_some(own: ApiThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST", 3)
    noted = own.run(lambda: changes.Changes(own.broker.node, lambda: None, lambda: 1.0))
    own.run(noted.listen)
    for number in range(5):
        own.api().put(f"/api/queues/%2F/{number}")
    assert [each.number for each in own.run(lambda: noted.after(3))[0]] == [4, 5]
    assert own.run(lambda: noted.after(3))[1] is False
    found, lost = own.run(lambda: noted.after(0))
    assert [each.number for each in found] == [3, 4, 5]
    assert lost is True
    own.run(noted.leave)
    assert own.run(lambda: noted.after(0)) == ([], True), "nothing is kept for nobody"
