"""Subscriptions: credit in messages and bytes, modes, stop and flush, browsing, acquiring, releasing, rejecting."""

from __future__ import annotations

from typing import Any

import pytest

from harebell.broker.queues.changes import change_queue
from harebell.broker.store.queue_log import journal
from harebell.broker.v010 import deliveries
from harebell.protocol.v010 import Command, Content, commands as c, structs as s
from harebell.routing.settings import queue_settings
from tests.broker.v010.kit import ALL, Client, Kit

KINDS: dict[str, dict[str, Any]] = {
    "transient": {},
    "durable": {"durable": True},
    "limited": {"arguments": {"x-max-length": 1000}},
    "quorum": {"durable": True, "arguments": {"x-queue-type": "quorum"}},
    "grouped": {"arguments": {"x-message-group": "g"}},
    "priorities": {"arguments": {"x-max-priority": 3}},
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def fill(client: Client, kind: str, count: int = 4, size: int = 1) -> None:
    client.call(c.QueueDeclare("q", **KINDS[kind]))
    for number in range(count):
        client.publish("q", b"%d" % number * size, delivery_mode=2, sync=number == count - 1)


def ranges(*numbers: int) -> tuple[tuple[int, int], ...]:
    return tuple((number, number) for number in numbers)


# -- credit -------------------------------------------------------------------------------------------------------


def test_initial_credit(client: Client) -> None:
    fill(client, "transient")
    client.subscribe("q", messages=None, size=None)
    assert client.bodies() == []
    client.call(c.MessageFlow("t", 0, 10))
    assert client.bodies() == []  # both units are needed
    client.call(c.MessageFlow("t", 1, ALL))
    assert client.bodies() == [b"0", b"1", b"2", b"3"]


def test_default_flow_mode(client: Client) -> None:
    """It is window mode: completions give credit back, acceptance does not."""
    fill(client, "transient")
    client.completes = False
    client.subscribe("q", messages=1)
    ((number, _),) = client.taken()
    client.call(c.MessageAccept(ranges(number)))
    assert client.bodies() == []
    client.finish(number)
    assert client.bodies() == [b"1"]


@EVERY_KIND
def test_credit_mode_gives_nothing_back(client: Client, kind: str) -> None:
    fill(client, kind)
    client.subscribe("q", messages=None, size=None)
    client.call(c.MessageSetFlowMode("t", 0))
    client.call(c.MessageFlow("t", 0, 2))
    client.call(c.MessageFlow("t", 1, None))
    assert len(client.bodies()) == 2
    client.report()
    assert client.bodies() == []
    client.call(c.MessageFlow("t", 0, 1))
    assert len(client.bodies()) == 1


def test_mode_switching(client: Client) -> None:
    fill(client, "transient", 0)
    client.subscribe("q", messages=1, size=None)
    client.call(c.MessageSetFlowMode("t", 1))  # the mode that it has
    assert client.exception is None
    client.call(c.MessageSetFlowMode("t", 0))
    assert client.exception is not None
    assert client.exception.error_code == 409


@EVERY_KIND
@pytest.mark.parametrize("accept_mode", [0, 1])
def test_byte_accounting(client: Client, kind: str, accept_mode: int) -> None:
    """A message costs its header and its body: for a body of 8 octets and the key "q", 19 octets."""
    fill(client, kind, 3, 8)
    client.completes = False
    client.subscribe("q", messages=ALL, size=None, accept_mode=accept_mode)
    cost = 20  # with the delivery-mode, which is an octet
    client.call(c.MessageFlow("t", 1, cost - 1))
    assert client.bodies() == []
    client.call(c.MessageFlow("t", 1, cost + 1))
    taken = client.taken()
    assert [content.body[:1] for _, content in taken] == [b"0", b"1"]
    assert [len(content.header) + content.body_size for _, content in taken] == [cost, cost]
    client.finish(taken[0][0])
    assert [content.body[:1] for _, content in client.taken()] == [b"2"]


@EVERY_KIND
def test_a_message_that_costs_too_much_loses_nothing(client: Client, kind: str) -> None:
    fill(client, kind, 2, 100)
    client.subscribe("q", size=50)
    assert client.bodies() == []
    client.call(c.MessageCancel("t"))
    client.subscribe("q", "u")
    taken = client.taken()
    assert [(content.body[:1], content.delivery_properties.redelivered) for _, content in taken] == [
        (b"0", False),
        (b"1", False),
    ]


def test_stop(client: Client) -> None:
    """After message.stop no credit is left, and completions of earlier transfers bring none."""
    fill(client, "transient", 3)
    client.completes = False
    client.subscribe("q", messages=1)
    ((number, _),) = client.taken()
    client.call(c.MessageStop("t"))
    client.finish(number)
    assert client.bodies() == []
    client.call(c.MessageFlow("t", 0, 1))
    assert client.bodies() == []  # the bytes were unlimited, and are gone
    client.call(c.MessageFlow("t", 1, ALL))
    assert client.bodies() == [b"1"]


@EVERY_KIND
def test_flush(client: Client, kind: str) -> None:
    """message.flush delivers what there is, and completes with no credit left."""
    fill(client, kind, 2)
    client.subscribe("q", messages=10)
    client.call(c.MessageFlush("t"))
    assert len(client.bodies()) == 2
    client.publish("q", b"late")
    assert client.bodies() == []


@EVERY_KIND
def test_a_flush_uses_up_its_credit_though_the_socket_takes_nothing(client: Client, kind: str) -> None:
    """Else a client that asks for one message would take the queue for an empty one."""
    fill(client, kind, 3)
    client.peer.connection.writable = False
    client.subscribe("q", messages=2)
    assert client.bodies() == []
    client.call(c.MessageFlush("t"))
    assert client.bodies() == [b"0", b"1"]


def test_a_flush_without_a_limit_stops_at_the_socket(client: Client) -> None:
    fill(client, "transient", 3)
    client.peer.connection.writable = False
    client.subscribe("q", messages=ALL)
    client.call(c.MessageFlush("t"))
    assert client.bodies() == []


def test_credit_never_wraps(client: Client) -> None:
    fill(client, "transient", 0)
    client.subscribe("q", messages=0xFFFF_FFFE)
    client.call(c.MessageFlow("t", 0, 0xFFFF_FFFE))
    client.publish("q", b"m")
    assert client.bodies() == [b"m"]


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "command", "code"),
    [
        ("queue-not-found", c.MessageSubscribe("nowhere", "n"), 404),
        ("empty-name", c.MessageSubscribe("", "n"), 531),
        ("unique-subscriber-destination", c.MessageSubscribe("q", "t"), 530),
        ("accept-mode", c.MessageSubscribe("q", "n", 7), 542),
        ("arguments", c.MessageSubscribe("q", "n", arguments={"strange": 1}), 540),
        ("arguments", c.MessageSubscribe("q", "n", arguments={"x-browse": True}), 542),
        ("arguments", c.MessageSubscribe("q", "n", arguments={"x-priority": "high"}), 406),
        ("in-use", c.MessageSubscribe("q", "n", exclusive=True), 405),
        ("subscription-not-found", c.MessageCancel("n"), 404),
        ("subscription-not-found", c.MessageFlow("n", 0, 1), 404),
        ("subscription-not-found", c.MessageFlush("n"), 404),
        ("subscription-not-found", c.MessageStop("n"), 404),
        ("unit", c.MessageFlow("t", 5, 1), 542),
        ("mode", c.MessageSetFlowMode("t", 5), 542),
        ("backwards", c.MessageAccept(((9, 2),)), 542),
        ("result", c.ExecutionResult(0), 530),
        ("exception", c.ExecutionException(404), 530),
    ],
    ids=str,
)
def test_refusals(client: Client, rule: str, command: Command, code: int) -> None:
    fill(client, "transient", 0)
    client.subscribe("q")
    client.call(command)
    assert client.exception is not None, rule
    assert client.exception.error_code == code


