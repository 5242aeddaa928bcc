"""Whatever the broker does to a message's headers, the publisher's own keep their bytes: types, widths and order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings

from harebell.protocol.v091 import Content, Table, methods as m
from harebell.protocol.v091.fields import write_table
from tests.broker.kit import Client, NodeKit
from tests.fixtures.profiles import scaled
from tests.headers import EVERY_TYPE, entries_of, raw_table
from tests.protocol.v091 import strategies


def publish(client: Client, key: str, raw_headers: bytes, exchange: str = "", mandatory: bool = False) -> None:
    raw = b"\x30\0" + raw_headers + b"\2"  # headers and delivery mode
    client.engine.send_content(1, m.BasicPublish(exchange, key, mandatory), raw, b"body")
    client.pump()


def with_headers(raw: bytes, **added: object) -> bytes:
    more = write_table({name.replace("_", "-"): value for name, value in added.items()})[4:]
    return (len(raw) - 4 + len(more)).to_bytes(4, "big") + raw[4:] + more


def taken(client: Client, queue: str = "q") -> Content:
    content = client.get(queue)
    assert content is not None
    return content


def reject(client: Client, queue: str = "q", *, requeue: bool = False) -> None:
    client.send(1, m.BasicGet(queue))
    _, event = client.events.pop()
    assert isinstance(event, Content)
    got = event.decode_method()
    assert isinstance(got, m.BasicGetOk)
    client.send(1, m.BasicReject(got.delivery_tag, requeue))


def queue(client: Client, name: str = "q", **arguments: object) -> None:
    client.call(m.QueueDelete(name), m.QueueDeleteOk)
    client.declare(name, **arguments)


def redelivered(kit: NodeKit, client: Client, raw: bytes) -> Content:
    queue(client)
    publish(client, "q", raw)
    reject(client, requeue=True)
    return taken(client)


def redelivered_with_a_count_of_its_own(kit: NodeKit, client: Client, raw: bytes) -> Content:
    return redelivered(kit, client, with_headers(raw, x_delivery_count=7))


def dead(kit: NodeKit, client: Client, raw: bytes) -> Content:
    queue(client, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    queue(client, "dead")
    publish(client, "q", raw)
    reject(client)
    return taken(client, "dead")


def dead_with_a_death_of_its_own(kit: NodeKit, client: Client, raw: bytes) -> Content:
    return dead(kit, client, with_headers(raw, x_death=[{"count": 3}]))


def dead_twice(kit: NodeKit, client: Client, raw: bytes) -> Content:
    queue(client, x_dead_letter_exchange="", x_dead_letter_routing_key="middle")
    queue(client, "middle", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    queue(client, "dead")
    publish(client, "q", raw)
    reject(client)
    reject(client, "middle")
    return taken(client, "dead")


def expired_and_back(kit: NodeKit, client: Client, raw: bytes) -> Content:
    queue(client, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    queue(client, "dead", x_dead_letter_exchange="", x_dead_letter_routing_key="q", x_message_ttl=0)
    publish(client, "q", raw)
    for _ in range(3):
        reject(client)
    return taken(client)


def copied(kit: NodeKit, client: Client, raw: bytes) -> Content:
    queue(client)
    publish(client, "q", with_headers(raw, CC=["nowhere"], BCC=["elsewhere"]))
    return taken(client)


def copied_and_dead(kit: NodeKit, client: Client, raw: bytes) -> Content:
    return dead(kit, client, with_headers(raw, CC=["nowhere"], BCC=["elsewhere"]))


def delayed(kit: NodeKit, client: Client, raw: bytes) -> Content:
    declare = m.ExchangeDeclare("delayed", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    client.call(declare, m.ExchangeDeclareOk)
    queue(client)
    client.call(m.QueueBind("q", "delayed", ""), m.QueueBindOk)
    publish(client, "", with_headers(raw, x_delay=1), "delayed")
    kit.pass_time(2)
    return taken(client)


def streamed(kit: NodeKit, client: Client, raw: bytes) -> Content:
    queue(client, x_queue_type="stream")
    publish(client, "q", raw)
    client.send(1, m.BasicQos(0, 1))
    client.send(1, m.BasicConsume("q", "c", arguments={"x-stream-offset": "first"}))
    found = next(event for _, event in client.events if isinstance(event, Content))
    client.send(1, m.BasicCancel("c", no_wait=True))
    client.events.clear()
    return found


def streamed_with_an_offset_of_its_own(kit: NodeKit, client: Client, raw: bytes) -> Content:
    return streamed(kit, client, with_headers(raw, x_stream_offset=7))


def returned(kit: NodeKit, client: Client, raw: bytes) -> Content:
    publish(client, "no such queue", with_headers(raw, BCC=["nor this"]), mandatory=True)
    _, event = client.events.pop()
    assert isinstance(event, Content)
    return event


REWRITES: Final[list[Callable[[NodeKit, Client, bytes], Content]]] = [
    redelivered,
    redelivered_with_a_count_of_its_own,
    dead,
    dead_with_a_death_of_its_own,
    dead_twice,
    expired_and_back,
    copied,
    copied_and_dead,
    delayed,
    streamed,
    streamed_with_an_offset_of_its_own,
    returned,
]


# Headers that the broker may write; whoever publishes one gives up its value.
THE_BROKERS: Final = ("x-", "CC", "BCC")


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[NodeKit]:
    kit = NodeKit(tmp_path / "data", sync=False)
    yield kit
    kit.stop()


@pytest.mark.parametrize("rewrite", REWRITES)
def test_every_type_stays_as_it_was(kit: NodeKit, rewrite: Callable[[NodeKit, Client, bytes], Content]) -> None:
    after = entries_of(rewrite(kit, kit.client(), raw_table(EVERY_TYPE)).raw_headers)
    assert {name: after.get(name) for name in EVERY_TYPE} == EVERY_TYPE
    assert [name for name in after if name in EVERY_TYPE] == list(EVERY_TYPE)
    assert all(name.startswith(THE_BROKERS) for name in after if name not in EVERY_TYPE)


@pytest.mark.repeats
@pytest.mark.parametrize("rewrite", REWRITES)
def test_any_table_stays_as_it_was(kit: NodeKit, rewrite: Callable[[NodeKit, Client, bytes], Content]) -> None:
    client = kit.client()

    @settings(max_examples=scaled(25))
    @given(strategies.tables)
    def check(table: Table) -> None:
        mine = {name: value for name, value in table.items() if not name.startswith(THE_BROKERS)}
        raw = write_table(mine)
        after = entries_of(rewrite(kit, client, raw).raw_headers)
        kept = {name: value for name, value in after.items() if not name.startswith(THE_BROKERS)}
        assert raw_table(kept) == raw

    check()


def test_what_the_broker_adds_has_the_types_that_rabbitmq_writes(kit: NodeKit) -> None:
    client = kit.client()
    empty = raw_table({})
    assert redelivered(kit, client, empty).raw_headers[-9:-8] == b"l"
    assert streamed(kit, client, empty).raw_headers[-9:-8] == b"l"
    queue(client, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    queue(client, "dead")
    client.publish("q", expiration="60000")
    reject(client)
    content = taken(client, "dead")
    letters = {name: value[:1] for name, value in entries_of(content.raw_headers).items()}
    assert letters == {
        "x-death": b"A",
        **{f"x-{which}-death-{what}": b"S" for which in ("first", "last") for what in ("reason", "queue", "exchange")},
    }
    death = entries_of(content.raw_headers)["x-death"][5:]
    assert death[:1] == b"F"
    assert {name: value[:1] for name, value in entries_of(death[1:]).items()} == {
        "original-expiration": b"S", "count": b"l", "reason": b"S", "queue": b"S", "time": b"T", "exchange": b"S",
        "routing-keys": b"A",
    }  # fmt: skip
