"""Transfers to the broker: routing, what no queue takes, what completes when, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harebell.broker.operations.firehose import set_tracing
from harebell.protocol.v010 import MessageProperties, commands as c, structs as s
from harebell.protocol.v010.domains import RejectCode
from tests.broker.v010.kit import Client, Kit, add_user

EXPLICIT, NONE = 0, 1


def test_blank_destination(client: Client) -> None:
    """Rule blank-destination: it is the default exchange. Rule: the broker sets delivery-properties.exchange."""
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"m")
    client.subscribe("q")
    ((_, content),) = client.taken()
    assert content.delivery_properties.exchange == ""
    assert content.delivery_properties.routing_key == "q"


@pytest.mark.parametrize(
    ("accept_mode", "discard", "code"),
    [(EXPLICIT, False, RejectCode.UNROUTABLE), (EXPLICIT, True, None), (NONE, False, None), (None, False, None)],
)
def test_what_no_queue_takes(client: Client, accept_mode: int | None, discard: bool, code: int | None) -> None:
    number = client.publish("nowhere", accept_mode=accept_mode, discard_unroutable=discard)
    assert number in client.complete
    assert client.rejected.get(number) == code
    assert (number in client.accepted) is (accept_mode == EXPLICIT and code is None)


def test_double_failure(client: Client) -> None:
    """An alternate exchange is tried first, whatever the accept-mode."""
    client.call(c.ExchangeDeclare("alt", "fanout"))
    client.call(c.ExchangeDeclare("x", "direct", alternate_exchange="alt"))
    assert client.publish("k", b"m", "x", accept_mode=EXPLICIT) in client.rejected
    client.call(c.QueueDeclare("q"))
    client.call(c.ExchangeBind("q", "alt", ""))
    assert client.publish("k", b"m", "x", accept_mode=EXPLICIT) in client.accepted
    client.subscribe("q")
    assert client.bodies() == [b"m"]


def test_immediate(client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    number = client.publish("q", accept_mode=EXPLICIT, immediate=True)
    assert client.rejected[number] == RejectCode.IMMEDIATE
    client.subscribe("q")
    assert client.publish("q", b"m", accept_mode=EXPLICIT, immediate=True) in client.accepted
    assert client.bodies() == [b"m"]


def test_a_full_queue(client: Client) -> None:
    client.call(c.QueueDeclare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}))
    assert client.publish("q", accept_mode=EXPLICIT) in client.accepted
    number = client.publish("q", accept_mode=EXPLICIT)
    assert client.rejected[number] == RejectCode.UNSPECIFIED
    client.publish("q")
    assert client.exception is not None
    assert client.exception.error_code == 506


@pytest.mark.parametrize(
    ("exchange", "rest", "code"),
    [
        ("nowhere", {}, 404),
        ("amq.rabbitmq.trace", {}, 403),
        ("", {"message": MessageProperties(user_id=b"eve")}, 403),
        ("", {"message": MessageProperties(application_headers={"h": "x" * 70_000, "i": "x" * 60_000})}, 506),
    ],
)
def test_refusals(client: Client, exchange: str, rest: dict[str, Any], code: int) -> None:
    client.publish("q", exchange=exchange, **rest)
    assert client.exception is not None
    assert client.exception.error_code == code


def test_nonexistent_exchange_ends_the_session_alone(client: Client) -> None:
    other = client.peer.session(b"other", 1)
    client.publish("q", exchange="nowhere")
    assert client.exception is not None
    assert other.call(c.QueueDeclare("q")) in other.complete


def test_a_large_message_is_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path, sync=False, max_message_size=1000)
    client = kit.peer().session()
    client.publish("q", bytes(1001))
    assert client.exception is not None
    assert client.exception.error_code == 506
    kit.stop()


def test_malformed_headers_end_the_session(client: Client) -> None:
    two = [s.DeliveryProperties(routing_key="q"), s.DeliveryProperties(routing_key="q")]
    client.wait(client.send((c.MessageTransfer(sync=True), two, b"")))
    assert client.exception is not None
    assert client.exception.error_code == 503


def test_authentication(kit: Kit) -> None:
    """Rule authentication: the user-id is the user's own."""
    add_user(kit, "eve")
    client = kit.peer(user="eve").session()
    client.publish("q", message=MessageProperties(user_id=b"eve"))
    client.publish("q", message=MessageProperties(user_id=b"eve"))
    assert client.exception is None


