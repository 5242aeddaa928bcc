"""`harebell audit` against a broker's HTTP API."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.cli.administering import Command


def test_what_was_done_and_refused(run: Command, vhost: str) -> None:
    where = ("--vhost", vhost)
    assert run("queues", "declare", "orders", *where).status == 0
    assert run("queues", "declare", "orders", "--argument", "x-max-length=1", *where).status
    assert run("policies", "set", "short", "^q", "--define", "max-length=10", *where).status == 0
    assert run("queues", "delete", "orders", *where).status == 0
    rows = run("audit", "list", "--json", *where).json
    done = [(each["user"], each["protocol"], each["kind"], each["name"], each["act"]) for each in rows]
    assert done[:2] == [("guest", "http", "queue", "orders", "deleted"), ("guest", "http", "policy", "short", "set")]
    assert [each["at"] for each in rows] == sorted((each["at"] for each in rows), reverse=True)
    assert [datetime.fromisoformat(each["time"]).timestamp() for each in rows] == [each["at"] / 1000 for each in rows]
    assert all(each["time"].endswith("Z") for each in rows)
    (refused,) = run("audit", "list", "--refused", "--json", *where).json
    assert (refused["name"], refused["outcome"]) == ("orders", "refused")
    assert "x-max-length" in refused["reason"]
    assert [each["kind"] for each in run("audit", "list", "--kind", "policy", "--json", *where).json] == ["policy"]
    assert len(run("audit", "list", "--name", "rder", "--act", "created", "--json", *where).json) == 1
    assert run("audit", "list", "--user", "nobody", "--json", *where).json == []
    assert len(run("audit", "list", "--last", "1", "--json", *where).json) == 1
    assert "orders" in run("audit", "list", *where).output


@pytest.mark.parametrize("last", ["0", "-1", "501"])
def test_how_many_is_bounded(run: Command, last: str) -> None:
    assert "1 to 500" in run("audit", "list", "--last", last).error
