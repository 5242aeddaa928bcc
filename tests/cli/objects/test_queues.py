"""`harebell queues` against a broker's HTTP API: lists in every form, one queue, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.admin.kit import ApiThread, part
from tests.cli.administering import Command

HOSTILE = "a\x1b[2J\nb\u202e[red]c[/]"


def test_a_queue_from_first_to_last(run: Command, vhost: str, serving: ApiThread) -> None:
    where = ("--vhost", vhost)
    declared = run("queues", "declare", "orders", "--type", "quorum", "--argument", "x-max-length=10", *where)
    assert (declared.status, declared.output) == (0, f"queue 'orders' in vhost '{vhost}' is declared\n")
    (row,) = run("queues", "list", "--json", *where).json
    assert (row["name"], row["type"], row["durable"]) == ("orders", "quorum", True)
    assert row["arguments"] == {"x-queue-type": "quorum", "x-max-length": 10}
    shown = run("queues", "show", "orders", *where)
    assert "x-max-length=10" in shown.output
    assert run("queues", "show", "orders", "--json", *where).json["consumer_details"] == []
    body = {"properties": {}, "routing_key": "orders", "payload": "x", "payload_encoding": "string"}
    assert serving.api()("POST", f"/api/exchanges/{vhost}/amq.default/publish", body).json == {"routed": True}
    refused = run("queues", "delete", "orders", *where)
    assert (refused.status, "has 1 messages: add --yes if they may go" in refused.error) == (1, True)
    assert run("queues", "delete", "orders", "--if-empty", *where).status == 1
    assert run("queues", "delete", "orders", "--yes", *where).output.endswith("is deleted\n")
    assert run("queues", "list", "--json", *where).json == []


def test_declared_otherwise(run: Command, vhost: str) -> None:
    assert run("queues", "declare", "q", "--transient", "--auto-delete", "--vhost", vhost).status == 0
    refused = run("queues", "declare", "q", "--vhost", vhost)
    assert (refused.status, "inequivalent arg 'durable'" in refused.error) == (1, True)
    assert run("queues", "show", "q", "--json", "--vhost", vhost).json["auto_delete"] is True


def test_columns_and_order(run: Command, vhost: str) -> None:
    for name, limit in (("b", 2), ("a", 10), ("c", 1)):
        run("queues", "declare", name, "--argument", f"x-max-length={limit}", "--vhost", vhost)
    chosen = ("--vhost", vhost, "--columns", "name, ready,arguments.x-max-length", "--sort", "arguments.x-max-length")
    assert run("queues", "list", "--json", *chosen, "--reverse").json == [
        {"name": name, "ready": 0, "arguments.x-max-length": limit} for name, limit in (("a", 10), ("b", 2), ("c", 1))
    ]
    lines = run("queues", "list", *chosen).output.splitlines()
    assert [line.split() for line in lines if line[0] != "─"] == [
        ["name", "ready", "arguments.x-max-length"], ["c", "0", "1"], ["b", "0", "2"], ["a", "0", "10"],
    ]  # fmt: skip
    unknown = run("queues", "list", "--vhost", vhost, "--columns", "nam")
    assert (unknown.status, unknown.error) == (1, "harebell: no column 'nam': did you mean 'name'?\n")
    assert "write names with commas" in run("queues", "list", "--vhost", vhost, "--columns", "name,").error
    assert "needs --sort" in run("queues", "list", "--vhost", vhost, "--reverse").error
    assert "message_stats.ack_details.rate" not in run("queues", "list", "--sort", "ack/s", "--vhost", vhost).error


def test_hostile_names(run: Command, vhost: str) -> None:
    name = HOSTILE.replace("\n", "")  # which a declaration takes out
    assert run("queues", "declare", HOSTILE, "--vhost", vhost).status == 0
    table = run("queues", "list", "--vhost", vhost).output
    assert "\x1b" not in table
    assert r"a\x1b[2Jb\u202e[red]c[/]" in table
    assert len(table.splitlines()) == 3
    assert json.loads(run("queues", "list", "--json", "--vhost", vhost).output)[0]["name"] == name
    assert run("queues", "delete", name, "--vhost", vhost).status == 0


def test_names_are_whole_at_80_columns(run: Command, vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "".join(f"{number:03}" for number in range(80))
    assert run("queues", "declare", name, "--vhost", vhost).status == 0
    assert name in run("queues", "list", "--vhost", vhost).output  # in one line, where there is no terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    lines = run("queues", "list", "--vhost", vhost).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(line.split()[0] for line in lines[2:]) == name


def test_a_name_that_is_not_there(run: Command, vhost: str) -> None:
    run("queues", "declare", "orders", "--vhost", vhost)
    for command in (("queues", "show"), ("queues", "delete"), ("queue", "peek"), ("queue", "purge")):
        wrong = run(*command, "order", "--vhost", vhost)
        assert (wrong.status, wrong.error) == (
            65, f"harebell: no queue 'order' in vhost '{vhost}': did you mean 'orders'?\n",
        )  # fmt: skip
    assert run("queues", "show", "orders").error == (
        f"harebell: no queue 'orders' in vhost '/': vhost '{vhost}' has one, add --vhost {vhost}\n"
    )
    assert "`harebell queues list` has them all" in run("queues", "show", "zzz", "--vhost", vhost).error
    wrong = run("queues", "list", "--vhost", vhost[:-1])
    assert (wrong.status, f"no vhost '{vhost[:-1]}': did you mean '{vhost}'?" in wrong.error) == (65, True)
    assert f"no vhost '{vhost[:-1]}'" in run("queues", "declare", "q", "--vhost", vhost[:-1]).error


def test_again_and_again(run: Command, vhost: str, serving: ApiThread, monkeypatch: pytest.MonkeyPatch) -> None:
    def pause(seconds: float) -> None:
        if serving.api().put(f"/api/queues/{vhost}/q1") != 201:
            raise KeyboardInterrupt

    monkeypatch.setattr("harebell.cli.listing.sleep", pause)
    shown = run("queues", "list", "--watch", "0.5", "--columns", "name", "--vhost", vhost)
    assert shown.status == 130
    assert [line.strip() for line in shown.output.splitlines() if line[:1] not in ("", "─")] == ["name", "name", "q1"]


@pytest.mark.parametrize(("user", "password", "says"), [
    ("guest", "wrong", "Login failed; is the password in --url, HAREBELL_HTTP_URL or HAREBELL_URL right?"),
    ("clerk", "clerk", "harebell users set-tags"),
])  # fmt: skip
def test_who_may_not(run: Command, serving: ApiThread, user: str, password: str, says: str) -> None:
    serving.add_user("clerk")
    refused = run("queues", "list", "--url", f"http://{user}:{password}@127.0.0.1:{serving.api_port}")
    assert (refused.status, says in refused.error, password in refused.error.replace(f"'{user}'", "")) == (
        77,
        True,
        False,
    )


def test_a_permission_that_is_missing(run: Command, serving: ApiThread, vhost: str) -> None:
    serving.add_user("reader", "management")
    assert (
        serving.api().put(f"/api/permissions/{part(vhost)}/reader", {"configure": "", "write": "", "read": ".*"}) == 201
    )
    url = f"http://reader:reader@127.0.0.1:{serving.api_port}"
    refused = run("queues", "declare", "q", "--vhost", vhost, "--url", url)
    assert (refused.status, "harebell permissions set" in refused.error) == (77, True)
