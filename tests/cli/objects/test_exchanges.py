"""`harebell exchanges` and `harebell bindings` against a broker's HTTP API."""

from __future__ import annotations

from tests.cli.administering import Command


def test_an_exchange_from_first_to_last(run: Command, vhost: str) -> None:
    where = ("--vhost", vhost)
    options = ("--type", "topic", "--internal", "--argument", "alternate-exchange=amq.fanout")
    assert run("exchanges", "declare", "events", *options, *where).status == 0
    shown = run("exchanges", "show", "events", "--json", *where).json
    assert (shown["type"], shown["internal"], shown["arguments"]) == (
        "topic",
        True,
        {"alternate-exchange": "amq.fanout"},
    )
    assert "inequivalent arg 'type'" in run("exchanges", "declare", "events", *where).error
    table = run("exchanges", "list", *where).output
    assert ("events" in table, "amq.topic" in table) == (True, True)
    assert run("exchanges", "show", "", "--json", *where).json["type"] == "direct"
    wrong = run("exchanges", "delete", "event", *where)
    assert (wrong.status, "did you mean 'events'?" in wrong.error) == (65, True)
    assert run("exchanges", "delete", "events", *where).status == 0
    assert "no exchange 'events'" in run("exchanges", "show", "events", *where).error


def test_an_exchange_in_use(run: Command, vhost: str) -> None:
    where = ("--vhost", vhost)
    for command in (("exchanges", "declare", "x"), ("queues", "declare", "q"), ("bindings", "declare", "x", "q", "k")):
        assert run(*command, *where).status == 0
    assert "in use" in run("exchanges", "delete", "x", "--if-unused", *where).error
    assert run("exchanges", "delete", "x", *where).status == 0


def test_bindings(run: Command, vhost: str) -> None:
    where = ("--vhost", vhost)
    run("queues", "declare", "q", *where)
    bound = ("amq.headers", "q", "k", "--argument", "x-match=any", "--argument", "n=1")
    assert run("bindings", "declare", *bound, *where).output == (
        f"'q' is bound to exchange 'amq.headers' with 'k' in vhost '{vhost}'\n"
    )
    assert run("bindings", "declare", "amq.topic", "amq.headers", "#", "--to-exchange", *where).status == 0
    rows = run("bindings", "list", "--json", *where).json
    assert [(row["source"], row["destination"], row["destination_type"]) for row in rows] == [
        ("", "q", "queue"), ("amq.headers", "q", "queue"), ("amq.topic", "amq.headers", "exchange"),
    ]  # fmt: skip
    (row,) = run("bindings", "list", "--json", "--source", "amq.headers", *where).json
    assert row["arguments"] == {"x-match": "any", "n": 1}
    assert len(run("bindings", "list", "--json", "--destination", "q", *where).json) == 2
    wrong = run("bindings", "delete", "amq.headers", "q", "k", *where)
    assert (wrong.status, "keys: 'k'" in wrong.error) == (65, True)
    assert run("bindings", "delete", *bound, *where).status == 0
    assert "keys: none" in run("bindings", "delete", *bound, *where).error
    assert run("bindings", "delete", "amq.topic", "amq.headers", "#", "--to-exchange", *where).status == 0
    assert "no queue 'p'" in run("bindings", "declare", "amq.topic", "p", *where).error
    assert "no exchange 'amq.topics'" in run("bindings", "declare", "amq.topics", "q", *where).error
    assert "write NAME=VALUE" in run("bindings", "declare", "amq.topic", "q", "--argument", "n", *where).error


def test_bindings_of_what_does_not_exist(run: Command, vhost: str) -> None:
    run("exchanges", "declare", "here", "--vhost", vhost)
    for where in ((), ("--vhost", vhost)):
        for option, noun in (("--source", "exchange"), ("--destination", "queue or exchange")):
            refused = run("bindings", "list", option, "nope", *where)
            assert (refused.status, refused.output) == (65, "")
            assert f"no {noun} 'nope'" in refused.error
            assert run("bindings", "list", option, "here", *where).status == 0
        assert run("bindings", "list", "--source", "", *where).status == 0


def test_a_name_that_is_given_twice(run: Command, vhost: str) -> None:
    twice = ("--argument", "x-a=1", "--argument", "x-a=2", "--vhost", vhost)
    for command in (("queues", "declare", "q"), ("exchanges", "declare", "e"), ("bindings", "declare", "a", "b")):
        assert "'x-a' is given twice" in run(*command, *twice).error
    types = ("--type", "stream", "--vhost", vhost, "--argument")
    assert "leave one out" in run("queues", "declare", "q", *types, "x-queue-type=quorum").error
    assert run("queues", "declare", "q", *types, "x-queue-type=stream").status == 0