def test_queue_deletion_ends_the_sessions_of_subscribers(kit: Kit, client: Client) -> None:
    fill(client, "transient", 0)
    client.subscribe("q")
    own, other = kit.peer().session(b"own"), kit.peer().session(b"other")
    other.subscribe("q")
    own.subscribe("q")
    own.call(c.QueueDelete("q"))
    kit.settle()
    assert own.exception is None
    assert other.exception is not None
    assert other.exception.error_code == 408


# -- settling -----------------------------------------------------------------------------------------------------


@EVERY_KIND
def test_accept(client: Client, kit: Kit, kind: str) -> None:
    fill(client, kind)
    client.subscribe("q")
    numbers = [number for number, _ in client.taken()]
    client.call(c.MessageAccept(ranges(numbers[0], numbers[2])))
    assert [channel.unacked_count for channel in client.peer.connection.channels.values()] == [2]
    assert [channel.oldest_unacked for channel in client.peer.connection.channels.values()] != [None]
    client.peer.lose()
    other = kit.peer().session(b"other")
    other.subscribe("q")
    assert [content.body for _, content in other.taken()] == [b"1", b"3"]


@EVERY_KIND
@pytest.mark.parametrize("set_redelivered", [False, True])
def test_release_ordering(client: Client, kind: str, set_redelivered: bool) -> None:
    """Released messages come back to their places; only with set-redelivered they are marked."""
    fill(client, kind)
    client.subscribe("q", messages=3)
    numbers = [number for number, _ in client.taken()][:3]
    client.call(c.MessageCancel("t"))
    client.call(c.MessageRelease(ranges(*reversed(numbers)), set_redelivered))
    client.subscribe("q", "u")
    found = [(content.body, content.delivery_properties.redelivered) for _, content in client.taken()]
    assert found[:3] == [(b"%d" % number, set_redelivered) for number in range(3)]


