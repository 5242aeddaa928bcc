"""`harebell permissions` against a broker that runs."""

from __future__ import annotations

import pytest

from tests.cli.administering import Command
from tests.wire import BrokerThread


def test_permissions_from_first_to_last(run: Command) -> None:
    run("users", "add", "orders", "--no-password")
    assert run("permissions", "set", "orders", "--configure", "", "--write", "^orders$").status == 0
    where = {"vhost": "/", "user": "orders"}
    listed = ("list", "--user", "orders", "--vhost", "/", "--json")
    assert run("permissions", *listed).json == [{**where, "configure": "", "write": "^orders$", "read": ".*"}]
    assert "^orders$" in run("permissions", "list").output
    assert run("permissions", "set-topic", "orders", "amq.topic", "--write", "^{username}").status == 0
    listed_topic = ("list-topic", *listed[1:])
    expected = [{**where, "exchange": "amq.topic", "write": "^{username}", "read": ".*"}]
    assert run("permissions", *listed_topic).json == expected
    assert run("permissions", "clear-topic", "orders", "amq.direct").status == 0
    assert run("permissions", *listed_topic).json == expected
    assert run("permissions", "clear-topic", "orders").status == 0
    assert run("permissions", *listed_topic).json == []
    assert run("permissions", "clear", "orders").output == "user 'orders' has no permissions in vhost '/'\n"
    assert run("permissions", *listed).json == []
    run("users", "delete", "orders")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set", "nobody"), "no user 'nobody'"),
        (("set", "guest", "--vhost", "x"), "no vhost 'x'"),
        (("set", "guest", "--read", "["), "'[' is not a regular expression"),
        (("clear", "nobody"), "no user 'nobody'"),
        *(
            ((verb, option, "nobody"), f"no {noun} 'nobody': `harebell {noun}s list` has them all")
            for verb in ("list", "list-topic")
            for option, noun in (("--user", "user"), ("--vhost", "vhost"))
        ),
        (("set-topic", "guest", "amq.topic", "--read", "["), "'[' is not a regular expression"),
    ],
)
def test_what_cannot_be(run: Command, arguments: tuple[str, ...], says: str) -> None:
    refused = run("permissions", *arguments)
    status = 65 if says.startswith(("no user", "no vhost", "no exchange")) else 1
    assert (refused.status, says in refused.error) == (status, True), refused


def test_a_probe_needs_a_permission_that_may_allow_nothing(run: Command, broker: BrokerThread) -> None:
    run("users", "add", "probe", "--password-file", "-", stdin="secret")
    url = broker.broker.url.replace("guest:guest", "probe:secret")
    refused = run("ping", url)
    assert (refused.status, "530" in refused.error) == (1, True)
    assert run("permissions", "set", "probe", "--configure", "", "--write", "", "--read", "").status == 0
    assert run("ping", url).status == 0
