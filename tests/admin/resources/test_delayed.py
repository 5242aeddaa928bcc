"""Delayed messages over HTTP: listed and revoked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from harebell.routing.definitions import Permission
from tests.admin.kit import Api, ApiThread

HOUR = 3_600_000


@pytest.fixture
def path(guest: Api, vhost: str) -> str:
    arguments = {"x-delayed-type": "fanout"}
    assert guest.put(f"/api/exchanges/{vhost}/d", {"type": "x-delayed-message", "arguments": arguments}) == 201
    return f"/api/exchanges/{vhost}/d"


def hold(api: Api, path: str, delay: int, **properties: Any) -> None:
    headers = {"x-delay": delay, **properties.pop("headers", {})}
    body = {"properties": {"headers": headers, **properties}, "routing_key": "k", "payload": "abc"}
    assert api("POST", f"{path}/publish", {**body, "payload_encoding": "string"}).json == {"routed": True}


def test_the_next_one_is_the_first(guest: Api, path: str) -> None:
    assert guest.get(f"{path}/delayed") == []
    hold(guest, path, 2 * HOUR, message_id="late")
    hold(guest, path, HOUR, headers={"x-delay-id": "early"}, message_id="other")
    hold(guest, path, 3 * HOUR)
    found = guest.get(f"{path}/delayed")
    assert [(each["delay_id"], each["delay"]) for each in found] == [
        ("early", HOUR), ("late", 2 * HOUR), (None, 3 * HOUR),
    ]  # fmt: skip
    assert 0 < found[0]["due"] - time.time() * 1000 <= HOUR
    assert found[0]["due"] < found[1]["due"]
    assert (found[0]["routing_key"], found[0]["routing_keys"], found[0]["payload_bytes"]) == ("k", ["k"], 3)
    assert found[0]["properties"]["message_id"] == "other"
    page = guest.get(f"{path}/delayed?page=1&page_size=1&name=la&columns=delay_id")
    assert (page["items"], page["filtered_count"], page["total_count"]) == ([{"delay_id": "late"}], 1, 3)


def test_revoked_by_id_and_by_number(guest: Api, path: str) -> None:
    for _ in range(2):
        hold(guest, path, HOUR, message_id="a/b")
    hold(guest, path, HOUR)
    assert guest("DELETE", f"{path}/delayed/ids/a%2Fb").json == {"revoked": 2}
    assert guest("DELETE", f"{path}/delayed/ids/a%2Fb").status == 404
    (left,) = guest.get(f"{path}/delayed")
    assert guest("DELETE", f"{path}/delayed/{left['number']}").status == 204
    assert guest("DELETE", f"{path}/delayed/{left['number']}").status == 404
    assert guest("DELETE", f"{path}/delayed/x").status == 404
    assert guest.get(f"{path}/delayed") == []


def test_one_of_two_with_the_same_id(guest: Api, path: str) -> None:
    for _ in range(2):
        hold(guest, path, HOUR, message_id="m")
    first, second = (each["number"] for each in guest.get(f"{path}/delayed"))
    assert guest("DELETE", f"{path}/delayed/{first}").status == 204
    assert [each["number"] for each in guest.get(f"{path}/delayed")] == [second]
    assert guest("DELETE", f"{path}/delayed/ids/m").json == {"revoked": 1}


def test_what_delays_nothing(guest: Api, vhost: str) -> None:
    for method, rest in (("GET", ""), ("DELETE", "/1"), ("DELETE", "/ids/m")):
        answer = guest(method, f"/api/exchanges/{vhost}/amq.topic/delayed{rest}")
        assert answer.status == 400
        assert answer.reason == f"exchange 'amq.topic' in vhost '{vhost}' delays no messages"
        assert guest(method, f"/api/exchanges/{vhost}/none/delayed{rest}").status == 404


def test_the_permissions_of_amqp_count(guest: Api, path: str, vhost: str, serving: ApiThread) -> None:
    hold(guest, path, HOUR, message_id="m")
    reader = serving.add_user("delays-reader", "management", vhosts=(vhost,))
    serving.run(lambda: serving.broker.node.users.set_permission(Permission(vhost, reader.user, "", "", ".*")))
    assert len(reader.get(f"{path}/delayed")) == 1
    assert reader("DELETE", f"{path}/delayed/ids/m").status == 401
    assert reader("DELETE", f"{path}/delayed/0").status == 401
    serving.run(lambda: serving.broker.node.users.set_permission(Permission(vhost, reader.user, "", ".*", "")))
    assert reader("GET", f"{path}/delayed").status == 401
    assert reader("DELETE", f"{path}/delayed/ids/m").json == {"revoked": 1}