@EVERY_KIND
def test_reject_goes_to_the_alternate_exchange(client: Client, kind: str) -> None:
    client.call(c.ExchangeDeclare("dead", "fanout"))
    client.call(c.QueueDeclare("letters"))
    client.call(c.ExchangeBind("letters", "dead", ""))
    given = KINDS[kind]
    client.call(c.QueueDeclare("q", alternate_exchange="dead", **given))
    client.publish("q", b"m", delivery_mode=2)
    client.subscribe("q")
    ((number, _),) = client.taken()
    client.call(c.MessageReject(ranges(number)))
    client.subscribe("letters", "u")
    assert client.bodies() == [b"m"]


def test_what_is_not_outstanding_is_passed_over(client: Client) -> None:
    fill(client, "transient", 1)
    client.subscribe("q")
    ((number, _),) = client.taken()
    client.call(c.MessageAccept(((number, number + 4_000_000),)))
    for command in (c.MessageAccept, c.MessageReject, c.MessageRelease):
        client.call(command(((0, 2_000_000_000),)))
    assert client.exception is None


def test_many_at_once(client: Client, kit: Kit) -> None:
    fill(client, "durable", 1200)
    client.subscribe("q")
    taken = client.taken()
    assert len(taken) == 1200
    client.call(c.MessageRelease(((taken[0][0], taken[-1][0]),)))
    again = client.taken()
    assert [content.body for _, content in again] == [content.body for _, content in taken]
    client.call(c.MessageAccept(((again[0][0], again[-1][0]),)))
    kit.settle()
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == 0


# -- browsing and acquiring ---------------------------------------------------------------------------------------


@EVERY_KIND
def test_acquire(client: Client, kit: Kit, kind: str) -> None:
    """A browser sees all, and takes what it acquires: one that is taken by then is not acquired."""
    fill(client, kind)
    client.subscribe("q", acquire_mode=1)
    shown = client.taken()
    assert [content.body for _, content in shown] == [b"0", b"1", b"2", b"3"]
    other = kit.peer().session(b"other")
    other.subscribe("q", messages=1)
    assert other.bodies() == [b"0"]
    numbers = [number for number, _ in shown]
    acquired = client.ask(c.MessageAcquire(ranges(*numbers[:3])), s.Acquired)
    assert acquired.transfers == ((numbers[1], numbers[2]),)
    client.call(c.MessageAccept(ranges(numbers[1])))
    client.call(c.MessageRelease(ranges(numbers[2])))
    other.report()
    client.call(c.MessageCancel("t"))
    last = kit.peer().session(b"last")
    last.subscribe("q")
    assert len(last.bodies()) + len(other.bodies()) == 2  # 2 and 3


