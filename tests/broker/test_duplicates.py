from __future__ import annotations

import pytest

from tests.broker.kit import Client, NodeKit
from warren.broker.duplicates import Duplicates
from warren.protocol.v091 import methods as m

HEADER = "x-deduplication-header"


def keys(duplicates: Duplicates, *keys: str) -> list[str]:
    """Those that the queue takes."""
    taken = []
    for key in keys:
        if not duplicates.seen(key, 0):
            duplicates.remember(key, 0)
            taken.append(key)
    return taken


def test_the_oldest_key_is_forgotten_first() -> None:
    duplicates = Duplicates("h", 2, None)
    assert keys(duplicates, "a", "b", "a", "c", "b", "a", "c") == ["a", "b", "c", "a"]


def test_a_key_is_forgotten_after_its_time() -> None:
    duplicates = Duplicates("h", None, 10)
    duplicates.remember("a", 100)
    assert duplicates.seen("a", 109)
    assert not duplicates.seen("a", 110)
    duplicates.remember("a", 110)
    assert duplicates.seen("a", 119)


def test_no_key_is_no_duplicate() -> None:
    duplicates = Duplicates("h", None, None)
    duplicates.remember(None, 0)
    assert not duplicates.seen(None, 0)


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
    duplicates = Duplicates("h", None, None)
    assert keys(duplicates, "a", "b", "c") == ["a", "b", "c"]
    duplicates.reconfigure(2, 10)
    assert [duplicates.seen(key, 9) for key in "abc"] == [False, True, True]
    assert not duplicates.seen("c", 10)
