"""The system exchange: a question to a service is answered to reply_to."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harebell.broker.auth.users import make_user
from harebell.broker.operations.system_services import SERVICES
from harebell.protocol.v091 import Content, Properties, methods as m
from harebell.routing.definitions import Permission
from tests.broker.kit import Client, NodeKit
from tests.broker.operations.test_mutated_definitions import JUNK, as_text


def ask(client: Client, service: str, body: bytes = b"") -> Content:
    client.declare("answers")
    client.publish(service, body, "amq.system", reply_to="answers", correlation_id="7")
    answer = client.get("answers")
    assert answer is not None
    assert answer.decode_properties().correlation_id == "7"
    return answer


def test_ping(client: Client) -> None:
    assert ask(client, "amq.ping", b"hello").body == b"hello"


def test_stats(client: Client) -> None:
    client.declare()
    client.publish("q")
    stats = json.loads(ask(client, "amq.stats").body)
    queue = stats["queues"]["q"]
    assert (queue["type"], queue["messages"], queue["consumers"]) == ("classic", 1, 0)
    assert (queue["messages_delayed"], queue["messages_dlx"]) == (0, 0)
    assert queue["message_stats"]["publish"] == 1
    assert (stats["vhost"], stats["connections"]) == ("/", 1)


def test_routes(client: Client) -> None:
    client.declare()
    client.call(m.QueueBind("q", "amq.topic", "a.#"), m.QueueBindOk)
    routes = json.loads(ask(client, "amq.routes").body)
    assert routes["exchanges"]["amq.topic"] == "topic"
    assert {"source": "amq.topic", "destination": "q", "destination_type": "queue", "routing_key": "a.#",
            "arguments": {}} in routes["bindings"]  # fmt: skip


def test_a_queue(client: Client) -> None:
    client.declare()
    client.publish("q")
    body = json.dumps({"queue": "q"}).encode()
    assert json.loads(ask(client, "amq.queue", body).body) == {
        "queue": "q", "type": "classic", "messages_ready": 1, "consumers": 0
    }  # fmt: skip
    assert json.loads(ask(client, "amq.queue", b'{"queue": "none"}').body)["error"] == "not_found"


def test_without_reply_to_nothing_is_said(client: Client) -> None:
    client.publish("amq.ping", b"1", "amq.system")
    assert client.events == []


def test_a_direct_reply(client: Client) -> None:
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.publish("amq.ping", b"1", "amq.system", reply_to="amq.rabbitmq.reply-to")
    assert [body for *_, body in client.deliveries()] == [b"1"]


def test_an_unknown_service_is_nobody(client: Client) -> None:
    client.engine.send_content(1, m.BasicPublish("amq.system", "nope", mandatory=True), Properties(reply_to="q"), b"")
    client.pump()
    assert [each.reply_code for each in client.take(m.BasicReturn)] == [312]


def test_a_direct_reply_with_a_copy(client: Client) -> None:
    client.declare("copy")
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.declare("requests")
    client.publish("requests", b"?", reply_to="amq.rabbitmq.reply-to")
    request = client.get("requests")
    assert request is not None
    client.publish(request.decode_properties().reply_to or "", b"!", headers={"CC": ["copy"]})
    assert [body for *_, body in client.deliveries()] == [b"!"]
    copy = client.get("copy")
    assert copy is not None
    assert copy.body == b"!"


# -- in the name of the user that asks; the permissions of each service are in tests/broker/auth/test_acts.py


@pytest.fixture
def reader(kit: NodeKit, client: Client) -> Client:
    """A client of a user who may read mine, x and the default exchange, beside other queues and exchanges."""
    for name in ("mine", "theirs"):
        client.declare(name)
    for name in ("x", "y"):
        client.call(m.ExchangeDeclare(name, "direct"), m.ExchangeDeclareOk)
        for queue in ("mine", "theirs"):
            client.call(m.QueueBind(queue, name, "k"), m.QueueBindOk)
    client.call(m.ExchangeBind("y", "x", "k"), m.ExchangeBindOk)
    kit.node.users.put(make_user("u", "u", (), "rabbit_password_hashing_sha256"))
    kit.node.users.set_permission(Permission("/", "u", "", "^amq\\.system$", "^(mine|x|amq\\.default)$"))
    return kit.client(user="u")


def answered(client: Client, service: str) -> dict[str, object]:
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.publish(service, b"", "amq.system", reply_to="amq.rabbitmq.reply-to")
    (body,) = [body for *_, body in client.deliveries()]
    told: dict[str, object] = json.loads(body)
    return told


def test_stats_have_what_the_user_may_read(reader: Client, client: Client) -> None:
    told = answered(reader, "amq.stats")
    assert told["queues"].keys() == {"mine"}  # type: ignore[attr-defined]
    assert told["exchanges"].keys() == {"", "x"}  # type: ignore[attr-defined]
    assert not {"connections", "message_stats"} & told.keys(), "totals would tell of what is left out"
    everything = answered(client, "amq.stats")
    assert {"connections", "message_stats"} <= everything.keys()
    assert everything["queues"].keys() == {"mine", "theirs"}  # type: ignore[attr-defined]


def test_routes_have_what_the_user_may_read(reader: Client, client: Client) -> None:
    told = answered(reader, "amq.routes")
    assert told["exchanges"] == {"": "direct", "x": "direct"}
    ends = [(each["source"], each["destination"]) for each in told["bindings"]]  # type: ignore[attr-defined]
    assert ends == [("", "mine"), ("x", "mine")]
    everything = answered(client, "amq.routes")
    assert len(everything["bindings"]) == 2 + 4 + 1  # type: ignore[arg-type]


def test_a_refused_request_does_not_split_a_transaction(reader: Client, client: Client, kit: NodeKit) -> None:
    kit.node.users.set_permission(Permission("/", "u", "", "^amq\\.(system|default)$", ".*"))
    client.publish("mine", b"old")
    reader.send(1, m.BasicGet("mine"))
    reader.events.clear()
    reader.call(m.TxSelect(), m.TxSelectOk)
    reader.publish("theirs", b"1")
    reader.publish("amq.change-queue", b'{"queue": "mine", "arguments": {}}', "amq.system")
    reader.publish("theirs", b"2")
    reader.send(1, m.BasicAck(0, multiple=True))
    reader.send(1, m.TxCommit())
    assert [close.reply_code for close in reader.take(m.ChannelClose)] == [403]
    assert (client.count("theirs"), client.count("mine")) == (2, 0)


def test_a_direct_reply_of_another_connection_is_a_publication(reader: Client, client: Client) -> None:
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    client.publish("mine", reply_to="amq.rabbitmq.reply-to")
    request = reader.get("mine")
    assert request is not None
    reader.publish("amq.ping", b"forged", "amq.system", reply_to=request.decode_properties().reply_to)
    assert [close.reply_code for close in reader.take(m.ChannelClose)] == [403]
    client.receive()
    assert client.deliveries() == []


# -- requests of any content

BODIES: dict[str, tuple[dict[str, object], ...]] = {
    "amq.change-queue": ({"queue": "mine", "arguments": {"x-max-length": 5}},),
    "amq.revoke": ({"exchange": "x", "id": "m"},),
    "amq.administer": (
        {"do": "set-policy", "vhost": "/", "name": "p", "pattern": "q", "definition": {"max-length": 1}, "priority": 1},
        {"do": "set-permission", "vhost": "/", "user": "u", "configure": "", "write": "", "read": ""},
        {"do": "add-vhost", "name": "v", "description": "d", "tags": ["a"], "default_queue_type": "classic"},
        {"do": "set-vhost-limits", "name": "/", "limits": {"max-queues": 100}},
        {"do": "add-user", "name": "n", "password_hash": "", "hashing_algorithm": "scrypt", "tags": ["a"]},
        {"do": "set-user-limits", "name": "u", "limits": {"max-channels": 100}},
    ),
    "amq.queue": ({"queue": "mine"},),
    "amq.ping": ({},),
    "amq.stats": ({},),
    "amq.routes": ({},),
    "amq.lease": ({},),
}


def spoilt(body: dict[str, object]) -> Iterator[object]:
    """The body with each of its parts as anything."""
    yield from JUNK
    for name, value in body.items():
        if name != "do":
            for junk in JUNK:
                yield {**body, name: junk}
                if isinstance(value, dict):
                    yield {**body, name: dict.fromkeys(value, junk)}


@pytest.mark.parametrize("service, body", [(service, body) for service, bodies in BODIES.items() for body in bodies])
def test_any_request_is_answered(reader: Client, client: Client, service: str, body: dict[str, object]) -> None:
    assert set(BODIES) == set(SERVICES)
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "r", no_ack=True), m.BasicConsumeOk)
    for each in spoilt(body):
        text = as_text(each)
        if text is None or '"user": "guest"' in text:  # which would take the permissions of the one that asks
            continue
        client.publish(service, text.encode(), "amq.system", reply_to="amq.rabbitmq.reply-to")
        answers = [answer for *_, answer in client.deliveries()]
        assert len(answers) == 1, (text[:200], client.events)
        assert answers[0] == text.encode() or b"\n" not in answers[0]
    client.count("mine")
