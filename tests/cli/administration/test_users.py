"""`harebell users` against a broker that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harebell.broker.auth.passwords import RABBITMQ_SHA256, SCRYPT
from harebell.client.blocking import connect
from harebell.errors import AccessRefused, HarebellError
from tests.cli.administering import Command
from tests.wire import BrokerThread


def names(run: Command) -> list[str]:
    return [user["name"] for user in run("users", "list", "--json").json]


def test_a_user_from_first_to_last(run: Command, broker: BrokerThread, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\nsecond line\n")
    url = f"amqp://orders:%s@127.0.0.1:{broker.port}/"
    added = run("users", "add", "orders", "--password-file", file, "--tag", "monitoring", "--tag", "management")
    assert (added.status, added.error) == (0, "")
    assert "harebell permissions set orders" in added.output
    run("permissions", "set", "orders")
    connect(url % "first").close()
    (user,) = (user for user in run("users", "list", "--json").json if user["name"] == "orders")
    assert (user["tags"], user["hashing_algorithm"], user["password"]) == (["monitoring", "management"], SCRYPT, True)
    assert run("users", "set-password", "orders", "--password-file", "-", stdin="second\r\n").status == 0
    connect(url % "second").close()
    with pytest.raises(AccessRefused):
        connect(url % "first")
    assert run("users", "set-tags", "orders", "a").output == "user 'orders' has the tags a\n"
    assert run("users", "set-tags", "orders").output == "user 'orders' has no tags\n"
    assert run("users", "set-limits", "orders", "--max-connections", "0").status == 0
    with pytest.raises(HarebellError, match="user connection limit"):
        connect(url % "second")
    table = run("users", "list").output
    assert "max-connections=0" in table
    assert run("users", "delete", "orders").output == "user 'orders' is deleted\n"
    assert names(run) == ["guest"]


def test_a_user_without_a_password(run: Command) -> None:
    assert run("users", "add", "till", "--no-password").status == 0
    (user,) = (user for user in run("users", "list", "--json").json if user["name"] == "till")
    assert user["password"] is False
    run("users", "delete", "till")


def test_a_hash_for_rabbitmq(run: Command) -> None:
    algorithm = ("--hashing-algorithm", RABBITMQ_SHA256)
    assert run("users", "add", "mover", "--password-file", "-", *algorithm, stdin="x").status == 0
    assert run("users", "list", "--json").json[-1]["hashing_algorithm"] == RABBITMQ_SHA256
    run("users", "delete", "mover")


def test_names_are_shown_as_they_are(run: Command) -> None:
    run("users", "add", "[red]é", "--no-password")
    assert "[red]é" in run("users", "list").output
    run("users", "delete", "[red]é")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "guest", "--no-password"), "user 'guest' is there already"),
        (("add", "x", "--no-password", "--password-file", "-"), "say two things"),
        (("add", "x", "--password-file", "-", "--hashing-algorithm", "md5"), "hashing algorithm 'md5' is not one of"),
        (
            ("add", "x", "--password-file", "/nonesuch"),
            "--password-file /nonesuch cannot be read: No such file or directory",
        ),
        (("add", "x"), "there is no terminal to ask for a password"),
        (("delete", "nobody"), "no user 'nobody'"),
        (("delete", "guest"), "log in as another to delete it"),
        (("set-limits", "guest"), "no limit is given"),
        (("set-tags", "nobody", "a"), "no user 'nobody'"),
    ],
)
def test_what_cannot_be(run: Command, arguments: tuple[str, ...], says: str) -> None:
    refused = run("users", *arguments, stdin="x")
    assert refused.status == (65 if says.startswith("no user") else 1)
    assert refused.error.startswith("harebell: ")
    assert refused.error.count("\n") == 1
    assert says in refused.error
    assert names(run) == ["guest"]
