"""`harebell sessions` against a broker that runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.administering import Command
from tests.wire import BrokerThread


def add_session(broker: BrokerThread, user: str, name: bytes) -> None:
    """A session without a connection."""

    def add() -> None:
        node, sessions = broker.broker.node, broker.broker._kept()
        link: Any = SimpleNamespace(node=node, batch=node.batch, vhost=node.vhosts["/"], access=None, user=user)
        session = sessions.add(link, 0, name)
        sessions.grant(session, 600)
        node.batch.slices.run(sessions.leave(session))

    broker.run(add)


def test_a_session_from_first_to_last(run: Command, broker: BrokerThread) -> None:
    add_session(broker, "guest", b"orders")
    add_session(broker, "guest", b"\xff")
    listed = run("sessions", "list", "--json").json
    assert sorted(each["session"] for each in listed) == ["\\xff", "orders"]
    assert "orders" in run("sessions", "list").output
    assert "guest" in run("sessions", "show", "orders").output
    assert [each["timeout"] for each in run("sessions", "show", "orders", "--json").json] == [600]
    assert run("sessions", "end", "orders").output == "session 'orders' of user 'guest' is ended\n"
    assert run("sessions", "end", "\\xff").status == 0
    assert run("sessions", "list", "--json").json == []


def test_several_users_have_one_of_that_name(run: Command, broker: BrokerThread) -> None:
    add_session(broker, "a", b"s")
    add_session(broker, "b", b"s")
    refused = run("sessions", "end", "s")
    assert (refused.status, "add --user" in refused.error) == (1, True)
    assert run("sessions", "end", "s", "--user", "b").status == 0
    assert [each["user"] for each in run("sessions", "list", "--json").json] == ["a"]


@pytest.mark.parametrize("verb", ["show", "end"])
def test_a_session_that_is_not_there(run: Command, verb: str) -> None:
    refused = run("sessions", verb, "s")
    assert (refused.status, "no session 's' in vhost '/'" in refused.error) == (65, True)
