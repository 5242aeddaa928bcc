"""Sessions that somebody else ends: an administrator, or whoever deletes their user or virtual host."""

from __future__ import annotations

from typing import Any

import pytest

from harebell.broker.operations.administration import administer
from harebell.protocol.v010 import commands as c, controls as k
from harebell.protocol.v010.domains import ErrorCode
from harebell.routing.definitions import Permission, VirtualHost
from tests.broker.v010.kit import Client, Kit, Peer, add_user


def holding(peer: Peer) -> Client:
    """A session that lasts, with a delivery that is not accepted."""
    client = peer.session()
    client.peer.control(0, k.SessionRequestTimeout(60))
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"m")
    client.subscribe("q")
    assert client.bodies() == [b"m"]
    return client


def end(kit: Kit) -> None:
    administer(kit.node, {"do": "end-session", "session": "s", "user": "guest", "vhost": "/"})
    kit.settle()


def shown(kit: Kit) -> list[Any]:
    found = administer(kit.node, {"do": "list-sessions"})
    assert isinstance(found, list)
    return found


def test_what_is_shown_of_a_session(kit: Kit) -> None:
    client = holding(kit.peer())
    (session,) = shown(kit)
    assert session.pop("bytes") >= 0
    assert list(session.pop("subscriptions").values()) == ["q"]
    assert session == {
        "session": "s", "user": "guest", "vhost": "/", "connection": "127.0.0.1:1", "timeout": 60, "left": None,
        "unacked": 1, "uncommitted": 0,
    }  # fmt: skip
    client.peer.lose()
    kit.pass_time(20_000)
    (session,) = shown(kit)
    assert (session["connection"], session["left"]) == ("", 40)
    kit.peer().session(state=client.state)
    assert [each["left"] for each in shown(kit)] == [None]


def test_an_administrator_ends_an_attached_session(kit: Kit) -> None:
    client = holding(kit.peer())
    end(kit)
    assert client.exception is not None
    assert client.exception.error_code == ErrorCode.RESOURCE_DELETED
    assert "ended by an administrator" in (client.exception.description or "")
    assert kit.node.vhosts["/"].queues["q"].message_count == 1
    assert shown(kit) == []
    assert kit.peer().session().attached, "the name is free"


def test_an_administrator_ends_a_detached_session(kit: Kit) -> None:
    client = holding(kit.peer())
    client.peer.lose()
    end(kit)
    assert kit.node.vhosts["/"].queues["q"].message_count == 1
    assert list(kit.sessions.detached()) == []
    kit.pass_time(61_000)
    assert kit.peer().session(state=client.state).lost, "the client is told"


@pytest.mark.parametrize("attached", [True, False])
def test_a_session_ends_with_its_user(kit: Kit, attached: bool) -> None:
    add_user(kit, "u")
    client = holding(kit.peer(user="u"))
    if not attached:
        client.peer.lose()
    kit.node.users.remove("u")
    kit.settle()
    assert kit.node.sessions == set()
    assert kit.node.vhosts["/"].queues["q"].message_count == 1
    add_user(kit, "u")
    assert kit.peer(user="u").session(state=client.state).lost, "this user is somebody else"


@pytest.mark.parametrize("attached", [True, False])
def test_a_session_ends_with_its_virtual_host(kit: Kit, attached: bool) -> None:
    kit.node.add_vhost(VirtualHost("v"))
    kit.node.users.set_permission(Permission("v", "guest", ".*", ".*", ".*"))
    client = holding(kit.peer(vhost="v"))
    other = holding(kit.peer())
    if not attached:
        client.peer.lose()
    kit.node.delete_vhost("v")
    kit.settle()
    assert [each.vhost.name for each in kit.node.sessions] == ["/"]
    assert other.exception is None
    assert list(kit.sessions.detached()) == []
