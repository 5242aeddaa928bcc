"""Dead letters whose headers are long, or have to be read and written anew, are made in turns, whatever kills them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from harebell.broker import letters
from harebell.broker.forwarding import keys_of
from harebell.broker.queues import dead_letters, orphans
from harebell.broker.v091 import unacked
from harebell.protocol.v091 import Properties, methods as m
from harebell.protocol.v091.splice import header_frame_size
from harebell.routing import dead_letter_headers
from harebell.routing.dead_letter import deaths
from harebell.routing.policies import Policy
from tests.broker.kit import Client, NodeKit

pytestmark = pytest.mark.pure  # replaces functions

MANY = 20
SAFE = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}
LONG = {"long": ["h"] * 2000}
MESSAGES: dict[str, dict[str, Any]] = {
    "long headers": {"headers": LONG},
    "an expiration": {"expiration": "600000"},
    "a copy": {"headers": {"CC": ["nobody"]}},
    "headers that look like a death": {"headers": {"a": "x-death"}},
    "all of that": {"headers": {**LONG, "CC": ["nobody"], "x-death": "x"}, "expiration": "600000"},
}


def take_all(kit: NodeKit, client: Client) -> None:
    """Have all messages of `q` delivered."""
    client.send(1, m.BasicConsume("q", "c"))
    client.send(1, m.BasicCancel("c"))
    kit.run_syncs()
    client.receive()
    client.events.clear()


def nack(kit: NodeKit, client: Client) -> None:
    client.send(1, m.BasicNack(0, multiple=True, requeue=False))


def requeue(kit: NodeKit, client: Client) -> None:
    client.send(1, m.BasicNack(0, multiple=True, requeue=True))


def limit(kit: NodeKit, client: Client) -> None:
    kit.node.vhosts["/"].policies.set(Policy("/", "p", "^q$", {"max-length": 0}))


def expire(kit: NodeKit, client: Client) -> None:
    kit.clock.now += 1000
    kit.node.run_timers()


def delete(kit: NodeKit, client: Client) -> None:
    client.send(1, m.QueueDelete("q"))


WAYS: dict[str, tuple[Callable[[NodeKit, Client], None], dict[str, Any]]] = {
    "rejected": (nack, {}),
    "rejected, at least once": (nack, SAFE),
    "rejected, to an alternate exchange": (nack, {"x_orphan_exchange": "amq.fanout"}),
    "too often returned": (requeue, {"x_queue_type": "quorum", "x_delivery_limit": 0}),
    "beyond a limit": (limit, {}),
    "expired": (expire, {"x_message_ttl": 1000}),
    "expired, at least once": (expire, {"x_message_ttl": 1000, **SAFE}),
    "orphaned": (delete, {"x_orphan_exchange": "amq.fanout"}),
}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many letters were worked out since the counts were cleared; orphans with short headers only find a route."""
    counts: Counter[str] = Counter()
    address = dead_letters._address

    def addressed(*given: Any) -> Any:
        counts["all"] += 1
        return address(*given)

    def read(message: Any) -> Any:
        counts["all"] += header_frame_size(message.content.frames) > letters.SHORT
        return keys_of(message)

    monkeypatch.setattr(dead_letters, "_address", addressed)
    monkeypatch.setattr(orphans, "keys_of", read)
    return counts


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_step_writes_many(
    kit: NodeKit, client: Client, written: Counter[str], way: tuple[Any, dict[str, Any]], message: dict[str, Any]
) -> None:
    kill, arguments = way
    client.declare("dead")
    client.call(m.QueueBind("dead", "amq.fanout", ""), m.QueueBindOk)
    client.declare(**{"x_dead_letter_exchange": "amq.fanout", **arguments})
    for number in range(MANY):
        client.publish("q", b"%d" % number, **message)
    if kill in (nack, requeue):
        take_all(kit, client)
    kit.stopwatch.step = 1.0  # each step is a slice
    written.clear()
    kill(kit, client)
    most = written["all"]
    queue = kit.node.vhosts["/"].queues["dead"]
    while queue.message_count < MANY or not kit.node.batch.letters.free:
        for turn in (kit.node.run_timers, kit.run_syncs if kit.calls.empty() else kit.run_sync):
            written.clear()
            turn()
            most = max(most, written["all"])
        kit.clock.now += 1
    assert most <= 2, "the step of the work, and what a batch does at once"
    kit.stopwatch.step = 0.0
    kit.node.batch.slices.finish()
    found = []
    while (content := client.get("dead")) is not None:
        found.append(content.body)
    assert found == [b"%d" % number for number in range(MANY)]


def test_a_crowd_lets_a_work_wait_that_rejects(kit: NodeKit, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    longest, put = 0, letters.Letters.put

    def noted(line: letters.Letters, letter: letters.Letter) -> None:
        nonlocal longest
        put(line, letter)
        longest = max(longest, len(line._line))

    monkeypatch.setattr(letters.Letters, "put", noted)
    monkeypatch.setattr(letters, "CROWD", 4)
    monkeypatch.setattr(unacked, "DELIVERIES_PER_STEP", 1)
    client.declare("dead")
    client.declare(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    for _ in range(100):
        client.publish("q", expiration="600000")
    take_all(kit, client)
    kit.stopwatch.step = 1.0
    client.send(1, m.BasicNack(0, multiple=True, requeue=False))
    kit.stopwatch.step = 0.0
    kit.node.batch.letters.inline = 0
    kit.node.batch.slices.finish()
    assert longest <= 4 + 8
    assert client.count("dead") == 100


@pytest.mark.parametrize("died", [False, True])
@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_its_headers_are_those_of_the_message_and_the_death(
    kit: NodeKit, client: Client, message: dict[str, Any], died: bool
) -> None:
    client.declare("dead", x_dead_letter_exchange="", x_dead_letter_routing_key="again")
    client.declare("again")
    client.declare(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    given = Properties(content_type="text/plain", correlation_id="c", message_id="m", **message)
    client.engine.send_content(1, m.BasicPublish("", "q"), given, b"body")
    client.pump()
    for queue in ("q", "dead")[: 1 + died]:
        client.send(1, m.BasicGet(queue))
        _, event = client.events.pop()
        tag = event.decode_method().delivery_tag  # type: ignore[attr-defined]
        client.send(1, m.BasicReject(tag, requeue=False))
    letter = client.get("again" if died else "dead")
    assert letter is not None
    after = letter.decode_properties()
    headers = dict(after.headers or {})
    keys = ["q", *(given.headers or {}).get("CC", [])]  # type: ignore[misc]
    expected = dead_letter_headers(
        given.headers or {}, queue="q", reason="rejected", exchange="", routing_keys=keys,
        time=deaths(headers)[-1].time, expiration=given.expiration, died_before=False,
    )  # fmt: skip
    if died:
        expected = dead_letter_headers(
            expected, queue="dead", reason="rejected", exchange="", routing_keys=["dead"],
            time=deaths(headers)[0].time, died_before=True,
        )  # fmt: skip
    assert headers == expected
    after.headers, after.expiration, expiration = given.headers, given.expiration, after.expiration
    assert (after, expiration) == (given, None)
