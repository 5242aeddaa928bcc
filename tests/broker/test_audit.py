"""The audit log at a node: its bounds, and the acts and refusals of AMQP 0-10."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harebell.broker.audit import Act, AuditLog, Origin
from harebell.protocol.v010 import Command, commands as c
from tests.broker.v010.kit import Kit


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path / "data")
    yield kit
    kit.stop()


COMMANDS: list[tuple[Command, tuple[str, str, str]]] = [
    (c.QueueDeclare("q"), ("queue", "q", "created")),
    (c.ExchangeDeclare("x", "topic"), ("exchange", "x", "created")),
    (c.ExchangeBind("q", "x", "k"), ("binding", "x -> q", "created")),
    (c.ExchangeUnbind("q", "x", "k"), ("binding", "x -> q", "deleted")),
    (c.QueuePurge("q"), ("queue", "q", "purged")),
    (c.ExchangeDelete("x"), ("exchange", "x", "deleted")),
    (c.QueueDelete("q"), ("queue", "q", "deleted")),
]


def test_an_act_over_amqp_0_10_is_one_record(kit: Kit) -> None:
    peer = kit.peer()
    client = peer.session(b"acts")
    audit = kit.node.events.audit
    for command, (kind, name, act) in COMMANDS:
        audit.acts.clear()
        client.call(command)
        kit.settle()
        (found,) = audit.acts
        assert (found.kind, found.name, found.act, found.outcome) == (kind, name, act, "done")
        assert (found.user, found.vhost, found.protocol) == ("guest", "/", "amqp 0-10")
        assert found.peer == peer.connection.peer
    assert kit.node.events.origin is None


@pytest.mark.parametrize(("command", "kind", "name"), [
    (c.QueueDelete("none"), "queue", "none"),
    (c.QueuePurge("none"), "queue", "none"),
    (c.ExchangeDelete("none"), "exchange", "none"),
    (c.ExchangeDelete("amq.direct"), "exchange", "amq.direct"),
    (c.ExchangeDeclare("x", "no-such-type"), "exchange", "x"),
    (c.ExchangeBind("none", "amq.topic", "k"), "binding", "amq.topic -> none"),
])  # fmt: skip
def test_a_refusal_over_amqp_0_10_is_one_record(kit: Kit, command: Command, kind: str, name: str) -> None:
    client = kit.peer().session(b"refused")
    audit = kit.node.events.audit
    audit.acts.clear()
    client.call(command)
    (found,) = audit.acts
    assert (found.kind, found.name, found.outcome, found.protocol) == (kind, name, "refused", "amqp 0-10")
    assert found.reason


def test_the_log_is_bounded_by_records_and_by_bytes() -> None:
    guest = Origin("guest", "127.0.0.1", "http")
    log = AuditLog()
    for number in range(100_000):
        log.add(number, guest, "/", "queue", f"q{number}", "created", details="{}")
    assert len(log.acts) == 10_000
    assert (log.acts[0].name, log.acts[-1].name) == ("q90000", "q99999")
    small = AuditLog(records=1000, bytes=50_000)
    for number in range(1000):
        small.add(number, guest, "/", "queue", "n" * 10_000, "created", details='"' + "x" * 10_000 + '"')
    assert 0 < len(small.acts) < 50
    assert small.size == sum(each.size for each in small.acts) <= 50_000
    assert isinstance(small.acts[0], Act)
    assert json.loads(small.acts[0].details) == {"characters": 10_002}
