"""The commands over the HTTP API, unmodified against RabbitMQ: what it has works, the rest is refused in words."""

from __future__ import annotations

import uuid

import pytest

from tests.cli.administering import Command, runner
from tests.differential.http_api.conftest import Broker


@pytest.fixture
def run(theirs: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("HAREBELL_HTTP_URL", f"http://guest:guest@127.0.0.1:{theirs.api.port}")
    return runner(monkeypatch, capsys, f"http://guest:guest@127.0.0.1:{theirs.api.port}")


def test_commands_at_rabbitmq(run: Command, theirs: Broker) -> None:
    vhost, user = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("vhost", "user"))
    sha = ("--hashing-algorithm", "rabbit_password_hashing_sha256")
    where = ("--vhost", vhost)
    for command in (
        ("vhosts", "add", vhost), ("permissions", "set", "guest", *where),
        ("queues", "declare", "orders", "--type", "quorum", *where),
        ("exchanges", "declare", "x", "--type", "topic", *where),
        ("bindings", "declare", "x", "orders", "a.#", "--argument", "n=1", *where),
        ("policies", "set", "p", "^o", "--define", "max-length=9", "--apply-to", "queues", *where),
        ("queues", "list", *where), ("exchanges", "list", *where), ("connections", "list"), ("channels", "list"),
        ("consumers", "list", *where), ("users", "list"), ("vhosts", "list"), ("permissions", "list"),
        ("vhosts", "set-limits", vhost, "--max-queues", "5"),
    ):  # fmt: skip
        done = run(*command)
        assert done.status == 0, (command, done.error)
    assert run("users", "add", user, "--password-file", "-", *sha, stdin="pw").status == 0
    assert run("users", "set-tags", user, "monitoring").status == 0
    assert run("users", "set-limits", user, "--max-channels", "-1").status == 0
    (row,) = (each for each in run("users", "list", "--json").json if each["name"] == user)
    assert (row["tags"], row["password"]) == (["monitoring"], True)
    refused = run("users", "set-password", user, "--password-file", "-", stdin="pw")
    assert (refused.status, "add --hashing-algorithm" in refused.error) == (1, True)
    assert run("users", "delete", user).status == 0
    assert run("queues", "show", "orders", "--json", *where).json["arguments"] == {"x-queue-type": "quorum"}
    (row,) = run("bindings", "list", "--source", "x", "--json", *where).json
    assert (row["routing_key"], row["arguments"]) == ("a.#", {"n": 1})
    assert run("policies", "show", "p", "--json", *where).json["definition"] == {"max-length": 9}
    wrong = run("queues", "show", "order", *where)
    assert (wrong.status, wrong.error.endswith("did you mean 'orders'?\n")) == (65, True)
    for command, instead in (
        (("queue", "peek", "orders"), "rabbitmqadmin get queue=orders"),
        (("queue", "move", "orders", "x"), "harebell shovel"),
        (("queue", "redrive", "orders"), "harebell spark deadletters"),
    ):  # fmt: skip
        refused = run(*command, *where)
        assert (refused.status, "RabbitMQ at http://" in refused.error, instead in refused.error) == (1, True, True)
    denied = run("queues", "list", "--url", f"http://guest:wrong@127.0.0.1:{theirs.api.port}")
    assert denied.status == 77
    for undone in (
        ("queue", "purge", "orders", "--yes", *where),
        ("bindings", "delete", "x", "orders", "a.#", "--argument", "n=1", *where),
        ("policies", "clear", "p", *where), ("exchanges", "delete", "x", *where),
        ("queues", "delete", "orders", *where),
        ("permissions", "clear", "guest", *where), ("vhosts", "delete", vhost),
    ):  # fmt: skip
        done = run(*undone)
        assert done.status == 0, (undone, done.error)
