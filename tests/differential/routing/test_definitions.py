"""Definitions through Harebell's records, between two real RabbitMQ nodes: the second exports what the first did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pika

from harebell.routing.definitions import emit_definitions, parse_definitions
from harebell.testing import RabbitMQ
from tests.fixtures.rabbitmq import Nodes
from tests.routing.test_definitions import unordered


def fill(server: RabbitMQ) -> None:
    """Something of everything. One `eval` in place of many commands, each of which takes seconds."""
    steps = [
        'rabbit_vhost:add(<<"v">>, <<"described">>, [tagged], <<"u">>)',
        'rabbit_auth_backend_internal:put_user(#{name => <<"app">>, password => <<"p">>, '
        'tags => <<"monitoring,management">>}, <<"u">>)',
        'rabbit_auth_backend_internal:set_permissions(<<"app">>, <<"v">>, <<"^a">>, <<".*">>, <<"">>, <<"u">>)',
        'rabbit_auth_backend_internal:set_topic_permissions(<<"app">>, <<"v">>, <<"amq.topic">>, <<"a">>, <<"b">>, '
        '<<"u">>)',
        'rabbit_policy:parse_set(<<"v">>, <<"p">>, <<"^q">>, <<"{\\"max-length\\":5,\\"overflow\\":'
        '\\"drop-head\\"}">>, <<"3">>, <<"queues">>, <<"u">>)',
        'rabbit_policy:parse_set_op(<<"v">>, <<"o">>, <<"">>, <<"{\\"expires\\":500000}">>, <<"1">>, <<"all">>, '
        '<<"u">>)',
        'rabbit_vhost_limit:parse_set(<<"v">>, <<"{\\"max-queues\\":50}">>, <<"u">>)',
        'rabbit_runtime_parameters:parse_set_global(<<"g">>, <<"{\\"a\\":{\\"b\\":1}}">>, <<"u">>)',
    ]
    server.evaluate(", ".join(steps))
    with pika.BlockingConnection(pika.URLParameters(server.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(
            "q",
            durable=True,
            arguments={
                "x-message-ttl": 5,
                "x-foo": "s",
                "x-bool": True,
                "x-list": [1, "a", ["b", 2], {"c": False}],
                "x-table": {"a": "b", "n": {"m": -1}},
                "x-big": 2**40,
            },
        )
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
        channel.exchange_declare("x", "topic", durable=True, arguments={"alternate-exchange": "amq.direct"})
        channel.exchange_bind("x", "amq.topic", "k", {"a": 1})
        channel.queue_bind("q", "x", "a.#")
        channel.queue_bind("q", "amq.headers", "", {"x-match": "any", "n": 1, "s": "1"})


def export(server: RabbitMQ, path: Path) -> dict[str, object]:
    server.ctl("export_definitions", str(path))
    document: dict[str, object] = json.loads(path.read_text())
    return document


def comparable(document: dict[str, object]) -> dict[str, object]:
    """In one order and one form: RabbitMQ writes an object as a list of pairs, or not, by how it was set."""
    definitions = parse_definitions(document)
    kept = [each for each in definitions.global_parameters if each.name == "g"]  # the others name the nodes
    vhosts = [
        replace(each, metadata={name: said for name, said in each.metadata.items() if name != "default_queue_type"})
        if each.metadata is not None
        else each
        for each in definitions.vhosts
    ]  # RabbitMQ 4 adds it there at an import, beside its own place
    return unordered(emit_definitions(replace(definitions, global_parameters=tuple(kept), vhosts=tuple(vhosts))))


def test_a_round_trip_between_two_nodes(version: str, rabbitmq_nodes: Nodes, tmp_path: Path) -> None:
    with rabbitmq_nodes.fresh(version) as first:
        fill(first)
        exported = export(first, tmp_path / "first.json")
    definitions = parse_definitions((tmp_path / "first.json").read_text())
    assert {queue.name for queue in definitions.queues} == {"q", "quorum"}
    assert definitions.operator_policies[0].definition == {"expires": 500000}
    assert [parameter.component for parameter in definitions.parameters] == ["vhost-limits"]
    assert {user.name for user in definitions.users} == {"app", "guest"}
    (tmp_path / "emitted.json").write_text(json.dumps(emit_definitions(definitions)))
    with rabbitmq_nodes.fresh(version) as second:
        second.ctl("import_definitions", str(tmp_path / "emitted.json"))
        again = export(second, tmp_path / "second.json")
    assert exported.keys() == again.keys()
    assert comparable(again) == comparable(exported)
