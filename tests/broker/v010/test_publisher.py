"""Transfers to the broker: routing, what no queue takes, what completes when, refusals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from harebell.broker.operations.firehose import set_tracing
from harebell.broker.v010 import publisher as module
from harebell.broker.v010.publisher import Publisher
from harebell.protocol.v010 import Engine, MessageProperties, commands as c, controls as k, encode_header, structs as s
from harebell.protocol.v010.domains import RejectCode
from harebell.protocol.v010.shapes import TEXT_ID
from harebell.protocol.v010.transfers import Transfers
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


# -- messages that come together, against the same ones by themselves -------------------------------------------------

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "durable": {"durable": True},
    "full, refuses": {"arguments": {"x-max-length": 4, "x-overflow": "reject-publish"}},
    "durable, full, refuses": {"durable": True, "arguments": {"x-max-length": 4, "x-overflow": "reject-publish"}},
    "full, drops": {"arguments": {"x-max-length": 4}},
    "full, dead-letters": {"arguments": {"x-max-length": 4, "x-dead-letter-exchange": "amq.fanout"}},
    "priorities": {"arguments": {"x-max-priority": 5}},
    "expiring": {"arguments": {"x-message-ttl": 60_000}},
    "numbered": {"arguments": {"x-sequence-header": "n"}},
    "stream": {"durable": True, "arguments": {"x-queue-type": "stream"}},
}  # fmt: skip
ROUTES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "default": ("", "q", {}),
    "persistent": ("", "q", {"delivery_mode": 2}),
    "its exchange named": ("", "q", {"exchange": "", "delivery_mode": 2}),
    "fanout": ("fanout", "", {}),
    "headers": ("headers", "", {}),
    "nowhere": ("", "nowhere", {}),
    "no exchange": ("missing", "q", {}),
    "ttl": ("", "q", {"ttl": 60_000}),
    "not exact": ("", "q", {"delivery_mode": 2, "resume_id": "r"}),
    "dated": ("", "q", {"timestamp": datetime.fromtimestamp(7, UTC)}),
    "each its id": ("", "q", {"delivery_mode": 2}),
    "correlated": ("fanout", "", {"delivery_mode": 2}),
    "no text": ("", "q", {"exchange": "", "delivery_mode": 2}),
    "two kinds": ("", "q", {"delivery_mode": 2}),
    "texts": ("", "q", {"delivery_mode": 2}),
    "texts and others": ("", "q", {"exchange": "", "delivery_mode": 2}),
    "texts elsewhere": ("", "q", {"delivery_mode": 2}),
}
ENTRY = b"\x17" + TEXT_ID.encode() + b"\x95\0\1"  # how a message-id of one letter begins
IDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "each its id": lambda number: {"message_id": UUID(int=number)},
    "correlated": lambda number: {"message_id": UUID(int=number), "correlation_id": b"%d" % (4 + number)},
    "no text": lambda number: {"correlation_id": b"\xff%d" % number if number % 3 else b"%d" % (number + 10)},
    "texts": lambda number: {"application_headers": {"h": "v", TEXT_ID: f"no. {number}"}},
    "texts and others": lambda number: {
        "correlation_id": b"%d" % number,
        "application_headers": {TEXT_ID: f"no. {number}"} | ({"z": 1} if number % 3 else {}),
    },
    "texts elsewhere": lambda number: {"application_headers": {"h": "v", "z": ENTRY + b"%d" % number}},
    "two kinds": lambda number: {"message_id": UUID(int=number), "content_type": "ab" if number % 3 else "cd"},
}
MODES: dict[str, Any] = {"accepted": EXPLICIT, "not accepted": NONE}
STATES: dict[str, Any] = {
    "as it is": lambda client, queue: None,
    "in a transaction": lambda client, queue: client.call(c.TxSelect()),
    "with a subscriber": lambda client, queue: client.subscribe(queue, acquire_mode=0),
    "traced": lambda client, queue: set_tracing(client.peer.kit.node, "/", True),
    "lasting": lambda client, queue: client.peer.control(0, k.SessionRequestTimeout(60)),
}


def came(kit: Kit, queue: str, route: str, mode: str, state: str, at: str) -> dict[str, Any]:
    """What becomes of some messages: what the client is told, and what is in the queues."""
    client = kit.peer().session(at.encode())
    for name in ("q", "r"):
        client.call(c.QueueDeclare(name + at, **(QUEUES[queue] if name == "q" else {})))
    for kind, arguments in (("fanout", None), ("headers", {"x-match": "all", "h": "v"})):
        client.call(c.ExchangeDeclare(kind + at, kind))
        for name in ("q", "r"):
            client.call(c.ExchangeBind(name + at, kind + at, "", arguments))
    STATES[state](client, f"q{at}")
    exchange, key, delivery = ROUTES[route]
    properties = s.DeliveryProperties(routing_key=key and key + at, **delivery)
    data, first = b"", client.state.sending.next
    for number in range(7):
        ids = IDS[route](number) if route in IDS else {}
        message = MessageProperties(**{"application_headers": {"h": "v"}} | ids)
        header = encode_header([properties, message])
        command = c.MessageTransfer(exchange and exchange + at, MODES[mode], sync=number > 4)
        body = b"%d" % number if number < 4 else b"no. %d" % number
        client.state.sending.send((command, header, body), 100)
        client.peer.engine.send_content(0, command, header, body)
        data += client.peer.engine.data_to_send()
    client.peer.connection.receive_data(data)
    kit.settle()
    client.report()
    told: dict[str, Any] = {
        "accepted": {number - first for number in client.accepted},
        "rejected": {number - first: code for number, code in client.rejected.items()},
        "complete": {number - first for number in client.complete if number >= first},
        "failed": client.exception and (client.exception.error_code, client.exception.command_id),
        "delivered": [content.body for _, content in client.taken()],
    }
    if state == "in a transaction" and client.exception is None:
        client.call(c.TxCommit())
    looker = kit.peer().session(b"looker" + at.encode())
    for name in ("q", "r"):
        looker.subscribe(name + at, name, acquire_mode=1)
        told[name] = [(content.body, content.header) for _, content in looker.taken()]
    for peer in (client.peer, looker.peer):
        peer.lose()
    told["ready"] = kit.node.vhosts["/"].queues[f"q{at}"].message_count
    told["published"] = kit.node.vhosts["/"].queues[f"q{at}"].counts.publish
    return told


FEW = ("plain", "durable", "durable, full, refuses", "stream")


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("queue", "state"),
    [(queue, state) for queue in QUEUES for state in STATES if state == "as it is" or queue in FEW],
)
def test_together_as_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str, state: str) -> None:
    found: list[list[dict[str, Any]]] = []
    runs: list[int] = []
    publish_run, grouped_events = Publisher.publish_run, Engine.grouped_events

    def singles(engine: Engine) -> list[Any]:
        found: list[Any] = []
        for channel, event in grouped_events(engine):
            found += [(channel, each) for each in (event.contents() if isinstance(event, Transfers) else (event,))]
        return found

    def counted(publisher: Publisher, number: int, known: Any, transfers: Any) -> None:
        runs.append(number)
        publish_run(publisher, number, known, transfers)

    monkeypatch.setattr(Publisher, "publish_run", counted)
    for together in (True, False):
        if not together:
            grouped = len(runs)
            monkeypatch.setattr(Engine, "grouped_events", singles)
            monkeypatch.setattr(Engine, "events", singles)
            monkeypatch.setattr(module, "shape_of", lambda frames: None)
        kit = Kit(tmp_path / str(together), sync=False)
        found.append([came(kit, queue, route, mode, state, f".{route}.{mode}") for route in ROUTES for mode in MODES])
        kit.sessions.close()
        kit.stop()
    assert found[0] == found[1]
    assert bool(grouped) is (state not in ("in a transaction", "traced"))
    assert len(runs) == grouped
    assert any(each["delivered"] or each["ready"] for each in found[0]), "nothing was published"
