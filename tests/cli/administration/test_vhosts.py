"""`harebell vhosts` against a broker that runs."""

from __future__ import annotations

import pytest

from harebell.client.blocking import connect
from harebell.errors import PreconditionFailed
from tests.cli.administering import Command
from tests.wire import BrokerThread


def test_a_vhost_from_first_to_last(run: Command, broker: BrokerThread) -> None:
    kind = ("--default-queue-type", "quorum")
    assert run("vhosts", "add", "shop", "--description", "A shop", "--tag", "x", *kind).status == 0
    assert run("vhosts", "set-limits", "shop", "--max-queues", "1").status == 0
    run("permissions", "set", "guest", "--vhost", "shop")
    with connect(broker.broker.url + "shop") as connection, connection.channel() as channel:
        channel.queue_declare("q", durable=True)
        with pytest.raises(PreconditionFailed, match="queue limit"):
            channel.queue_declare("r", durable=True)
    (shop,) = (vhost for vhost in run("vhosts", "list", "--json").json if vhost["name"] == "shop")
    assert (shop["description"], shop["tags"], shop["queues"]) == ("A shop", ["x"], 1)
    assert (shop["limits"], shop["default_queue_type"]) == ({"max-queues": 1}, "quorum")
    assert "A shop" in run("vhosts", "list").output
    refused = run("vhosts", "delete", "shop")
    assert (refused.status, "1 queues with 0 messages: add --yes" in refused.error) == (1, True)
    assert run("vhosts", "delete", "shop", "--yes").output == "vhost 'shop' is deleted\n"
    assert [vhost["name"] for vhost in run("vhosts", "list", "--json").json] == ["/"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "/"), "vhost '/' is there already"),
        (("add", "x", "--default-queue-type", "heap"), "is none of"),
        (("delete", "x"), "no vhost 'x'"),
        (("delete", "/"), "connect to another to delete it"),
        (("set-limits", "/"), "no limit is given"),
        (("set-limits", "x", "--max-queues", "1"), "no vhost 'x'"),
    ],
)
def test_what_cannot_be(run: Command, arguments: tuple[str, ...], says: str) -> None:
    refused = run("vhosts", *arguments)
    status = 65 if says.startswith(("no user", "no vhost", "no exchange")) else 1
    assert (refused.status, says in refused.error) == (status, True), refused