@pytest.mark.parametrize("kind", ["topic", "headers", "fanout", "x-consistent-hash", "x-recent-history"])
def test_exchanges_of_every_type(client: Client, kind: str) -> None:
    client.call(c.ExchangeDeclare("x", kind))
    client.call(c.QueueDeclare("q"))
    key, arguments = ("1", None) if kind == "x-consistent-hash" else ("a.#", {"x-match": "all", "n": "v"})
    client.call(c.ExchangeBind("q", "x", key, arguments))
    assert client.exception is None
    for _ in range(2):
        client.publish("a.b", b"m", "x", message=MessageProperties(application_headers={"n": "v"}))
    client.publish("a.b", b"other", "x", message=MessageProperties(application_headers={"n": "w"}))
    client.subscribe("q")
    assert client.bodies() == [b"m", b"m"] + [b"other"] * (kind != "headers")


def test_routes_follow_the_topology(client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    client.call(c.ExchangeBind("q", "amq.direct", "k"))
    client.publish("k", b"1", "amq.direct")
    client.call(c.ExchangeUnbind("q", "amq.direct", "k"))
    assert client.publish("k", b"2", "amq.direct", accept_mode=EXPLICIT) in client.rejected
    client.subscribe("q")
    assert client.bodies() == [b"1"]


def test_many_queues_and_many_targets(client: Client) -> None:
    for number in range(150):
        client.call(c.QueueDeclare(f"q{number}"))
        client.call(c.ExchangeBind(f"q{number}", "amq.fanout", ""))
    assert client.publish("", b"m", "amq.fanout", accept_mode=EXPLICIT) in client.accepted
    for number in (0, 77, 149):
        client.subscribe(f"q{number}", f"t{number}")
    assert client.bodies() == [b"m"] * 3


def test_services_answer(client: Client) -> None:
    client.call(c.QueueDeclare("answers", exclusive=True))
    client.subscribe("answers")
    reply_to = s.ReplyTo("", "answers")
    message = MessageProperties(reply_to=reply_to, correlation_id=b"7")
    client.publish("amq.ping", b"hello", "amq.system", message=message)
    ((_, content),) = client.taken()
    assert content.body == b"hello"
    assert content.message_properties.correlation_id == b"7"


def test_leases(client: Client) -> None:
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"m")
    client.subscribe("q")
    ((number, _),) = client.taken()
    lease = {"delivery_tag": number, "timeout": 500_000}
    client.publish("amq.lease", b"", "amq.system", message=MessageProperties(application_headers=lease))
    assert client.exception is None
    client.publish(
        "amq.lease", b"", "amq.system", message=MessageProperties(application_headers=lease | {"delivery_tag": 99})
    )
    assert client.exception is not None
    assert client.exception.error_code == 406


def test_durable_transfers_complete_when_they_are_on_disk(tmp_path: Path) -> None:
    """Rule durability, of session.confirmed: the completion waits for the sync, as a confirm of 0-9-1."""
    kit = Kit(tmp_path, sync=True)
    client = kit.peer().session()
    client.call(c.QueueDeclare("q", durable=True))
    number = client.publish("q", b"m", accept_mode=EXPLICIT, delivery_mode=2, sync=False)
    later = client.send(c.ExecutionSync(sync=True))
    assert not {number, later} & client.complete
    assert client.accepted == set()
    client.wait(later)
    assert {number, later} <= client.complete
    assert client.accepted == {number}
    kit.stop()


def test_an_alarm_holds_transfers_back(client: Client, kit: Kit) -> None:
    client.call(c.QueueDeclare("q"))
    kit.node.raise_alarm("memory")
    number = client.publish("q", b"m", sync=False)
    other = client.peer.session(b"other", 1)
    assert other.call(c.QueueDeclare("r")) in other.complete
    assert client.peer.connection.state == "blocked"
    kit.node.clear_alarm("memory")
    client.wait(client.send(c.ExecutionSync()))
    assert number in client.complete


def test_the_firehose_sees_messages(client: Client, kit: Kit) -> None:
    set_tracing(kit.node, "/", True)
    client.call(c.QueueDeclare("traced"))
    client.call(c.QueueDeclare("q"))
    client.call(c.ExchangeBind("traced", "amq.rabbitmq.trace", "#"))
    client.publish("q", b"m")
    client.subscribe("q")
    client.bodies()
    client.subscribe("traced", "u")
    keys = {content.delivery_properties.routing_key for _, content in client.taken()}
    assert {"publish.", "deliver.q"} <= keys
