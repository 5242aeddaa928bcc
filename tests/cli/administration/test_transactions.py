"""`harebell transactions` against a broker that runs."""

from __future__ import annotations

import pytest

from harebell.broker.transactions.branch import Xid
from tests.cli.administering import Command
from tests.wire import BrokerThread


def prepare(broker: BrokerThread, name: bytes) -> None:
    def add() -> None:
        node = broker.broker.node
        node.batch.slices.run(node.branches.preparing(node.branches.begin("/", Xid(1, name, b""), "guest")))

    broker.run(add)


@pytest.mark.parametrize(("verb", "state"), [("commit", "committed"), ("roll-back", "rolled back")])
def test_a_transaction_from_first_to_last(run: Command, broker: BrokerThread, verb: str, state: str) -> None:
    prepare(broker, b"orders")
    assert "1:orders:" in run("transactions", "list").output
    assert [each["state"] for each in run("transactions", "list", "--json").json] == ["prepared"]
    assert run("transactions", verb, "1:orders:").output == f"transaction '1:orders:' is {state}\n"
    assert [each["state"] for each in run("transactions", "list", "--json").json] == [f"{state} by hand"]
    refused = run("transactions", verb, "1:orders:")
    assert (refused.status, "not prepared" in refused.error) == (1, True)


@pytest.mark.parametrize("verb", ["commit", "roll-back"])
def test_a_transaction_that_is_not_there(run: Command, verb: str) -> None:
    refused = run("transactions", verb, "t")
    assert (refused.status, "no transaction 't' in vhost '/'" in refused.error) == (65, True)
