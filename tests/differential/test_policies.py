"""Policies and operator policies on both brokers: which one is in force, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from harebell.routing.policies import ApplyTo, Policy
from harebell.testing.rabbitmq import RabbitMQ
from tests.differential.conftest import named
from tests.differential.delivery import drain
from tests.differential.driver import Peer, Step, Together, Until, delete_all, play_until_same, run
from tests.differential.scripts import (
    DEAD,
    QUORUM,
    SELECT,
    a,
    bind,
    consume,
    declare,
    exchange,
    fill,
    get,
    nack,
    passive,
    put,
    qos,
)
from tests.wire import BrokerThread, Wire


def policy(name: str, definition: dict[str, object], priority: int = 0, apply_to: ApplyTo = "all") -> Policy:
    """For what is named like the policy, up to its first underscore."""
    return Policy("/", name, f"^{name.split('_')[0]}$", definition, apply_to, priority)


POLICIES = (
    policy("low_1", {"max-length": 1}, 1),
    policy("low_2", {"max-length": 2}, 2),
    policy("low_3", {"max-length": 3}, -3),
    policy("short", {"max-length": 3, "max-length-bytes": 100, "message-ttl": 20, "expires": 600_000}),
    policy("letters", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead", "max-length": 1}),
    policy("full", {"overflow": "reject-publish", "max-length": 1}),
    policy("both", {"max-length": 5, "overflow": "drop-head"}),
    policy("limit", {"delivery-limit": 1}, 0, "queues"),
    policy("exchanges", {"max-length": 1}, 0, "exchanges"),
    policy("alternate", {"alternate-exchange": "amq.fanout"}, 0, "exchanges"),
)  # fmt: skip
OPERATORS = (
    policy("both", {"max-length": 2, "message-ttl": 600_000}),
    policy("alone", {"max-length": 1}),
    policy("letters", {"max-length": 3}),
)  # fmt: skip

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "the highest priority": (a(1, declare("low")), *fill(4, "low"), *drain(4, "low")),
    "the policy's time is shorter": (
        a(1, declare("short", arguments={"x-message-ttl": 600_000, "x-max-length": 5})), *fill(4, "short"),
        Until("short", 0), a(1, passive("short")),
    ),
    "the argument's number is smaller": (
        a(1, declare("short", arguments={"x-max-length": 1, "x-message-ttl": 600_000, **DEAD})), a(1, declare("dead")),
        Together(fill(2, "short")), Until("dead", 2), *drain(3, "dead"),
    ),
    "dead letters by policy": (
        a(1, declare("dead")), a(1, declare("letters")), *fill(2, "letters"), Until("dead", 1), a(1, get("dead")),
    ),
    "the argument's dead letters, not the policy's": (
        a(1, declare("dead")), a(1, declare("mine")),
        a(1, declare("letters", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "mine"})),
        *fill(2, "letters"), Until("mine", 1), a(1, passive("dead")),
    ),
    "overflow by policy": (SELECT, a(1, declare("full")), *fill(3, "full"), *drain(2, "full")),
    "the argument's overflow, not the policy's": (
        SELECT, a(1, declare("full", arguments={"x-overflow": "drop-head"})), *fill(3, "full"), *drain(2, "full"),
    ),
    "an operator's number is smaller": (a(1, declare("both")), *fill(4, "both"), *drain(4, "both")),
    "an operator's number is larger": (a(1, declare("letters")), *fill(4, "letters"), *drain(4, "letters")),
    "an operator's policy alone": (a(1, declare("alone")), *fill(3, "alone"), *drain(2, "alone")),
    "an argument below an operator's": (
        a(1, declare("both", arguments={"x-max-length": 1})), *fill(4, "both"), *drain(3, "both"),
    ),
    "a delivery limit": (
        a(1, declare("dead")), a(1, declare("limit", durable=True, arguments={**QUORUM, **DEAD})), put("1", "limit"),
        a(1, qos(1)), a(1, consume("limit")), a(1, nack(1)), a(1, nack(2)), Until("dead", 1), *drain(1, "dead"),
    ),
    "what is not for queues": (a(1, declare("exchanges")), *fill(3, "exchanges"), *drain(4, "exchanges")),
    "an alternate exchange": (
        a(1, exchange("alternate")), a(1, declare()), a(1, bind("", "amq.fanout")),
        put("1", "nobody", "alternate", mandatory=True), a(1, get()), a(1, get()),
    ),
    "what a policy says is no argument": (
        a(1, declare("letters")), a(1, declare("letters")), a(1, declare("letters", arguments={"x-max-length": 1})),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def ports(rabbitmq_server: RabbitMQ) -> Iterator[tuple[int, int]]:
    """Both brokers with the policies above."""
    with BrokerThread() as harebell:
        policies = harebell.broker.node.vhosts["/"].policies
        for each in POLICIES:
            harebell.run(partial(policies.set, each))
        for each in OPERATORS:
            harebell.run(partial(policies.set, each, operator=True))
        commands = [set_policy("set", each) for each in POLICIES] + [set_policy("set_op", each) for each in OPERATORS]
        rabbitmq_server.evaluate(", ".join(commands))
        yield harebell.port, rabbitmq_server.port
        commands = [f'rabbit_policy:delete(<<"/">>, <<"{each.name}">>, <<"u">>)' for each in POLICIES]
        commands += [f'rabbit_policy:delete_op(<<"/">>, <<"{each.name}">>, <<"u">>)' for each in OPERATORS]
        rabbitmq_server.evaluate(", ".join(commands))


def set_policy(function: str, each: Policy) -> str:
    """RabbitMQ's own function, which answers ok or fails the match."""
    definition = json.dumps(each.definition).replace('"', '\\"')
    said = ("/", each.name, each.pattern, definition, str(each.priority), each.apply_to, "u")
    words = (f'<<"{word}">>' for word in said)
    return f"ok = rabbit_policy:parse_{function}({', '.join(words)})"


@pytest.mark.parametrize("name", SCRIPTS)
def test_same_policy(ports: tuple[int, int], name: str) -> None:
    def clean() -> None:
        for port in ports:
            with Wire(port).log_in() as wire:
                delete_all(wire, *named(SCRIPTS[name]))

    def once() -> tuple[Peer, Peer]:
        clean()
        ours, theirs = map(Peer, ports)
        opened.callback(ours.close)
        opened.callback(theirs.close)
        run(SCRIPTS[name], ours, theirs)
        return ours, theirs

    with ExitStack() as last, ExitStack() as opened:
        last.callback(clean)
        ours, theirs = play_until_same(once)
        assert ours.trace == theirs.trace
