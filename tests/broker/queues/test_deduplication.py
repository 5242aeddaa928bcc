from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harebell.broker.message import Address, Message
from harebell.broker.queues.contents.removed import Entries
from harebell.broker.queues.decorators import Verdict
from harebell.broker.queues.deduplication import MANY, Duplicates
from harebell.protocol.v091 import Content, Properties, Table, encode_content, methods as m
from harebell.routing.settings import QueueSettings
from tests.broker.kit import Client, Clock, NodeKit

HEADER = "x-deduplication-header"


def message(key: str | None) -> Message:
    headers: Table = {} if key is None else {HEADER: key}
    return Message(Address("", "q"), Content(1, b"", encode_content(1, Properties(headers=headers), b"", 0), 0))


def memory(now: Callable[[], int] = lambda: 0, **settings: Any) -> Duplicates:
    return Duplicates(lambda: QueueSettings(message_deduplication=True, **settings), now)


def keys(duplicates: Duplicates, *keys: str | None) -> list[str | None]:
    """Those that the queue takes."""
    taken = []
    for key in keys:
        if duplicates.judge(message(key)) is Verdict.ADMIT:
            duplicates.accepted(message(key))
            taken.append(key)
    return taken


def test_the_oldest_key_is_forgotten_first() -> None:
    duplicates = memory(cache_size=2)
    assert keys(duplicates, "a", "b", "a", "c", "b", "a", "c") == ["a", "b", "c", "a"]


def test_a_key_is_forgotten_after_its_time() -> None:
    clock = Clock()
    duplicates = memory(clock, cache_ttl=10)
    assert keys(duplicates, "a") == ["a"]
    clock.now += 9
    assert keys(duplicates, "a") == []
    clock.now += 1
    assert keys(duplicates, "a") == ["a"]
    clock.now += 9
    assert keys(duplicates, "a") == []


def test_what_another_decorator_refuses_is_not_remembered() -> None:
    duplicates = memory()
    duplicates.judge(message("a"))
    assert keys(duplicates, "a") == ["a"]


def test_no_key_is_no_duplicate() -> None:
    assert keys(memory(), None, None) == [None, None]


@pytest.mark.parametrize("header", [HEADER, "id"])
def test_a_queue_takes_the_first_of_each_key_and_confirms_the_others(client: Client, header: str) -> None:
    named = {} if header == HEADER else {"x_deduplication_header": header}
    client.declare(x_message_deduplication=True, **named)
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for value in ("1", 1, "1", None, None, "2", 1):
        client.publish("q", repr(value).encode(), headers={} if value is None else {header: value})
    assert len(client.take(m.BasicAck)) == 7
    assert client.count() == 5
    assert [client.get().body for _ in range(5)] == [b"'1'", b"1", b"None", b"None", b"'2'"]  # type: ignore[union-attr]


def test_a_key_lives_as_long_as_the_queue_says(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_message_deduplication=True, x_cache_ttl=1000)
    for passes in (0, 999, 1):
        kit.pass_time(passes)
        client.publish("q", headers={HEADER: "k"})
    assert client.count() == 2


def test_what_was_refused_may_come_again(client: Client) -> None:
    client.declare(x_message_deduplication=True, x_max_length=1, x_overflow="reject-publish")
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    client.publish("q", b"1", headers={HEADER: "a"})
    client.publish("q", b"2", headers={HEADER: "b"})
    assert len(client.take(m.BasicNack)) == 1
    assert client.get() is not None
    client.publish("q", b"2", headers={HEADER: "b"})
    assert client.count() == 1


def test_other_limits_hold_for_what_is_remembered() -> None:
    clock = Clock()
    now = QueueSettings(message_deduplication=True)
    duplicates = Duplicates(lambda: now, clock)
    assert keys(duplicates, "a", "b", "c") == ["a", "b", "c"]
    now = QueueSettings(message_deduplication=True, cache_size=2, cache_ttl=10)
    duplicates.settings_changed()
    clock.now += 9
    assert [duplicates.judge(message(key)) for key in "abc"] == [Verdict.ADMIT, Verdict.DISCARD, Verdict.DISCARD]
    clock.now += 1
    assert duplicates.judge(message("c")) is Verdict.ADMIT


@pytest.mark.parametrize("size", [0, 1, MANY, 2 * MANY])
def test_many_keys_are_forgotten_at_once_and_freed_later(size: int) -> None:
    freed: list[Entries] = []
    now = QueueSettings(message_deduplication=True, cache_size=3 * MANY)
    duplicates = Duplicates(lambda: now, lambda: 0, freed.append)
    names = [str(number) for number in range(3 * MANY)]
    keys(duplicates, *names)
    now = QueueSettings(message_deduplication=True, cache_size=size)
    duplicates.settings_changed()
    found = [each for each in names if duplicates.judge(message(each)) is Verdict.DISCARD]
    assert found == names[len(names) - size :]
    assert keys(duplicates, "new", names[-1]) == (["new"] if size > 1 else ["new", names[-1]])
    assert sum(map(len, freed)) == (3 * MANY if size <= MANY else 0)
    for each in freed:
        while each:
            each.pop()


def test_the_keys_of_a_deleted_queue_are_freed_in_steps(kit: NodeKit) -> None:
    client = kit.client()
    client.declare(x_message_deduplication=True, x_cache_size=2 * MANY)
    for number in range(2 * MANY):
        client.publish("q", headers={HEADER: str(number)})
    client.call(m.QueuePurge("q"), m.QueuePurgeOk)
    kit.stopwatch.step = 1.0
    client.call(m.QueueDelete("q"), m.QueueDeleteOk)
    assert kit.node.batch.slices.waiting
    kit.stopwatch.step = 0.0
    kit.run_syncs()
    assert not kit.node.batch.slices.waiting


def test_without_deduplication_nothing_is_remembered() -> None:
    now = QueueSettings(message_deduplication=True)
    duplicates = Duplicates(lambda: now, lambda: 0)
    assert keys(duplicates, "a") == ["a"]
    now = QueueSettings()
    duplicates.settings_changed()
    assert keys(duplicates, "a", "a") == ["a", "a"]
    now = QueueSettings(message_deduplication=True)
    duplicates.settings_changed()
    assert keys(duplicates, "a", "a") == ["a"]
