"""The topic `audit` of a stream: acts and refusals as they happen, for those who may see them."""

from __future__ import annotations

from harebell.admin.live.acts import Acts
from harebell.broker.audit import AuditLog, Origin
from tests.admin.kit import ApiThread
from tests.admin.live.streams import Watch

GUEST = Origin("guest", "127.0.0.1:5", "http")


def test_acts_are_told_as_they_happen(own: ApiThread) -> None:
    api = own.api()
    api.put("/api/queues/%2F/before")
    with Watch(api, "audit") as watch:
        assert watch.take()  # the topics
        api.put("/api/queues/%2F/q", {"durable": True})
        watch.until(lambda: len(watch.acts) == 1)
        api("DELETE", "/api/queues/%2F/none")
        api("DELETE", "/api/queues/%2F/q")
        watch.until(lambda: len(watch.acts) == 3)
    told = [(each["kind"], each["name"], each["act"], each["outcome"]) for each in watch.acts]
    assert told == [
        ("queue", "q", "created", "done"),
        ("queue", "none", "deleted", "refused"),
        ("queue", "q", "deleted", "done"),
    ]
    assert watch.acts == [each for each in reversed(api.get("/api/audit")) if each["name"] in ("q", "none")]
    assert watch.acts[0]["details"]["durable"] is True
    assert own.broker.node.events.audit.wake is None, "nobody listens"


def test_others_hear_of_their_virtual_hosts_alone(own: ApiThread) -> None:
    api = own.api()
    for name in ("a", "b"):
        api.put(f"/api/vhosts/{name}")
    user = own.add_user("user", "management", vhosts=("a",))
    with Watch(user, "audit", "changes") as watch:
        assert watch.take()
        api.put("/api/queues/b/not-told")
        api.put("/api/users/other", {"password": "x", "tags": ""})
        api.put("/api/queues/a/told")
        watch.until(lambda: bool(watch.acts and watch.changes))
    assert [each["name"] for each in watch.acts] == ["told"]
    assert [each["name"] for each in watch.changes] == ["told"]


def test_acts_that_the_log_forgot_are_lost() -> None:
    log, woken = AuditLog(records=2), list[int]()
    acts = Acts(log, lambda: woken.append(log.number))
    acts.listen()
    for number in range(5):
        log.add(number, GUEST, "/", "queue", f"q{number}", "created")
    assert woken == [1, 2, 3, 4, 5]
    for after, names, lost in ((5, [], False), (4, ["q4"], False), (3, ["q3", "q4"], False), (2, ["q3", "q4"], True)):
        told, forgotten = acts.after(after)
        assert ([each.act.name for each in told], forgotten) == (names, lost)
    acts.leave()
    log.add(5, GUEST, "/", "queue", "q5", "created")
    assert woken == [1, 2, 3, 4, 5]
