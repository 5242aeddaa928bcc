"""Policies in force: what they change in queues and exchanges that exist, and in those to come."""

from __future__ import annotations

import pytest

from harebell import errors
from harebell.broker import Broker
from harebell.broker.operations.definitions import importing
from harebell.broker.rules.policies import Policies
from harebell.errors import NotFound
from harebell.protocol.v091 import Table, methods as m
from harebell.routing.definitions import VirtualHost, parsing_definitions
from harebell.routing.policies import Policy
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit


@pytest.fixture
def policies(kit: NodeKit) -> Policies:
    return kit.node.vhosts["/"].policies


def declare(client: Client, name: str, arguments: Table | None = None) -> m.QueueDeclareOk:
    return client.call(m.QueueDeclare(name, arguments=arguments), m.QueueDeclareOk)


def depth(client: Client, name: str) -> int:
    return client.call(m.QueueDeclare(name, passive=True), m.QueueDeclareOk).message_count


def test_a_limit_takes_hold_of_what_is_there_and_of_what_comes(client: Client, policies: Policies) -> None:
    declare(client, "q1")
    declare(client, "other")
    for name in ("q1", "other"):
        for _ in range(5):
            client.publish(name)
    policies.set(Policy("/", "short", "^q", {"max-length": 2}))
    assert (depth(client, "q1"), depth(client, "other")) == (2, 5)
    client.publish("q1")
    assert depth(client, "q1") == 2
    declare(client, "q2")
    for _ in range(5):
        client.publish("q2")
    assert depth(client, "q2") == 2


def test_a_limit_that_goes_lets_the_queue_grow(client: Client, policies: Policies) -> None:
    declare(client, "q")
    policies.set(Policy("/", "short", ".*", {"max-length": 1}))
    assert policies.clear("short")
    assert not policies.clear("short")
    for _ in range(3):
        client.publish("q")
    assert depth(client, "q") == 3


def test_the_smaller_number_wins_and_the_arguments_dead_letter_exchange(client: Client, policies: Policies) -> None:
    declare(client, "q", {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "mine"})
    declare(client, "mine")
    declare(client, "theirs")
    policies.set(
        Policy("/", "p", "^q$", {"max-length": 3, "dead-letter-exchange": "", "dead-letter-routing-key": "theirs"})
    )
    client.publish("q")
    client.publish("q")
    assert [depth(client, name) for name in ("q", "mine", "theirs")] == [1, 1, 0]


def test_an_operator_policy_narrows(client: Client, policies: Policies) -> None:
    declare(client, "q")
    policies.set(Policy("/", "p", ".*", {"max-length": 10}))
    policies.set(Policy("/", "op", ".*", {"max-length": 2}), operator=True)
    for _ in range(4):
        client.publish("q")
    assert depth(client, "q") == 2
    assert policies.effective("q", "classic", {})["max-length"] == (2, "operator")


def test_the_highest_priority_applies(client: Client, policies: Policies) -> None:
    policies.set(Policy("/", "low", ".*", {"max-length": 5}, "all", 1))
    policies.set(Policy("/", "high", ".*", {"max-length": 1}, "all", 2))
    declare(client, "q")
    for _ in range(3):
        client.publish("q")
    assert depth(client, "q") == 1


def test_an_alternate_exchange_by_policy(client: Client, policies: Policies) -> None:
    client.call(m.ExchangeDeclare("x", "direct"), m.ExchangeDeclareOk)
    client.call(m.ExchangeDeclare("rest", "fanout"), m.ExchangeDeclareOk)
    declare(client, "q")
    client.call(m.QueueBind("q", "rest", ""), m.QueueBindOk)
    client.publish("nobody", exchange="x")
    policies.set(Policy("/", "ae", "^x", {"alternate-exchange": "rest"}, "exchanges"))
    client.publish("nobody", exchange="x")
    client.call(m.ExchangeDeclare("x2", "direct"), m.ExchangeDeclareOk)
    client.publish("nobody", exchange="x2")
    assert depth(client, "q") == 2
    policies.clear("ae")
    client.publish("nobody", exchange="x")
    assert depth(client, "q") == 2


def test_what_is_not_done_is_refused_and_changes_nothing(client: Client, policies: Policies) -> None:
    client.call(m.QueueDeclare("g", durable=True, arguments={"x-message-group": "who"}), m.QueueDeclareOk)
    with pytest.raises(errors.NotImplemented):
        policies.set(Policy("/", "p", ".*", {"delayed-retry-type": "all", "delayed-retry-min": 10}))
    assert not policies.policies


def test_what_is_no_policy_is_refused(policies: Policies) -> None:
    with pytest.raises(errors.InvalidArgument, match="not recognised policy settings"):
        policies.set(Policy("/", "p", ".*", {"no-such-key": 1}))


async def test_through_the_broker() -> None:
    async with Broker() as broker:
        broker.set_policy("p", "^q", {"max-length": 1})
        assert broker.clear_policy("p")
        with pytest.raises(errors.NotFound):
            broker.set_policy("p", "^q", {"max-length": 1}, vhost="nowhere")


def test_a_server_named_queue_has_its_name_before_policies_look(client: Client, policies: Policies) -> None:
    policies.set(Policy("/", "p", r"^amq\.gen-", {"max-length": 1}))
    name = declare(client, "").queue
    for _ in range(3):
        client.publish(name)
    assert depth(client, name) == 1


def test_a_policy_that_comes_while_its_virtual_host_is_deleted_is_refused(kit: NodeKit) -> None:
    kit.node.add_vhost(VirtualHost("v"))
    vhost = kit.node.vhosts["v"]
    for number in range(3):
        vhost.declare_queue(None, f"q{number}", durable=True, exclusive=False, auto_delete=False, arguments={})
    change = vhost.policies.setting(Policy("v", "p", ".*", {"max-length": 1}))
    next(change)
    complete(kit.node.deleting_vhost("v"))
    with pytest.raises(NotFound):
        complete(change)
    kit.node.add_vhost(VirtualHost("v"))
    assert not kit.node.vhosts["v"].policies.policies
    assert not [each for each in kit.node.catalog.load().definitions.policies if each.vhost == "v"]


def test_an_import_gives_nobody_rights_in_a_virtual_host_that_was_deleted_meanwhile(kit: NodeKit) -> None:
    rights = {"user": "guest", "vhost": "w", "configure": ".*", "write": ".*", "read": ".*"}
    on_topics = {"user": "guest", "vhost": "w", "exchange": "", "write": ".*", "read": ".*"}
    file = {"vhosts": [{"name": "w"}], "permissions": [rights], "topic_permissions": [on_topics]}
    work = importing(kit.node, complete(parsing_definitions(file)))
    while "w" not in kit.node.vhosts:
        next(work)
    complete(kit.node.deleting_vhost("w"))
    remarks = complete(work)
    assert len(remarks) == 3  # the policies' too
    assert not [key for key in (*kit.node.users.permissions, *kit.node.users.topic_permissions) if key[0] == "w"]