@pytest.mark.pure
@EVERY_KIND
@pytest.mark.parametrize("asked", ["all", "every second", "those of the ends"])
def test_all_that_is_acquired_is_told(
    client: Client, kit: Kit, monkeypatch: pytest.MonkeyPatch, kind: str, asked: str
) -> None:
    """What one answer has no room for stays in the queue, and can be asked for again."""
    monkeypatch.setattr(deliveries, "MAX_RANGES", 3)
    fill(client, kind, 20)
    client.subscribe("q", acquire_mode=1)
    numbers = [number for number, _ in client.taken()]
    wanted = {"all": numbers, "every second": numbers[::2], "those of the ends": [*numbers[:5], *numbers[-5:]]}[asked]
    queue, told = kit.node.vhosts["/"].queues["q"], set[int]()
    for _ in range(len(wanted)):
        found = client.ask(c.MessageAcquire(ranges(*sorted(set(wanted) - told))), s.Acquired).transfers
        assert len(found) <= 3
        told.update(number for low, high in found for number in range(low, high + 1))
        assert queue.message_count == 20 - len(told)
        if told == set(wanted):
            break
    assert told == set(wanted)
    client.call(c.MessageAccept(ranges(*wanted)))
    kit.settle()
    assert queue.message_count == 20 - len(wanted)


@EVERY_KIND
def test_what_is_acquired_with_accept_mode_none_is_settled(client: Client, kit: Kit, kind: str) -> None:
    """Nobody will accept it: it does not wait for that, and does not come back."""
    fill(client, kind)
    client.subscribe("q", acquire_mode=1, accept_mode=1)
    numbers = [number for number, _ in client.taken()]
    wanted = ranges(numbers[1], numbers[2])
    assert client.ask(c.MessageAcquire(wanted), s.Acquired).transfers == ((numbers[1], numbers[2]),)
    client.call(c.MessageRelease(wanted))  # of what is settled: passed over
    client.peer.lose()
    kit.settle()
    last = kit.peer().session(b"last")
    last.subscribe("q")
    assert last.bodies() == [b"0", b"3"]


def test_what_was_not_acquired_cannot_be_accepted(client: Client) -> None:
    fill(client, "transient", 1)
    client.subscribe("q", acquire_mode=1)
    ((number, _),) = client.taken()
    client.call(c.MessageAccept(ranges(number)))
    client.call(c.MessageReject(ranges(number)))
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == 1


def test_browsing_waits_for_credit(client: Client) -> None:
    fill(client, "transient", 3, 50)
    client.completes = False
    client.subscribe("q", messages=2, acquire_mode=1)
    assert len(client.taken()) == 2


def test_who_acquires_a_message_holds_its_group(client: Client, kit: Kit) -> None:
    fill(client, "grouped", 0)
    for number, group in enumerate("aaba"):
        headers = {"g": group}
        client.publish("q", b"%d" % number, message=s.MessageProperties(application_headers=headers))
    client.subscribe("q", acquire_mode=1)
    numbers = [number for number, _ in client.taken()]
    assert client.ask(c.MessageAcquire(ranges(numbers[1])), s.Acquired).transfers == ranges(numbers[1])
    other = kit.peer().session(b"other")
    other.subscribe("q")
    assert other.bodies() == [b"2"]  # of the group that is free
    assert client.ask(c.MessageAcquire(ranges(numbers[2])), s.Acquired).transfers == ()
    assert client.ask(c.MessageAcquire(ranges(numbers[3])), s.Acquired).transfers == ranges(numbers[3])
    client.call(c.MessageAccept(ranges(numbers[1])))
    assert other.bodies() == []
    client.call(c.MessageRelease(ranges(numbers[3])))
    assert other.bodies() == [b"0", b"3"]


