"""Dead letters: what they carry on, and at-least-once: they stay with their queue until they are safe elsewhere."""

from __future__ import annotations

import time
from typing import Any

import pytest

from harebell.broker.queues.dead_letters import RETRY_MS
from harebell.protocol.v091 import methods as m
from harebell.routing.dead_letter import deaths
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit

SAFE = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}


def dying(client: Client, key: str = "dead", **arguments: Any) -> None:
    client.declare(**{**SAFE, "x_dead_letter_exchange": "", "x_dead_letter_routing_key": key, **arguments})


def kept(kit: NodeKit, queue: str = "q") -> int:
    return kit.node.vhosts["/"].queues[queue].dead_letter_count


def die(client: Client, body: bytes = b"1", **properties: Any) -> None:
    """A message is published to `q` and rejected."""
    client.publish("q", body, **properties)
    client.send(1, m.BasicGet("q"))
    _, event = client.events.pop()
    got = event.decode_method()  # type: ignore[attr-defined]
    client.send(1, m.BasicReject(got.delivery_tag, requeue=False))


def letters(client: Client, queue: str = "dead") -> list[dict[str, Any]]:
    found = []
    while (letter := client.get(queue)) is not None:
        found.append(dict(letter.decode_properties().headers or {}))
    return found


@pytest.mark.parametrize("key", [None, "dead"])
def test_letters_worked_out_once_are_those_worked_out_each(
    kit: NodeKit, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    now = 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    client = kit.client()
    client.declare("dead")
    client.call(m.ExchangeDeclare("x", "fanout"), m.ExchangeDeclareOk)
    client.call(m.QueueBind("dead", "x", ""), m.QueueBindOk)
    route = {} if key is None else {"x_dead_letter_routing_key": key}
    client.declare(x_dead_letter_exchange="x", **route)
    die(client, content_type="text/plain")
    die(client, headers={"a": 1})
    die(client, headers={"a": "CC is only a word here"})  # each on its own: it might be a CC header
    now += 1
    die(client)
    once, again, apart, later = letters(client)
    assert again.pop("a") == 1
    del apart["a"]
    assert once == again == apart
    assert once["x-death"][0]["time"].timestamp() == 1_700_000_000
    assert later["x-death"][0]["time"].timestamp() == 1_700_000_001


def test_a_letter_worked_out_once_is_forgotten_with_what_it_depends_on(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("dead")
    client.declare("other")
    client.call(m.ExchangeDeclare("x", "fanout"), m.ExchangeDeclareOk)
    client.call(m.QueueBind("dead", "x", ""), m.QueueBindOk)
    client.call(m.QueueDeclare("q"), m.QueueDeclareOk)
    policies = kit.node.vhosts["/"].policies
    policies.set(Policy("/", "p", "^q$", {"dead-letter-exchange": "x"}))
    die(client)
    client.call(m.QueueBind("other", "x", ""), m.QueueBindOk)
    die(client)
    policies.set(Policy("/", "p", "^q$", {"dead-letter-exchange": "", "dead-letter-routing-key": "other"}))
    die(client)
    assert (client.count("dead"), client.count("other")) == (2, 2)
    assert letters(client)[-1]["x-death"][0]["routing-keys"] == ["q"]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_letter_that_is_taken_at_once_leaves_nothing_behind(kit: NodeKit, kind: str) -> None:
    client = kit.client()
    client.declare("dead")
    dying(client, x_queue_type=kind)
    die(client)
    assert (client.count("dead"), kept(kit)) == (1, 0)


def test_without_a_route_it_is_tried_until_there_is_one(kit: NodeKit) -> None:
    client = kit.client()
    dying(client)
    die(client)
    kit.pass_time(3 * RETRY_MS)
    assert kept(kit) == 1
    client.declare("dead")
    kit.pass_time(RETRY_MS)
    assert (client.count("dead"), kept(kit)) == (1, 0)
    letter = client.get("dead")
    assert letter is not None
    history = deaths(letter.decode_properties().headers or {})
    assert [(death.reason, death.count) for death in history] == [("rejected", 1)]


def test_without_an_exchange_too(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("dead")
    dying(client, x_dead_letter_exchange="later", x_message_ttl=10)
    client.publish("q", b"1")
    kit.pass_time(10)
    assert (client.count(), kept(kit)) == (0, 1)
    client.call(m.ExchangeDeclare("later", "fanout"), m.ExchangeDeclareOk)
    client.call(m.QueueBind("dead", "later", ""), m.QueueBindOk)
    kit.pass_time(RETRY_MS)
    assert (client.count("dead"), kept(kit)) == (1, 0)


def test_a_full_queue_gets_it_later_and_the_others_only_once(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("full", x_max_length=1, x_overflow="reject-publish")
    client.declare("other")
    client.call(m.ExchangeDeclare("x", "fanout"), m.ExchangeDeclareOk)
    for name in ("full", "other"):
        client.call(m.QueueBind(name, "x", ""), m.QueueBindOk)
    dying(client, x_dead_letter_exchange="x")
    die(client, b"1")
    die(client, b"2")
    assert (client.count("full"), client.count("other"), kept(kit)) == (1, 2, 1)
    kit.pass_time(2 * RETRY_MS)
    assert (client.count("full"), client.count("other"), kept(kit)) == (1, 2, 1)
    first = client.get("full")
    kit.pass_time(RETRY_MS)
    second = client.get("full")
    assert [each.body for each in (first, second) if each] == [b"1", b"2"]
    assert (client.count("other"), kept(kit)) == (2, 0)


def test_a_stream_has_it_when_it_is_on_the_disk(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("dead", x_queue_type="stream")
    dying(client)
    die(client)
    assert kept(kit) == 1
    kit.run_sync()
    assert kept(kit) == 0
    assert client.count("dead") == 1
    kit.pass_time(2 * RETRY_MS)
    kit.run_syncs()
    assert client.count("dead") == 1


def test_a_stream_that_is_deleted_meanwhile_had_it(kit: NodeKit) -> None:
    """As for a publisher, to whom a queue that is deleted counts as confirmed."""
    client = kit.client()
    client.declare("dead", x_queue_type="stream")
    dying(client)
    die(client)
    client.call(m.QueueDelete("dead"), m.QueueDeleteOk)
    assert kept(kit) == 0


def test_what_is_kept_counts_towards_the_limit(kit: NodeKit) -> None:
    client = kit.client()
    dying(client, x_max_length=2)
    die(client)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for _ in range(2):
        client.publish("q")
    assert (len(client.take(m.BasicAck)), len(client.take(m.BasicNack))) == (1, 1)


def test_a_cycle_is_no_way_out(kit: NodeKit) -> None:
    client = kit.client()
    dying(client, "q", x_message_ttl=10)
    client.publish("q")
    kit.pass_time(RETRY_MS + 10)
    assert (client.count(), kept(kit)) == (0, 1)
    client.declare("r")
    dying_elsewhere = {"x-dead-letter-routing-key": "r"}
    kit.node.vhosts["/"].change_queue("q", dying_elsewhere)
    assert (client.count("r"), kept(kit)) == (1, 0)


def test_a_rejection_may_go_in_circles(kit: NodeKit) -> None:
    client = kit.client()
    dying(client, "q")
    die(client)
    assert (client.count(), kept(kit)) == (1, 0)


@pytest.mark.parametrize("change", [{"x_overflow": "drop-head"}, {"x_dead_letter_strategy": "at-most-once"}])
def test_the_rest_is_at_most_once(kit: NodeKit, change: dict[str, str]) -> None:
    client = kit.client()
    dying(client, **change)
    die(client)
    assert kept(kit) == 0
    client.declare("dead")
    kit.pass_time(2 * RETRY_MS)
    assert client.count("dead") == 0


def test_a_purge_leaves_it_and_a_deletion_does_not(kit: NodeKit) -> None:
    client = kit.client()
    dying(client)
    die(client)
    client.call(m.QueuePurge("q"), m.QueuePurgeOk)
    assert kept(kit) == 1
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    client.declare("dead")
    kit.pass_time(2 * RETRY_MS)
    assert client.count("dead") == 0


def test_another_exchange_is_tried_at_once_and_a_last_time_when_the_strategy_changes(kit: NodeKit) -> None:
    client = kit.client()
    dying(client)
    die(client)
    client.declare("other")
    kit.node.vhosts["/"].change_queue("q", {"x-dead-letter-routing-key": "other"})
    assert (client.count("other"), kept(kit)) == (1, 0)
    kit.node.vhosts["/"].change_queue("q", {"x-dead-letter-routing-key": "dead"})
    die(client)
    die(client)
    assert kept(kit) == 2
    kit.node.vhosts["/"].change_queue("q", {"x-dead-letter-routing-key": "other", "x-dead-letter-strategy": None})
    assert (client.count("other"), kept(kit)) == (3, 0)


MANY = 1000


def let_many_wait(kit: NodeKit, client: Client, **arguments: Any) -> None:
    dying(client, x_message_ttl=10, **arguments)
    for _ in range(MANY):
        client.publish("q")
    kit.pass_time(20)
    assert kept(kit) == MANY


def test_many_that_wait_are_tried_in_steps(kit: NodeKit) -> None:
    client = kit.client()
    let_many_wait(kit, client)
    client.declare("dead")
    kit.stopwatch.step = 1.0  # each step is a slice
    kit.clock.now += RETRY_MS
    kit.node.run_timers()
    assert 0 < kit.node.vhosts["/"].queues["dead"].message_count < MANY
    kit.stopwatch.step = 0.0
    kit.node.batch.slices.finish()
    assert (client.count("dead"), kept(kit)) == (MANY, 0)


def test_one_with_a_place_does_not_wait_for_those_without(kit: NodeKit) -> None:
    client = kit.client()
    client.declare("dead")
    client.declare(**SAFE, x_dead_letter_exchange="amq.direct", x_message_ttl=0)
    client.call(m.QueueBind("q", "amq.topic", "#"), m.QueueBindOk)
    for key in ["none"] * MANY + ["late"]:
        client.publish(key, exchange="amq.topic")
    assert kept(kit) == MANY + 1
    client.call(m.QueueBind("dead", "amq.direct", "late"), m.QueueBindOk)
    kit.pass_time(RETRY_MS)
    assert (client.count("dead"), kept(kit)) == (1, MANY)


def test_all_are_tried_a_last_time_when_the_strategy_changes(kit: NodeKit) -> None:
    client = kit.client()
    let_many_wait(kit, client)
    client.declare("other", x_max_length=MANY - 1, x_overflow="reject-publish")
    kit.stopwatch.step = 1.0
    change = {"x-dead-letter-routing-key": "other", "x-dead-letter-strategy": None}
    kit.node.vhosts["/"].change_queue("q", change)
    assert 0 < kit.node.vhosts["/"].queues["other"].message_count < MANY
    assert client.call(m.QueueDelete("q", if_empty=True), m.ChannelClose).reply_code == 406
    kit.stopwatch.step = 0.0
    kit.node.batch.slices.finish()
    assert kept(kit) == 0
    assert kit.node.vhosts["/"].queues["other"].message_count == MANY - 1, "the last one found no place"


@pytest.mark.parametrize("strategy", ["at-least-once", None])
def test_a_queue_that_is_deleted_while_all_are_tried(kit: NodeKit, strategy: str | None) -> None:
    client = kit.client()
    let_many_wait(kit, client)
    client.declare("other")
    kit.stopwatch.step = 1.0
    change = {"x-dead-letter-routing-key": "other", "x-dead-letter-strategy": strategy}
    kit.node.vhosts["/"].change_queue("q", change)
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    had = client.count("other")
    assert 0 < had < MANY
    kit.stopwatch.step = 0.0
    kit.node.batch.slices.finish()
    assert client.count("other") - had < 100, "what was under way"


def test_a_queue_with_letters_is_not_empty(kit: NodeKit) -> None:
    client = kit.client()
    dying(client)
    die(client)
    assert client.count() == 0
    assert client.call(m.QueueDelete("q", if_empty=True), m.ChannelClose).reply_code == 406


def test_a_delayed_exchange_is_a_safe_place(kit: NodeKit) -> None:
    client = kit.client()
    client.call(
        m.ExchangeDeclare("x", "x-delayed-message", arguments={"x-delayed-type": "fanout"}), m.ExchangeDeclareOk
    )
    client.declare("dead")
    client.call(m.QueueBind("dead", "x", ""), m.QueueBindOk)
    dying(client, x_dead_letter_exchange="x")
    client.publish("q", headers={"x-delay": 100})
    client.get(no_ack=False)
    client.send(1, m.BasicReject(1, requeue=False))
    assert (client.count("dead"), kept(kit)) == (0, 0)
    kit.pass_time(100)
    assert client.count("dead") == 1


def test_a_policy_can_ask_for_it(kit: NodeKit) -> None:
    client = kit.client()
    client.declare()
    definition = {
        "dead-letter-strategy": "at-least-once", "overflow": "reject-publish", "dead-letter-exchange": "",
        "dead-letter-routing-key": "dead",
    }  # fmt: skip
    policies = kit.node.vhosts["/"].policies
    policies.set(Policy("/", "safe", "^q$", definition))
    die(client)
    assert kept(kit) == 1
    client.declare("dead")
    policies.clear("safe")  # nowhere to go any more
    assert (client.count("dead"), kept(kit)) == (0, 0)
