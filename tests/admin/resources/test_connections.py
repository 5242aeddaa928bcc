"""Connections, channels and consumers over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harebell.protocol.v091 import methods as m
from tests.admin.kit import ApiThread, part
from tests.wire import Wire


@pytest.fixture
def wire(own: ApiThread) -> Iterator[Wire]:
    """A client with a channel and a consumer."""
    with Wire(own.port).log_in(
        properties={"product": "<img src=x>", "capabilities": {"consumer_cancel_notify": True}}
    ) as wire:
        wire.channel(3)
        wire.call(3, m.QueueDeclare("q"), m.QueueDeclareOk)
        wire.call(3, m.ConfirmSelect(), m.ConfirmSelectOk)
        wire.call(3, m.BasicQos(0, 7), m.BasicQosOk)
        wire.call(3, m.BasicConsume("q", "tag/1"), m.BasicConsumeOk)
        yield wire


def test_a_connection(own: ApiThread, wire: Wire) -> None:
    api = own.api()
    (listed,) = api.get("/api/connections")
    name = listed["name"]
    host, port = wire.socket.getsockname()
    assert name == f"{host}:{port} -> 127.0.0.1:{own.port}"
    found = api.get(f"/api/connections/{part(name)}")
    assert (found["peer_host"], found["peer_port"], found["host"], found["port"]) == (host, port, "127.0.0.1", own.port)
    assert (found["user"], found["vhost"], found["state"], found["channels"]) == ("guest", "/", "running", 1)
    assert (found["protocol"], found["auth_mechanism"], found["ssl"]) == ("AMQP 0-9-1", "PLAIN", False)
    assert found["client_properties"]["product"] == "<img src=x>"
    assert found["recv_oct"] > 0
    assert api.get("/api/connections?columns=user,name&page=1&name=127")["items"] == [{"user": "guest", "name": name}]
    assert api.get("/api/vhosts/%2F/connections")[0]["name"] == name
    assert api.get("/api/connections/username/guest")[0]["name"] == name
    assert api.get("/api/connections/username/nobody") == []
    assert api.get(f"/api/connections/{part(name)}/channels")[0]["number"] == 3
    assert api("GET", "/api/connections/none").status == 404


def test_a_channel_and_a_consumer(own: ApiThread, wire: Wire) -> None:
    api = own.api()
    for _ in range(10):
        wire.publish("", "q", b"x", channel=3)
    wire.take(m.BasicDeliver, 7)
    wire.barrier(3)  # the last three publications came, too
    (listed,) = api.get("/api/channels")
    assert listed["name"].endswith(" (3)")
    found = api.get(f"/api/channels/{part(listed['name'])}")
    assert (found["number"], found["user"], found["vhost"], found["state"]) == (3, "guest", "/", "running")
    assert (found["confirm"], found["transactional"], found["consumer_count"]) == (True, False, 1)
    assert (found["prefetch_count"], found["global_prefetch_count"], found["messages_unacknowledged"]) == (7, 0, 7)
    assert found["message_stats"]["publish"] == found["message_stats"]["confirm"] == 10
    assert found["message_stats"]["deliver"] == 7
    (consumer,) = found["consumer_details"]
    assert (consumer["consumer_tag"], consumer["prefetch_count"], consumer["ack_required"]) == ("tag/1", 7, True)
    assert api.get("/api/vhosts/%2F/channels")[0]["name"] == listed["name"]
    assert api.get("/api/consumers")[0] == consumer
    assert api("GET", "/api/channels/none").status == 404


def test_transactions_are_counted(own: ApiThread, wire: Wire) -> None:
    wire.channel(1)
    wire.call(1, m.TxSelect(), m.TxSelectOk)
    wire.call(1, m.BasicQos(0, 5, global_=True), m.BasicQosOk)
    for _ in range(3):
        wire.publish("", "q", b"x")
    wire.call(1, m.TxCommit(), m.TxCommitOk)
    wire.take(m.BasicDeliver, 3)
    wire.publish("", "q", b"x")
    wire.call(1, m.QueueDeclare("r"), m.QueueDeclareOk)
    (found,) = [each for each in own.api().get("/api/channels") if each["number"] == 1]
    assert (found["transactional"], found["messages_uncommitted"], found["global_prefetch_count"]) == (True, 1, 5)
    assert found["acks_uncommitted"] == 0
    wire.call(1, m.BasicGet("r"), m.BasicGetEmpty)


def test_a_connection_is_closed_with_a_reason(own: ApiThread, wire: Wire) -> None:
    api = own.api()
    (listed,) = api.get("/api/connections")
    path = f"/api/connections/{part(listed['name'])}"
    assert api("DELETE", path, headers={"x-reason": "too\u00e9 loud\x7f"}).status == 204
    close = wire.expect(m.ConnectionClose).method
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == 320
    assert close.reply_text.startswith("CONNECTION_FORCED - CLOSED - too")
    assert "\x7f" not in close.reply_text
    wire.send(0, m.ConnectionCloseOk())
    wire.wait_end()
    assert api("DELETE", "/api/connections/none").status == 404


def test_all_connections_of_a_user_are_closed(own: ApiThread, wire: Wire) -> None:
    assert own.api()("DELETE", "/api/connections/username/nobody").status == 204
    assert own.api()("DELETE", "/api/connections/username/guest").status == 204
    close = wire.expect(m.ConnectionClose).method
    assert isinstance(close, m.ConnectionClose)
    assert "Closed via management plugin" in close.reply_text


def test_others_see_and_close_their_own(own: ApiThread, wire: Wire) -> None:
    (listed,) = own.api().get("/api/connections")
    path = f"/api/connections/{part(listed['name'])}"
    stranger = own.add_user("stranger", "management", vhosts=("/",))
    with Wire(own.port).log_in(user="stranger", password="stranger") as theirs:
        theirs.channel()
        mine = stranger.get("/api/connections")
        assert [each["user"] for each in mine] == ["stranger"]
        assert [each["user"] for each in stranger.get("/api/channels")] == ["stranger"]
        assert stranger("GET", path).status == stranger("DELETE", path).status == 401
        assert stranger("GET", f"{path}/channels").status == 401
        assert stranger("DELETE", "/api/connections/username/guest").status == 401
        watcher = own.add_user("watcher", "monitoring")
        assert watcher("GET", path).status == 200
        assert watcher("DELETE", path).status == 401
        assert stranger("DELETE", f"/api/connections/{part(mine[0]['name'])}").status == 204
        theirs.expect(m.ConnectionClose)
    assert stranger("DELETE", "/api/connections/username/stranger").status == 204


def test_a_client_that_has_not_logged_in_is_in_no_list(own: ApiThread) -> None:
    with Wire(own.port) as wire:
        wire.raw(b"AMQP\0\0\x09\x01")
        wire.expect(m.ConnectionStart)
        assert own.api().get("/api/connections") == []


def test_the_prefetch_of_a_consumer_that_consumes(own: ApiThread, wire: Wire) -> None:
    api = own.api()
    for _ in range(20):
        wire.publish("", "q", b"x", channel=3)
    wire.take(m.BasicDeliver, 7)
    (channel,) = api.get("/api/channels")
    path = f"/api/consumers/%2F/{part(channel['name'])}/tag%2F1/prefetch"
    answer = api("PUT", path, {"prefetch_count": 10})
    assert (answer.status, answer.json["prefetch_count"]) == (200, 10)
    wire.take(m.BasicDeliver, 3)
    assert api("PUT", path, {"prefetch_count": 0}).status == 200
    wire.take(m.BasicDeliver, 10)
    assert api("PUT", path, {"prefetch_count": -1}).status == 400
    assert api("PUT", path.replace("tag%2F1", "none"), {"prefetch_count": 1}).status == 404
    assert api("PUT", path.replace("%2F/", "nowhere/", 1), {"prefetch_count": 1}).status == 404
    stranger = own.add_user("stranger", "management", vhosts=("/",))
    assert stranger("PUT", path, {"prefetch_count": 1}).status == 404, "it does not see it"
    watcher = own.add_user("watcher", "monitoring", vhosts=("/",))
    assert watcher("PUT", path, {"prefetch_count": 1}).status == 401
    wire.call(3, m.BasicConsume("q", "free", no_ack=True), m.BasicConsumeOk)
    assert api("PUT", path.replace("tag%2F1", "free"), {"prefetch_count": 1}).status == 400