@EVERY_KIND
def test_what_was_acquired_and_released_is_there_once(client: Client, kit: Kit, kind: str) -> None:
    """Also for those that browse, and when the queue's levels change."""
    fill(client, kind)
    for tag in "abc":
        client.subscribe("q", tag, acquire_mode=1)
        numbers = [number for number, _ in client.taken()]
        assert len(numbers) == 4
        assert client.ask(c.MessageAcquire(ranges(numbers[1])), s.Acquired).transfers == ranges(numbers[1])
        client.call(c.MessageRelease(ranges(numbers[1])))
        client.call(c.MessageCancel(tag))
    other = kit.peer().session(b"other")
    other.subscribe("q", acquire_mode=1)
    assert other.bodies() == [b"0", b"1", b"2", b"3"]
    if kind in ("transient", "durable", "limited"):
        queue = kit.node.vhosts["/"].queues["q"]
        change_queue(queue, {"x-max-priority": 5}, lambda arguments: queue_settings(arguments, "q"))
    last = kit.peer().session(b"last")
    last.subscribe("q")
    assert last.bodies() == [b"0", b"1", b"2", b"3"]


# -- selectors ----------------------------------------------------------------------------------------------------

COLOURS = ("red", "blue", None, "red")


def coloured(client: Client, kind: str) -> None:
    fill(client, kind, 0)
    for number, colour in enumerate(COLOURS):
        headers = {} if colour is None else {"colour": colour}
        client.publish("q", b"%d" % number, message=s.MessageProperties(application_headers=headers), delivery_mode=2)


@EVERY_KIND
@pytest.mark.parametrize("acquire_mode", [0, 1])
def test_selectors(client: Client, kind: str, acquire_mode: int) -> None:
    coloured(client, kind)
    red = {"x-apache-selector": "colour = 'red'"}
    client.subscribe("q", acquire_mode=acquire_mode, arguments=red)
    assert client.bodies() == [b"0", b"3"]
    client.subscribe("q", "u", acquire_mode=acquire_mode, arguments={"x-selector": "colour <> 'red'"})
    assert client.bodies() == [b"1"]
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == (4 if acquire_mode else 1)


@pytest.mark.parametrize("size", [ALL, 100])
def test_a_selector_and_byte_credit(client: Client, size: int) -> None:
    """A message that costs too much is put back, and comes with more credit: it is not passed over."""
    coloured(client, "transient")
    client.completes = False
    client.subscribe("q", size=10, arguments={"x-selector": "colour = 'red'"})
    assert client.bodies() == []
    client.call(c.MessageFlow("t", 1, size))
    assert client.bodies()[:1] == [b"0"]
    client.call(c.MessageFlow("t", 1, ALL))
    assert client.bodies()[-1:] in ([b"3"], [])


def test_flush_goes_through_the_whole_queue(client: Client, kit: Kit) -> None:
    fill(client, "transient", 0)
    for number in range(300):
        headers = {"colour": "red" if number == 299 else "blue"}
        client.publish("q", b"%d" % number, message=s.MessageProperties(application_headers=headers), sync=False)
    kit.stopwatch.step = 0.001
    client.subscribe("q", messages=None, size=None, arguments={"x-selector": "colour = 'red'"})
    client.send(c.MessageFlow("t", 0, 1))
    client.send(c.MessageFlow("t", 1, ALL))
    client.call(c.MessageFlush("t"))
    assert client.bodies() == [b"299"]


@pytest.mark.parametrize(
    "arguments",
    [{"x-apache-selector": "colour ="}, {"x-selector": 5}, {"x-selector": "a", "x-filter-jms-selector": "b"}],
)
def test_what_is_no_selector(client: Client, arguments: dict[str, Any]) -> None:
    fill(client, "transient", 0)
    client.call(c.MessageSubscribe("q", "t", arguments=arguments))
    assert client.exception is not None
    assert client.exception.error_code == 542
    assert "for queue 'q' in vhost '/': " in (client.exception.description or "")


