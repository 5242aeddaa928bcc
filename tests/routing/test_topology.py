"""A definitions file's virtual host as a router: what is in force, what is left out, what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from harebell.errors import InvalidArgument
from harebell.routing import SYSTEM_EXCHANGE, parse_definitions
from harebell.routing.topology import exchange_types, topology

FILE: dict[str, Any] = {
    "vhosts": [{"name": "/", "default_queue_type": "quorum"}, {"name": "other"}],
    "exchanges": [
        {"vhost": "/", "name": "orders", "type": "topic"},
        {"vhost": "/", "name": "rest", "type": "fanout", "internal": True},
        {"vhost": "/", "name": "", "type": "direct"},
        {"vhost": "/", "name": "amq.topic", "type": "topic"},
        {"vhost": "/", "name": SYSTEM_EXCHANGE, "type": "system"},
        {"vhost": "/", "name": "amq.own", "type": "topic"},
        {"vhost": "/", "name": "chance", "type": "x-random"},
    ],
    "queues": [
        {"vhost": "/", "name": "eu"},
        {"vhost": "/", "name": "left", "arguments": {"x-queue-type": "classic", "x-max-length": 50}},
        {"vhost": "/", "name": "brief", "durable": False, "type": "classic"},
        {"vhost": "/", "name": "eu", "arguments": {"x-queue-type": "stream"}},
        {"vhost": "/", "name": "amq.gen-x"},
    ],
    "bindings": [
        {"vhost": "/", "source": "orders", "destination": "eu", "destination_type": "queue", "routing_key": "*.eu"},
        {"vhost": "/", "source": "rest", "destination": "left", "destination_type": "queue"},
        {"vhost": "/", "source": "rest", "destination": "gone", "destination_type": "queue"},
        {"vhost": "/", "source": "gone", "destination": "rest", "destination_type": "exchange"},
        {"vhost": "/", "source": "", "destination": "eu", "destination_type": "queue", "routing_key": "eu"},
        {"vhost": "/", "source": "orders", "destination": "chance", "destination_type": "exchange", "routing_key": "c"},
    ],
    "policies": [
        {"vhost": "/", "name": "ae", "pattern": "^orders", "apply-to": "exchanges",
         "definition": {"alternate-exchange": "rest"}},
        {"vhost": "/", "name": "short", "pattern": "left", "apply-to": "queues", "definition": {"max-length": 20}},
    ],
}  # fmt: skip


def test_what_a_broker_makes_of_the_file() -> None:
    made = topology(parse_definitions(FILE))
    assert made.vhost == "/"
    assert made.router.route("orders", "x.eu").queues == ("eu",)
    assert made.router.route("orders", "x.us").queues == ("left",)
    assert {name: queue.settings.queue_type for name, queue in made.queues.items()} == {
        "eu": "quorum", "left": "classic", "brief": "classic"
    }  # fmt: skip
    assert made.queues["left"].settings.max_length == 20
    assert not made.queues["brief"].durable
    assert made.remarks == (
        "exchange 'amq.own' in vhost '/': left out, the name is the server's",
        "queue 'eu' in vhost '/': twice in the file, the first one counts",
        "queue 'amq.gen-x' in vhost '/': left out, the name is the server's",
        "binding from exchange 'rest' to queue 'gone' in vhost '/': left out, one end of it is missing",
        "binding from exchange 'gone' to exchange 'rest' in vhost '/': left out, one end of it is missing",
    )


def test_it_routes_in_another_process() -> None:
    there = pickle.loads(pickle.dumps(topology(parse_definitions(FILE), types=exchange_types(last))))
    assert there.router.route("orders", "x.us").queues == ("left",)


def last(count: int) -> int:
    return count - 1


def test_chance_can_be_given() -> None:
    file = {
        "exchanges": [
            {"vhost": "/", "name": "x", "type": "x-random"},
            {"vhost": "/", "name": "d", "type": "x-delayed-message", "arguments": {"x-delayed-type": "x-random"}},
        ],
        "queues": [{"vhost": "/", "name": name} for name in ("a", "b")],
        "bindings": [
            {"vhost": "/", "source": source, "destination": queue, "destination_type": "queue"}
            for source in ("x", "d")
            for queue in ("a", "b")
        ],
    }
    router = topology(parse_definitions(file), types=exchange_types(last)).router
    assert {router.route(name, "").queues for name in ("x", "d") for _ in range(20)} == {("b",)}


@pytest.mark.parametrize(
    ("file", "vhost", "text"),
    [
        (FILE, "x", "the definitions have no vhost 'x'; there are: '/', 'other'"),
        ({}, "x", "the definitions have no vhost 'x'; there are: none"),
        (
            {"queues": [{"vhost": "a", "name": "q"}, {"vhost": "b", "name": "q"}]}, None,
            "the definitions have several vhosts, name one of them: 'a', 'b'",
        ),
        (
            {"exchanges": [{"vhost": "/", "name": "x", "type": "x-jms-topic"}]}, None,
            "exchange 'x' in vhost '/': unknown exchange type 'x-jms-topic'",
        ),
        (
            {"queues": [{"vhost": "/", "name": "q", "arguments": {"x-max-length": "5"}}]}, None,
            "invalid arg 'x-max-length' for queue 'q' in vhost '/': \"expected integer, got longstr\"",
        ),
        (
            {"bindings": [{"vhost": "/", "source": "amq.topic", "destination": "q", "destination_type": "topic"}]},
            None,
            "binding from exchange 'amq.topic' to topic 'q' in vhost '/': destination_type is 'queue' or 'exchange'",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(file: dict[str, Any], vhost: str | None, text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        topology(parse_definitions(file), vhost)
    assert str(refused.value) == text


def test_an_empty_vhost_is_one_too() -> None:
    assert topology(parse_definitions(FILE), "other").vhost == "other"
    assert topology(parse_definitions({})).vhost == "/"
    assert topology(parse_definitions({"vhosts": [{"name": "only"}]})).vhost == "only"


def test_a_pattern_that_a_broker_refuses() -> None:
    policy = {"vhost": "/", "name": "p", "pattern": "(a)\\1", "definition": {"max-length": 1}}
    text = r"policy 'p' in vhost '/': \\1 is not supported at character 3"
    with pytest.raises(InvalidArgument, match=text):
        topology(parse_definitions({"queues": [{"vhost": "/", "name": "q"}], "policies": [policy]}))
    elsewhere = {"policies": [{**policy, "vhost": "other"}], "queues": [{"vhost": "/", "name": "q"}]}
    assert topology(parse_definitions(elsewhere), "/").vhost == "/"
