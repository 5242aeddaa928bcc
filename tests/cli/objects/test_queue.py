"""`harebell queue`: peek marks nothing, and what changes a queue is a dry run first."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from harebell.admin.resources.moves import LONGEST_KEEP
from harebell.cli.objects.queue import MOST_KEPT
from harebell.client.blocking import connect
from tests.admin.kit import ApiThread
from tests.cli.administering import Command


def fill(serving: ApiThread, vhost: str, queue: str, count: int, **properties: Any) -> None:
    api = serving.api()
    api.put(f"/api/queues/{vhost}/{queue}", {"durable": True})
    for number in range(count):
        body = {
            "properties": {"headers": {"n": number}, **properties}, "routing_key": queue, "payload": f"m{number}",
            "payload_encoding": "string",
        }  # fmt: skip
        assert api("POST", f"/api/exchanges/{vhost}/amq.default/publish", body).status == 200


def contents(serving: ApiThread, vhost: str, queue: str) -> list[str]:
    items = serving.api().get(f"/api/queues/{vhost}/{queue}/browse")["items"]
    assert not any(each["redelivered"] for each in items)
    return [each["payload"] for each in items]


def test_peek(run: Command, serving: ApiThread, vhost: str) -> None:
    fill(serving, vhost, "q", 5)
    where = ("--vhost", vhost)
    assert [each["payload"] for each in run("queue", "peek", "q", "--json", *where).json] == [f"m{n}" for n in range(5)]
    some = run("queue", "peek", "q", "--json", "--filter", "n > 1", "--offset", "1", "--count", "2", *where).json
    assert [each["payload"] for each in some] == ["m2", "m3"]
    table = run("queue", "peek", "q", "--count", "1", *where).output
    assert "m0" in table
    assert "headers=n=0" in table
    assert contents(serving, vhost, "q") == [f"m{n}" for n in range(5)]
    refused = run("queue", "peek", "q", "--filter", "n >", *where)
    assert (refused.status, "filter: " in refused.error) == (1, True)
    assert "from 1 on" in run("queue", "peek", "q", "--count", "0", *where).error
    assert "from 0 on" in run("queue", "peek", "q", "--offset", "-1", *where).error


def test_peek_over_a_page(run: Command, serving: ApiThread, vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from harebell.cli.objects import queue

    monkeypatch.setattr(queue, "PAGE", 2)
    fill(serving, vhost, "q", 5)
    shown = run("queue", "peek", "q", "--json", "--count", "5", "--vhost", vhost).json
    assert [each["payload"] for each in shown] == [f"m{n}" for n in range(5)]


def test_move(run: Command, serving: ApiThread, vhost: str) -> None:
    fill(serving, vhost, "q", 5)
    where = ("--vhost", vhost)
    wrong = run("queue", "move", "q", "other", *where)
    assert (wrong.status, f"no queue 'other' in vhost '{vhost}'" in wrong.error) == (65, True)
    fill(serving, vhost, "other", 0)
    wanted = ("queue", "move", "q", "other", "--filter", "n > 1", "--count", "2", *where)
    assert run(*wanted).output == "dry run: 2 messages would move from 'q' to 'other'; --yes moves them\n"
    assert contents(serving, vhost, "q") == [f"m{n}" for n in range(5)]
    assert run(*wanted, "--yes").output == "2 messages moved from 'q' to 'other'\n"
    assert contents(serving, vhost, "q") == ["m0", "m1", "m4"]
    assert contents(serving, vhost, "other") == ["m2", "m3"]
    assert "both the source and the destination" in run("queue", "move", "q", "q", *where).error
    run("queues", "declare", "s", "--type", "stream", *where)
    assert "is a stream: its messages stay" in run("queue", "move", "s", "q", *where).error


def test_a_purge_that_is_undone(run: Command, serving: ApiThread, vhost: str) -> None:
    where = ("--vhost", vhost)
    fill(serving, vhost, "q", 3)
    dry = run("queue", "purge", "q", "--keep", "600", *where).output
    assert dry == "dry run: 3 messages of 'q' would be kept for 600 s; --yes purges\n"
    said, back = run("queue", "purge", "q", "--keep", "600", "--yes", *where).output.splitlines()
    assert said.startswith("3 messages of 'q' are kept for 600 s in 'amq.kept.")
    assert contents(serving, vhost, "q") == []
    command = shlex.split(back.removeprefix("to undo it: harebell "))
    assert command[-2:] == list(where)
    assert run(*command).output.startswith("3 messages moved")
    assert contents(serving, vhost, "q") == ["m0", "m1", "m2"]
    assert MOST_KEPT == LONGEST_KEEP
    for keep, says in ((-1, "at least 0"), (MOST_KEPT + 1, "at most 604800")):
        for yes in ((), ("--yes",)):
            assert says in run("queue", "purge", "q", "--keep", keep, *yes, *where).error


def test_purge(run: Command, serving: ApiThread, vhost: str) -> None:
    fill(serving, vhost, "q", 2)
    where = ("--vhost", vhost)
    assert (
        run("queue", "purge", "q", *where).output == "dry run: 2 messages would be dropped from 'q'; --yes drops them\n"
    )
    assert len(contents(serving, vhost, "q")) == 2
    assert run("queue", "purge", "q", "--yes", *where).output == f"queue 'q' in vhost '{vhost}' is purged\n"
    assert contents(serving, vhost, "q") == []


def test_redrive(run: Command, serving: ApiThread, vhost: str) -> None:
    where = ("--vhost", vhost)
    run("queues", "declare", "dead", *where)
    arguments = ("--argument", "x-dead-letter-exchange=", "--argument", "x-dead-letter-routing-key=dead")
    for name in ("q", "r"):
        run("queues", "declare", name, *arguments, *where)
        fill_existing(serving, vhost, name)
    assert run("queue", "redrive", "q", *where).output.endswith("stay: no dead letter\n")
    serving.api().put(f"/api/permissions/{vhost}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    with connect(f"amqp://guest:guest@127.0.0.1:{serving.port}/{vhost}") as connection:
        with connection.channel() as channel:
            for name in ("q", "r"):
                delivery = channel.get(name)
                assert delivery is not None
                delivery.reject(requeue=False)
    chosen = ("queue", "redrive", "dead", "--from", "q", "--reason", "rejected", *where)
    dry = run(*chosen).output
    assert dry == "1 message would go to 'q'\n1 message would stay: not chosen\ndry run: --yes moves them\n"
    assert len(contents(serving, vhost, "dead")) == 2
    assert run(*chosen, "--yes").output == "1 message went to 'q'\n1 message stay: not chosen\n"
    assert (contents(serving, vhost, "q"), len(contents(serving, vhost, "dead"))) == (["m"], 1)
    run("queue", "purge", "dead", "--yes", *where)
    assert "has no dead letters" in run("queue", "redrive", "dead", *where).output
    assert "at most" in run("queue", "redrive", "dead", "--count", "10001", *where).error


def fill_existing(serving: ApiThread, vhost: str, queue: str) -> None:
    body = {"properties": {}, "routing_key": queue, "payload": "m", "payload_encoding": "string"}
    assert serving.api()("POST", f"/api/exchanges/{vhost}/amq.default/publish", body).json == {"routed": True}
