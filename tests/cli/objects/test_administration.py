"""`harebell users`, `vhosts` and `permissions` with the URL of an HTTP API."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harebell.broker.auth.passwords import RABBITMQ_SHA256
from harebell.client.blocking import connect
from tests.admin.kit import ApiThread
from tests.cli.administering import Command, Run

Http = Callable[..., Run]


@pytest.fixture
def http(run: Command, serving: ApiThread) -> Http:
    """The command with --url at its end."""
    url = f"http://guest:guest@127.0.0.1:{serving.api_port}"
    return lambda *arguments, **more: run(*arguments, "--url", url, **more)


def test_a_user_from_first_to_last(http: Http, serving: ApiThread, vhost: str) -> None:
    added = http("users", "add", "till", "--password-file", "-", "--tag", "monitoring", stdin="first")
    assert (added.status, added.error) == (0, "")
    again = http("users", "add", "till", "--no-password")
    assert (again.status, "is there already" in again.error) == (1, True)
    http("permissions", "set", "till", "--write", "^q", "--vhost", vhost)
    url = f"amqp://till:%s@127.0.0.1:{serving.port}/{vhost}"
    connect(url % "first").close()
    http("users", "set-password", "till", "--password-file", "-", stdin="second")
    http("users", "set-tags", "till", "a", "b")
    http("users", "set-limits", "till", "--max-channels", "5")
    connect(url % "second").close()  # other tags keep the password
    (user,) = (each for each in http("users", "list", "--json").json if each["name"] == "till")
    assert (user["tags"], user["limits"], user["password"]) == (["a", "b"], {"max-channels": 5}, True)
    (row,) = http("permissions", "list", "--user", "till", "--json").json
    assert (row["vhost"], row["write"]) == (vhost, "^q")
    http("permissions", "set-topic", "till", "amq.topic", "--read", "^a", "--vhost", vhost)
    assert http("permissions", "list-topic", "--vhost", vhost, "--json").json[0]["read"] == "^a"
    http("permissions", "clear-topic", "till", "amq.topic", "--vhost", vhost)
    assert http("permissions", "list-topic", "--user", "till", "--json").json == []
    for _ in range(2):
        assert http("permissions", "clear", "till", "--vhost", vhost).status == 0
    assert http("users", "delete", "till").status == 0
    missing = http("users", "delete", "till")
    assert (missing.status, "no user 'till'" in missing.error) == (65, True)
    assert "no vhost 'x'" in http("permissions", "set", "guest", "--vhost", "x").error


def test_a_user_does_not_delete_itself(http: Http) -> None:
    refused = http("users", "delete", "guest")
    assert (refused.status, "log in as another to delete it" in refused.error) == (1, True)
    assert "guest" in [each["name"] for each in http("users", "list", "--json").json]


@pytest.mark.parametrize("request_", [("sessions", "list"), ("sessions", "show", "s"), ("transactions", "list")])
def test_sessions_and_transactions_need_amqp(http: Http, request_: tuple[str, ...]) -> None:
    refused = http(*request_)
    assert (refused.status, "give --url amqp://" in refused.error) == (1, True)


def test_other_tags_keep_the_keys_of_scram(http: Http, run: Command, serving: ApiThread) -> None:
    amqp = ("--url", f"amqp://guest:guest@127.0.0.1:{serving.port}/")
    refused = http("users", "add", "s", "--password-file", "-", "--scram", stdin="pw")
    assert (refused.status, "give --url amqp://" in refused.error) == (1, True)
    assert run("users", "add", "s", "--password-file", "-", "--scram", *amqp, stdin="pw").status == 0
    before = serving.broker.node.users.users["s"].extra
    assert http("users", "set-tags", "s", "a").status == 0
    assert (serving.broker.node.users.users["s"].extra, bool(before)) == (before, True)
    assert http("users", "delete", "s").status == 0


def test_a_hash_for_rabbitmq(http: Http) -> None:
    assert (
        http("users", "add", "m", "--password-file", "-", "--hashing-algorithm", RABBITMQ_SHA256, stdin="x").status == 0
    )
    assert http("users", "list", "--json").json[-1]["hashing_algorithm"] == RABBITMQ_SHA256
    http("users", "delete", "m")


def test_the_broker_of_the_environment(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1:1" in run("users", "list").error  # HAREBELL_URL, which names no broker, is first
    monkeypatch.delenv("HAREBELL_URL")
    assert "guest" in [each["name"] for each in run("users", "list", "--json").json]


def test_virtual_hosts(http: Http) -> None:
    options = ("--description", "the shop", "--tag", "a", "--tag", "b", "--default-queue-type", "quorum")
    assert http("vhosts", "add", "shop", *options).status == 0
    assert "is there already" in http("vhosts", "add", "shop").error
    http("vhosts", "set-limits", "shop", "--max-queues", "3")
    (row,) = (each for each in http("vhosts", "list", "--json").json if each["name"] == "shop")
    assert row == {
        "name": "shop", "description": "the shop", "tags": ["a", "b"], "default_queue_type": "quorum",
        "limits": {"max-queues": 3}, "queues": 0, "messages": 0,
    }  # fmt: skip
    assert http("vhosts", "delete", "shop").status == 0
    assert "no vhost 'shop'" in http("vhosts", "delete", "shop").error


def test_what_the_http_api_lacks(http: Http) -> None:
    refused = http("sessions", "list")
    assert (refused.status, "give --url amqp://" in refused.error) == (1, True)


@pytest.mark.parametrize("tag", ["a,b", " a", " "])
def test_tags_that_would_be_others(http: Http, tag: str) -> None:
    for refused in (
        http("users", "set-tags", "guest", tag),
        http("users", "add", "x", "--no-password", "--tag", tag),
        http("vhosts", "add", "x", "--tag", tag),
    ):
        assert (refused.status, "a tag has no comma" in refused.error) == (1, True), refused


def test_definitions(http: Http, run: Command, vhost: str, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    run("queues", "declare", "q", "--vhost", vhost)
    assert http("definitions", "export", file, "--vhost", vhost).status == 0
    assert [each["name"] for each in json.loads(file.read_text())["queues"]] == ["q"]
    run("queues", "delete", "q", "--vhost", vhost)
    assert http("definitions", "import", file, "--vhost", vhost).status == 0
    assert [each["name"] for each in run("queues", "list", "--vhost", vhost, "--json").json] == ["q"]
    assert {each["name"] for each in http("definitions", "export").json["vhosts"]} >= {"/", vhost}
    assert http("route", "explain", "", "q", "--vhost", vhost).output.endswith("reaches 'q'\n")
    assert http("route", "explain", "amq.topic", "k").output.endswith("reaches no queue\n")
