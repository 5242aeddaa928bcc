"""Delayed exchanges: what they hold back, take back, and let go."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from harebell import errors
from harebell.broker import Broker
from harebell.broker.exchanges.delayed import SLACK, Delays
from harebell.broker.message import Address, Message
from harebell.protocol.v091 import Content, FieldValue, Properties, encode_content, methods as m
from harebell.protocol.v091.fields import Table
from harebell.routing.exchanges.storing_exchanges import MAX_DELAY
from harebell.routing.steps import complete
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled


def delayed(client: Client, name: str = "x", kind: str = "fanout", **flags: bool) -> None:
    declare = m.ExchangeDeclare(name, "x-delayed-message", arguments={"x-delayed-type": kind}, **flags)
    client.call(declare, m.ExchangeDeclareOk)


def bound(client: Client) -> None:
    """A delayed exchange `x` with a queue `q` behind it."""
    delayed(client)
    client.declare()
    client.call(m.QueueBind("q", "x", ""), m.QueueBindOk)


def held(kit: NodeKit, exchange: str = "x") -> int:
    delays = kit.node.vhosts["/"].delays.get(exchange)
    return 0 if delays is None else len(delays)


def later(client: Client, body: bytes = b"1", delay: FieldValue = 100, **rest: Any) -> None:
    headers = {"x-delay": delay, **rest.pop("headers", {})}
    client.publish("", body, "x", headers=headers, **rest)


@pytest.mark.repeats
@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [
        (1, 1), (MAX_DELAY, MAX_DELAY), (MAX_DELAY + 1, 0), (2**63 - 1, 0), (0, 0), (-5, 0), ("250", 250),
        ("+7", 7), ("-7", 0), ("soon", 0), ("", 0), ("12 ", 0), (1.9, 1), (0.5, 0), (float("inf"), 0),
        (float("nan"), 0), (Decimal("2.5"), 2), (True, 0), (None, 0), (b"9", 0), ([5], 0), ({"a": 5}, 0),
        (datetime(2030, 1, 1, tzinfo=UTC), 0),
    ],
)  # fmt: skip
def test_what_is_a_delay(kit: NodeKit, delay: FieldValue, milliseconds: int) -> None:
    client = kit.client()
    bound(client)
    later(client, delay=delay)
    if milliseconds:
        assert (client.count(), held(kit)) == (0, 1)
        kit.pass_time(milliseconds - 1)
        assert client.count() == 0
        kit.pass_time(1)
    assert (client.count(), held(kit)) == (1, 0)


def test_revoking_by_header_or_message_id(kit: NodeKit) -> None:
    client = kit.client()
    bound(client)
    vhost = kit.node.vhosts["/"]
    later(client, b"1", message_id="m")
    later(client, b"2", message_id="m", headers={"x-delay-id": "h"})
    later(client, b"3", headers={"x-delay-id": 7}, message_id="m")
    later(client, b"4", message_id="m")
    later(client, b"5")
    assert complete(vhost.revoke_delayed("x", "h")) == 1
    assert complete(vhost.revoke_delayed("x", "h")) == 0
    assert held(kit) == 4
    assert complete(vhost.revoke_delayed("x", "m")) == 3
    kit.pass_time(100)
    got = client.get()
    assert got is not None
    assert got.body == b"5"
    assert (client.count(), held(kit)) == (0, 0)


def test_too_late(kit: NodeKit) -> None:
    client = kit.client()
    bound(client)
    later(client, message_id="m")
    kit.pass_time(100)
    assert complete(kit.node.vhosts["/"].revoke_delayed("x", "m")) == 0
    assert client.count() == 1


def test_revoking_from_any_client(kit: NodeKit) -> None:
    client = kit.client()
    bound(client)
    client.declare("answers")

    def ask(service: str, body: bytes) -> Any:
        client.publish(service, body, "amq.system", reply_to="answers")
        answer = client.get("answers")
        assert answer is not None
        return json.loads(answer.body)

    later(client, message_id="m")
    assert ask("amq.stats", b"")["exchanges"]["x"]["messages_delayed"] == 1
    assert ask("amq.revoke", b'{"exchange": "x", "id": "m"}') == {"revoked": 1}
    assert ask("amq.stats", b"")["exchanges"]["x"]["messages_delayed"] == 0
    assert ask("amq.revoke", b'{"exchange": "nope", "id": "m"}') == {
        "error": "not_found", "reason": "NOT_FOUND - no exchange 'nope' in vhost '/'"
    }  # fmt: skip
    assert ask("amq.revoke", b'{"exchange": "amq.topic", "id": "m"}') == {
        "error": "precondition_failed",
        "reason": "PRECONDITION_FAILED - exchange 'amq.topic' in vhost '/' delays no messages",
    }
    assert ask("amq.revoke", b'{"exchange": "x", "id": 1}')["error"] == "precondition_failed"


def test_an_exchange_that_delays_nothing(kit: NodeKit) -> None:
    with pytest.raises(errors.PreconditionFailed):
        complete(kit.node.vhosts["/"].revoke_delayed("", "m"))


def test_a_deleted_exchange_forgets_and_a_new_one_of_its_name_knows_nothing(kit: NodeKit) -> None:
    client = kit.client()
    bound(client)
    later(client, message_id="m")
    client.call(m.ExchangeDelete("x"), m.ExchangeDeleteOk)
    assert held(kit) == 0
    bound(client)
    assert complete(kit.node.vhosts["/"].revoke_delayed("x", "m")) == 0
    kit.pass_time(100)
    assert client.count() == 0


@pytest.mark.parametrize("last", [m.QueueUnbind("q", "x", ""), m.QueueDelete("q")])
def test_one_that_goes_with_its_last_binding_too(kit: NodeKit, last: m.Method) -> None:
    client = kit.client()
    delayed(client, auto_delete=True)
    client.declare()
    client.call(m.QueueBind("q", "x", ""), m.QueueBindOk)
    later(client)
    client.send(1, last)
    client.events.clear()
    bound(client)
    kit.pass_time(100)
    assert client.count() == 0


def test_a_transaction_that_commits_after_the_deletion(kit: NodeKit) -> None:
    client = kit.client()
    bound(client)
    client.call(m.TxSelect(), m.TxSelectOk)
    later(client)
    kit.client().call(m.ExchangeDelete("x"), m.ExchangeDeleteOk)
    client.call(m.TxCommit(), m.TxCommitOk)
    kit.pass_time(100)
    assert (client.count(), held(kit)) == (0, 0)


def test_mandatory_means_accepted(kit: NodeKit) -> None:
    """What is held back is not returned, neither now nor when it then finds no queue."""
    client = kit.client()
    delayed(client)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    properties = Properties(headers={"x-delay": 100})
    client.engine.send_content(1, m.BasicPublish("x", "", mandatory=True), properties, b"1")
    client.pump()
    kit.pass_time(100)
    assert [type(event) for _, event in client.events] == [m.BasicAck]
    assert held(kit) == 0


def test_a_dead_letter_that_was_delayed_keeps_its_history(kit: NodeKit) -> None:
    client = kit.client()
    delayed(client, kind="direct")
    client.declare(x_dead_letter_exchange="x")
    client.call(m.QueueBind("q", "x", "q"), m.QueueBindOk)
    client.publish("q", headers={"x-delay": 10})
    for tag in (1, 2):
        assert client.get(no_ack=False) is not None
        client.send(1, m.BasicReject(tag, requeue=False))
        if tag == 1:
            kit.pass_time(10)
    got = client.get()  # its x-delay is negative by now
    assert got is not None
    (death,) = cast("list[Table]", (got.decode_properties().headers or {})["x-death"])
    assert death["count"] == 2


def message(delay_id: str | None = None) -> Message:
    frames = encode_content(1, Properties(headers={}, message_id=delay_id), b"", 131_072)
    return Message(Address("x", ""), Content(1, b"", frames, 0))


def test_there_is_one_timer_and_room_is_given_back(kit: NodeKit) -> None:
    delays = Delays(kit.node.vhosts["/"], "x")
    timers = len(kit.node.timers)
    for number in range(3 * SLACK):
        delays.hold(message(f"{number // 10}"), 1000 - number % 7, ("",))
    assert len(kit.node.timers) <= timers + 7  # one, and those that it took the place of
    for number in range(3 * SLACK // 10):
        assert complete(delays.revoke(str(number))) == 10
    assert len(delays) == 3 * SLACK % 10
    assert len(delays._heap) <= 2 * len(delays) + SLACK
    assert len(list(delays.pending())) == len(delays)


@settings(max_examples=scaled(50))
@given(st.lists(st.tuples(st.integers(1, 50), st.sampled_from("abc"), st.sampled_from(["hold", "revoke", "wait"]))))
def test_against_a_model(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, str]]) -> None:
    """The model is a list of (due, number, id); what comes is compared with it, order and all."""
    kit = NodeKit(tmp_path_factory.mktemp("delays"), sync=False)
    try:
        client = kit.client()
        bound(client)
        model: list[tuple[int, int, str]] = []
        expected: list[int] = []
        for number, (value, delay_id, step) in enumerate(steps):
            if step == "hold":
                later(client, b"%d" % number, value, message_id=delay_id)
                model.append((kit.clock.now + value, number, delay_id))
            elif step == "revoke":
                revoked = complete(kit.node.vhosts["/"].revoke_delayed("x", delay_id))
                assert revoked == sum(each[2] == delay_id for each in model)
                model = [each for each in model if each[2] != delay_id]
            else:
                kit.pass_time(value)
                expected += [each[1] for each in sorted(model) if each[0] <= kit.clock.now]
                model = [each for each in model if each[0] > kit.clock.now]
            assert held(kit) == len(model)
        came = []
        while (got := client.get()) is not None:
            came.append(int(got.body))
        assert came == expected
    finally:
        kit.stop()


async def test_the_broker_has_it(tmp_path: Path) -> None:
    async with Broker(port=None, data=tmp_path) as broker:
        with pytest.raises(errors.NotFound, match="no exchange 'x' in vhost '/'"):
            broker.revoke_delayed("x", "m")
        vhost = broker.node.vhosts["/"]
        vhost.declare_exchange(
            "x", "x-delayed-message", passive=False, durable=True, auto_delete=False, internal=False,
            arguments={"x-delayed-type": "fanout"},
        )  # fmt: skip
        assert broker.revoke_delayed("x", "m") == 0


def test_messages_due_at_once_for_many_queues_are_routed_in_steps(kit: NodeKit, client: Client) -> None:
    arguments: Table = {"x-delayed-type": "fanout"}
    client.call(m.ExchangeDeclare("d", "x-delayed-message", arguments=arguments), m.ExchangeDeclareOk)
    names = [f"q{number}" for number in range(20)]
    for name in names:
        client.call(m.QueueDeclare(name), m.QueueDeclareOk)
        client.call(m.QueueBind(name, "d", ""), m.QueueBindOk)
    for body in (b"1", b"2", b"3"):
        client.publish("", body, "d", headers={"x-delay": 10})
    kit.stopwatch.step = 1.0
    kit.clock.now += 10
    kit.node.run_timers()
    turns, other = 0, kit.client()
    while not kit.node.batch.slices.idle:
        kit.node.batch.slices._turn()
        other.call(m.BasicQos(0, 1), m.BasicQosOk)
        turns += 1
        if turns == 2:
            client.call(m.QueueDelete("q19"), m.QueueDeleteOk)
    kit.stopwatch.step = 0.0
    assert turns > 6
    for name in names[:19]:
        assert [message.body for _ in range(3) if (message := client.get(name)) is not None] == [b"1", b"2", b"3"]
    client.publish("", b"4", "d", headers={"x-delay": 10})
    kit.pass_time(10)
    assert (message := client.get("q0")) is not None
    assert message.body == b"4"
