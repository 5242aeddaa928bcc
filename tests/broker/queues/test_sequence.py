"""The number of a message in its queue, as a header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harebell.broker.message import Address, MarkedMessage, Message
from harebell.broker.queues.sequence import MAX_HEADER, numbered
from harebell.protocol.v091 import Content, Properties
from harebell.protocol.v091.content import encode_content
from tests.broker.kit import Client, NodeKit


def headers(client: Client) -> list[dict[str, Any]]:
    found = []
    while (content := client.get()) is not None:
        found.append(dict(content.decode_properties().headers or {}))
    return found


def test_gaps_show_what_a_ring_dropped(client: Client) -> None:
    client.declare(x_sequence_header="n", x_max_length=2)
    for given in (None, {"n": "mine", "other": 1}, {"m": 2}, None):
        client.publish("q", b"", headers=given)
    assert headers(client) == [{"n": 3, "m": 2}, {"n": 4}]
    client.publish("q", b"", headers={"n": "mine", "other": 1})
    assert headers(client) == [{"n": 5, "other": 1}]


def test_the_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    """They are the places of the messages: a queue that was empty begins again."""
    for expected in (1, 2, 3):
        kit = NodeKit(tmp_path, sync=False)
        client = kit.client()
        client.declare(x_sequence_header="n")
        client.publish("q", b"a", delivery_mode=2)
        if expected > 1:
            content = client.get()
            assert content is not None
            assert content.decode_properties().headers == {"n": expected - 1}
        kit.stop()


def test_a_requeued_message_keeps_its_number(client: Client) -> None:
    from harebell.protocol.v091 import methods as m

    client.declare(x_sequence_header="n")
    client.publish("q", b"a")
    client.get(no_ack=False)
    client.send(1, m.BasicRecover(True))
    client.events.clear()
    client.publish("q", b"b")
    assert [each["n"] for each in headers(client)] == [1, 2]


@pytest.mark.parametrize("size", [10, MAX_HEADER - 40])
def test_a_header_that_would_not_fit_is_left_out(size: int) -> None:
    properties = Properties(headers={"x": "y" * size})
    frames = encode_content(1, properties, b"body", 1 << 20)
    content = Content(1, b"", frames, 4)
    message = MarkedMessage(Address("", "q"), content, ("k",), ("b",), died=True, ttl=3, number=b"n")
    found = numbered(message, "n", 7)
    assert (found is message) is (size > 10)
    assert (found.keys, found.bcc, found.died, found.ttl, found.number) == (("k",), ("b",), True, 3, b"n")
    plain = numbered(Message(message.address, content), "n", 7)
    assert type(plain) is Message