@pytest.mark.parametrize(
    "command",
    [
        c.ExchangeDeclare("e", "topic", arguments={"x-apache-selector": "a"}),
        c.QueueDeclare("q2", arguments={"x-filter-jms-selector": "a"}),
        c.ExchangeBind("q", "amq.topic", "k", {"x-apache-selector": "a"}),
    ],
)
def test_where_a_selector_has_no_effect(client: Client, command: Command) -> None:
    fill(client, "transient", 0)
    client.call(command)
    assert client.exception is not None
    assert client.exception.error_code == 540


# -- streams, redelivery, expiry ----------------------------------------------------------------------------------


@pytest.mark.parametrize("accept_mode", [0, 1])
@pytest.mark.parametrize("size", [ALL, 100])
def test_streams(client: Client, kit: Kit, accept_mode: int, size: int) -> None:
    client.call(c.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}))
    for number in range(5):
        client.publish("s", b"%d" % number, delivery_mode=2)
    arguments = {"x-stream-offset": "first"}
    client.subscribe("s", size=size, accept_mode=accept_mode, arguments=arguments)
    taken: list[tuple[int, Content]] = []
    for _ in range(8):
        taken += client.taken()
        client.report()
    assert [content.body for _, content in taken] == [b"%d" % number for number in range(5)]
    headers = taken[3][1].message_properties.application_headers
    assert headers is not None
    assert headers["x-stream-offset"] == 3
    client.call(c.MessageRelease(ranges(*(number for number, _ in taken))))
    assert client.exception is None


def test_time_to_live_goes_down(client: Client, kit: Kit) -> None:
    """Rule ttl-decrement."""
    client.call(c.QueueDeclare("q"))
    client.publish("q", b"short", ttl=1000)
    client.publish("q", b"long", ttl=60_000)
    client.publish("q", b"none")
    kit.pass_time(1500)
    client.subscribe("q")
    found = [(content.body, content.delivery_properties.ttl) for _, content in client.taken()]
    assert found == [(b"long", 58_500), (b"none", None)]


def test_overdue_deliveries_end_the_session(client: Client, kit: Kit) -> None:
    client.call(c.QueueDeclare("q", arguments={"x-consumer-timeout": 60_000}))
    client.publish("q", b"m")
    client.subscribe("q")
    client.taken()
    kit.pass_time(200_000)
    kit.settle()
    assert client.exception is not None
    assert client.exception.error_code == 406


def test_lists_show_subscriptions(client: Client, kit: Kit) -> None:
    fill(client, "transient", 1)
    client.subscribe("q")
    client.taken()
    session = client.peer.connection.channels[0]
    session.flush_counts()
    assert list(session.consumers) == ["t"]
    assert session.confirming
    assert not session.transactional
    assert (session.unconfirmed, session.uncommitted) == (0, 0)
    assert session.counts.deliver == 1
    assert session.counts.publish == 1


@pytest.mark.pure
@pytest.mark.parametrize("size", [ALL, 30])
@pytest.mark.parametrize("accept_mode", [0, 1])
def test_a_backlog_on_disk(kit: Kit, monkeypatch: pytest.MonkeyPatch, size: int, accept_mode: int) -> None:
    """A long backlog goes from the file to the subscriber; byte credit stops it between two messages."""
    monkeypatch.setattr(journal, "PAGE_MESSAGES", 2)
    client = kit.peer().session()
    client.call(c.QueueDeclare("q", durable=True))
    for number in range(12):
        client.publish("q", b"%02d" % number, delivery_mode=2)
    queue: Any = kit.node.vhosts["/"].queues["q"]
    assert queue.journal.paged
    client.subscribe("q", size=size, accept_mode=accept_mode)
    taken: list[tuple[int, Content]] = []
    for _ in range(14):
        taken += client.taken()
        client.report()
    assert [content.body for _, content in taken] == [b"%02d" % number for number in range(12)]
    assert not any(content.delivery_properties.redelivered for _, content in taken)
    if accept_mode == 0:
        assert client.peer.connection.channels[0].unacked_count == 12
        client.call(c.MessageAccept(((taken[0][0], taken[-1][0]),)))
    assert client.ask(c.QueueQuery("q"), s.QueueQueryResult).message_count == 0
