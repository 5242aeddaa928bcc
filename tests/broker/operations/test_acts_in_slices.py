"""Acts of administration over many objects: others have their turns meanwhile, and the result is that of one step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harebell.broker.operations.administration import administer
from harebell.errors import InvalidArgument
from harebell.protocol.v091 import Content, methods as m
from harebell.routing.definitions import VirtualHost, emit_definitions
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit

MANY = 40
REPLIES = "amq.rabbitmq.reply-to"
POLICY = {"vhost": "/", "name": "p"}
DEFINITION = {"max-length": 1, "alternate-exchange": "amq.fanout"}
SET = {"do": "set-policy", **POLICY, "pattern": "^q", "definition": DEFINITION}
OPERATOR = {"do": "set-policy", **POLICY, "pattern": "^q", "definition": {"max-length": 2}, "operator": True}


def definitions(vhost: str) -> dict[str, Any]:
    return {
        "vhosts": [{"name": vhost}],
        "users": [{"name": f"u{number}", "tags": []} for number in range(MANY)],
        "permissions": [
            {"vhost": vhost, "user": f"u{number}", "configure": "", "write": "", "read": ""} for number in range(MANY)
        ],
        "topic_permissions": [
            {"vhost": vhost, "user": f"u{number}", "exchange": "amq.topic", "write": "", "read": ""}
            for number in range(MANY)
        ],
        "policies": [{"vhost": vhost, "name": f"p{number}", "pattern": f"q{number}", "definition": {"expires": 1000}}
                     for number in range(MANY)],
        "queues": [{"vhost": vhost, "name": f"q{number}", "durable": True} for number in range(MANY)],
        "exchanges": [{"vhost": vhost, "name": f"x{number}", "type": "topic"} for number in range(MANY)],
        "bindings": [
            {"vhost": vhost, "source": f"x{number}", "destination": f"q{number}", "destination_type": "queue",
             "routing_key": "#"} for number in range(MANY)
        ],
    }  # fmt: skip


IMPORT = {"do": "import-definitions", "definitions": definitions("other")}
IMPORT_HERE = {"do": "import-definitions", "definitions": {**definitions("/"), "policies": []}}


class Act(NamedTuple):
    """What is asked of a service; `before` are earlier requests to administer."""

    request: dict[str, Any]
    before: tuple[dict[str, Any], ...] = ()
    service: str = "amq.administer"


ACTS = {
    "stats": Act({}, (IMPORT_HERE,), "amq.stats"),
    "routes": Act({}, (IMPORT_HERE,), "amq.routes"),
    "set a policy": Act(SET, (IMPORT_HERE,)),
    "replace a policy": Act(SET, (IMPORT_HERE, {**SET, "definition": {"max-length": 5}})),
    "clear a policy": Act({"do": "clear-policy", **POLICY}, (IMPORT_HERE, SET)),
    "set an operator policy": Act(OPERATOR, (IMPORT_HERE,)),
    "clear an operator policy": Act({"do": "clear-policy", **POLICY, "operator": True}, (IMPORT_HERE, OPERATOR)),
    "import": Act(IMPORT),
    "import into what exists": Act(IMPORT, (IMPORT,)),
    "delete a vhost": Act({"do": "delete-vhost", "name": "other"}, (IMPORT,)),
    "export": Act({"do": "export-definitions"}, (IMPORT,)),
    **{
        f"list {kind}": Act({"do": f"list-{kind}"}, (IMPORT,))
        for kind in ("users", "vhosts", "permissions", "topic-permissions", "policies")
    },
}


@pytest.fixture
def kits(tmp_path: Path) -> Iterator[Callable[[], NodeKit]]:
    made: list[NodeKit] = []

    def make() -> NodeKit:
        made.append(NodeKit(tmp_path / str(len(made))))
        return made[-1]

    yield make
    for kit in made:
        kit.stopwatch.step = 0.0
        kit.stop()


def prepared(kit: NodeKit, act: Act) -> Client:
    client = kit.client()
    for request in act.before:
        administer(kit.node, request)
    client.declare("mine")
    client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    return client


def ask(client: Client, act: Act) -> None:
    client.publish(act.service, json.dumps(act.request).encode(), "amq.system", reply_to=REPLIES)


def answered(client: Client) -> Any:
    """The answer, before its confirm."""
    events = [event for _, event in client.events]
    assert isinstance(events[0], Content)
    assert isinstance(events[1], m.BasicAck)
    client.events.clear()
    return json.loads(events[0].body)


def state(kit: NodeKit) -> object:
    settings = {
        (vhost.name, queue.name): repr(queue.settings)
        for vhost in kit.node.vhosts.values()
        for queue in vhost.queues.values()
    }
    alternates = {exchange.name: exchange.alternate for exchange in kit.node.vhosts["/"].router.exchanges}
    exported = administer(kit.node, {"do": "export-definitions"})
    kept = emit_definitions(kit.node.catalog.load().definitions)
    for each in (exported, kept):
        without_salt(each)
    return exported, kept, settings, alternates


def without_salt(answer: object) -> None:
    """Leave out the hash of the user guest, which no other broker has."""
    if isinstance(answer, dict) and "users" in answer:
        assert answer["users"][0].pop("password_hash")


@pytest.mark.repeats
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_an_act_in_slices(kits: Callable[[], NodeKit], act: Act) -> None:
    at_once, sliced = kits(), kits()
    client = prepared(at_once, act)
    ask(client, act)
    expected = answered(client)
    client, other = prepared(sliced, act), sliced.client()
    sliced.stopwatch.step = 1.0
    ask(client, act)
    for _ in range(MANY // 2):
        assert client.events == [], "it takes more slices"
        other.publish("mine", b"1")
        assert other.get("mine") is not None
        client.publish("mine", b"waits")
        sliced.calls.get_nowait()()
    assert other.count("mine") == 0, "what the client sends next waits"
    sliced.node.batch.slices.finish()
    client.receive()
    sliced.stopwatch.step = 0.0
    got = answered(client)
    if act.service == "amq.stats":
        comparable(expected)
        comparable(got)
    for answer in (got, expected):
        without_salt(answer)
    assert got == expected
    assert state(sliced) == state(at_once)


def comparable(stats: dict[str, Any]) -> None:
    """Leave out what the other client counts."""
    for name in ("connections", "message_stats", "node"):
        del stats[name]
    del stats["queues"]["mine"]
    for exchange in stats["exchanges"].values():
        del exchange["message_stats"]


def test_a_queue_that_is_declared_while_a_policy_comes_in_force(kit: NodeKit, client: Client) -> None:
    administer(kit.node, IMPORT_HERE)
    other, act = kit.client(), Act(SET)
    client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
    kit.stopwatch.step = 1.0
    ask(client, act)
    for number in range(1000):
        if kit.node.batch.slices.idle:
            break
        other.send(1, m.QueueDeclare(f"qnew{number}"))
        kit.calls.get_nowait()()
    assert kit.node.batch.slices.idle, "declarations do not hold it up for ever"
    queues = kit.node.vhosts["/"].queues
    assert len(queues) > 2 * MANY
    assert {queue.settings.max_length for name, queue in queues.items() if name.startswith("q")} == {1}


@pytest.mark.parametrize("late", [False, True], ids=["from the start", "meanwhile"])
@pytest.mark.parametrize("clear", [False, True], ids=["set", "cleared"])
def test_a_policy_that_one_queue_cannot_have_changes_nothing(
    kit: NodeKit, client: Client, *, late: bool, clear: bool
) -> None:
    """Message groups exclude delayed retry; what is in force above hides a policy until it goes."""
    administer(kit.node, IMPORT_HERE)
    retry = Policy("/", "retry", "^g", {"delayed-retry-type": "all", "delayed-retry-min": 5})
    policies, other = kit.node.vhosts["/"].policies, kit.client()
    if clear:
        policies.set(Policy("/", "above", "^g", {"max-length": 7}, priority=1))
        policies.set(retry)
    arguments = {"x-message-group": "h", "x-queue-type": "quorum"}
    if not late:
        other.call(m.QueueDeclare("g", durable=True, arguments=arguments), m.QueueDeclareOk)
    before = state(kit)
    client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
    kit.stopwatch.step = 1.0
    policy = {"do": "set-policy", "vhost": "/", "name": "retry", "pattern": "^g", "definition": dict(retry.definition)}
    ask(client, Act({"do": "clear-policy", "vhost": "/", "name": "above"} if clear else policy))
    if late:
        other.send(1, m.QueueDeclare("g", durable=True, arguments=arguments))
    kit.node.batch.slices.finish()
    client.receive()
    kit.stopwatch.step = 0.0
    ((_, answer),) = client.events
    assert isinstance(answer, Content)
    assert json.loads(answer.body)["error"] == "not_implemented"
    if late:
        other.call(m.QueueDelete("g"), m.QueueDeleteOk)
    assert state(kit) == before


def test_two_policies_at_a_time(kit: NodeKit, client: Client) -> None:
    administer(kit.node, IMPORT_HERE)
    other = kit.client()
    kit.stopwatch.step = 1.0
    for each, request in ((client, SET), (other, OPERATOR)):
        each.publish("amq.administer", json.dumps(request).encode(), "amq.system")
    kit.node.batch.slices.finish()
    policies = kit.node.vhosts["/"].policies
    assert (list(policies.policies), list(policies.operator_policies)) == (["p"], ["p"])
    assert {queue.settings.max_length for queue in kit.node.vhosts["/"].queues.values()} == {1}


def test_what_another_client_took_while_definitions_were_imported(kit: NodeKit, client: Client) -> None:
    other = kit.client()
    client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
    kit.stopwatch.step = 1.0
    ask(client, Act({"do": "import-definitions", "vhost": "/", "definitions": definitions("other")}))
    other.call(m.ExchangeDeclare(f"x{MANY - 1}", "fanout"), m.ExchangeDeclareOk)
    other.call(m.QueueDeclare(f"q{MANY - 2}", exclusive=True), m.QueueDeclareOk)
    kit.node.batch.slices.finish()
    client.receive()
    ((_, answer),) = client.events
    assert isinstance(answer, Content)
    remarks = json.loads(answer.body)
    assert [remark.partition(":")[0] for remark in remarks if "left out" in remark or "stays" in remark] == [
        f"exchange 'x{MANY - 1}' in vhost '/'", f"queue 'q{MANY - 2}' in vhost '/'"
    ]  # fmt: skip
    router = kit.node.vhosts["/"].router
    assert router.exchange(f"x{MANY - 1}").type == "fanout"
    assert router.exchange("x0").type == "topic"


def test_a_virtual_host_that_is_being_deleted(kit: NodeKit, client: Client) -> None:
    administer(kit.node, IMPORT)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    administer(kit.node, {"do": "set-permission", "vhost": "other", "user": "guest", **everything})
    other = kit.client(vhost="other")
    client.call(m.BasicConsume(REPLIES, "r", no_ack=True), m.BasicConsumeOk)
    kit.stopwatch.step = 1.0
    ask(client, Act({"do": "delete-vhost", "name": "other"}))
    while "other" in kit.node.vhosts:
        kit.calls.get_nowait()()
    with pytest.raises(InvalidArgument, match="is being deleted"):
        kit.node.add_vhost(VirtualHost("other"))
    kit.node.batch.slices.finish()
    assert [close.reply_code for close in other_closed(other)] == [320]
    assert not [queue for queue in kit.node.catalog.load().definitions.queues if queue.vhost == "other"]
    assert not kit.node.add_vhost(VirtualHost("other")).queues


def other_closed(client: Client) -> list[m.ConnectionClose]:
    client.receive()
    return client.take(m.ConnectionClose)
