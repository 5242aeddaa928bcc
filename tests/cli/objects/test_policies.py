"""`harebell policies` against a broker's HTTP API."""

from __future__ import annotations

from tests.cli.administering import Command


def test_policies(run: Command, vhost: str) -> None:
    where = ("--vhost", vhost)
    options = ("--define", "max-length=10", "--define", "overflow=reject-publish", "--apply-to", "queues")
    assert run("policies", "set", "short", "^q", *options, "--priority", "3", *where).status == 0
    (row,) = run("policies", "list", "--json", *where).json
    assert row == {
        "vhost": vhost, "name": "short", "pattern": "^q", "apply-to": "queues", "priority": 3,
        "definition": {"max-length": 10, "overflow": "reject-publish"},
    }  # fmt: skip
    assert "max-length=10, overflow=reject-publish" in run("policies", "list", *where).output
    assert run("policies", "show", "short", "--json", *where).json == row
    assert run("policies", "list", "--operator", "--json", *where).json == []
    wrong = run("policies", "clear", "shor", *where)
    assert (wrong.status, "no policy 'shor'" in wrong.error, "did you mean 'short'?" in wrong.error) == (65, True, True)
    assert run("policies", "clear", "short", *where).status == 0
    assert run("policies", "list", "--json", *where).json == []


def test_operator_policies(run: Command, vhost: str) -> None:
    where = ("--operator", "--vhost", vhost)
    assert run("policies", "set", "limit", "", "--define", "max-length=5", *where).status == 0
    assert run("policies", "show", "limit", "--json", *where).json["definition"] == {"max-length": 5}
    assert "no operator policy 'x'" in run("policies", "clear", "x", *where).error
    assert run("policies", "clear", "limit", *where).status == 0


def test_what_cannot_be_set(run: Command, vhost: str) -> None:
    refused = run("policies", "set", "p", "(", "--define", "max-length=1", "--vhost", vhost)
    assert (refused.status, refused.error.count("\n")) == (1, 1)
    assert "one of all, queues" in run("policies", "set", "p", "", "--define", "a=1", "--apply-to", "x").error
