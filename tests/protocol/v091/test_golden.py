"""A conversation recorded from a real RabbitMQ: heard by both roles, and said again byte for byte.

tools/record_v091.py recorded it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from harebell.protocol.v091 import ConnectionState, Content, Engine, Event, Method, Role, methods as m

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
LINES: list[tuple[str, bytes]] = [(line["from"], bytes.fromhex(line["hex"])) for line in GOLDEN["frames"]]


def replay(cut: int) -> tuple[dict[str, Engine], dict[str, bytes], list[tuple[str, Event]]]:
    """Each line is heard by the other side, in pieces, and what it meant is sent by an engine of the speaker's role."""
    engines = {"client": Engine(Role.CLIENT), "server": Engine(Role.SERVER)}
    said, heard = {"client": b"", "server": b""}, []
    for speaker, data in LINES:
        listener = engines["server" if speaker == "client" else "client"]
        if data[:4] == b"AMQP":
            engines[speaker].send_header()
        for start in range(0, len(data), cut):
            listener.receive_data(data[start : start + cut])
        for channel, event in listener.events():
            heard.append((speaker, (channel, event)))
            if isinstance(event, Content):
                engines[speaker].send_content(channel, event.decode_method(), event.properties, event.body)
            else:
                assert isinstance(event, Method)
                engines[speaker].send_method(channel, event)
        said[speaker] += engines[speaker].data_to_send()
    return engines, said, heard


@pytest.mark.parametrize("cut", [1, 7, 1000, 1 << 20])
def test_both_roles_understand_and_say_the_same(cut: int) -> None:
    engines, said, heard = replay(cut)
    for speaker in ("client", "server"):
        assert said[speaker] == b"".join(data for who, data in LINES if who == speaker)
        assert engines[speaker].state is ConnectionState.CLOSED
        assert engines[speaker].frame_max == GOLDEN["frame_max"]
    events = [event for _, (_, event) in heard if isinstance(event, Content | Method)]
    assert len(events) == len(heard)
    names = [event.decode_method().NAME if isinstance(event, Content) else event.NAME for event in events]
    assert names[:5] == [
        "connection.start",
        "connection.start-ok",
        "connection.tune",
        "connection.tune-ok",
        "connection.open",
    ]
    assert names[-2:] == ["connection.close", "connection.close-ok"]
    assert sorted(names).count("basic.ack") == 4
    assert names.count("basic.deliver") == 2


def test_what_was_delivered() -> None:
    _, _, heard = replay(1 << 20)
    contents = [event for who, (_, event) in heard if isinstance(event, Content) and who == "server"]
    first, second, returned = contents
    assert first.body == b'{"flight":1545}'
    assert first.persistent
    when = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)
    properties = first.properties
    assert (properties.message_id, properties.priority, properties.timestamp) == ("m-1", 5, when)
    assert properties.headers == {
        "string": "grün",
        "int": 1,
        "long": 1 << 40,
        "float": 0.5,
        "true": True,
        "bytes": b"\xff\x00",
        "none": None,
        "decimal": Decimal("3.14"),
        "time": when,
        "array": ["a", 1, {"deep": []}],
    }
    assert (second.body, second.raw_properties) == (b"x" * 9000, b"\0\0")
    assert second.decode_method() == m.BasicDeliver("ctag", 2, False, "", "harebell.golden")
    assert returned.decode_method() == m.BasicReturn(312, "NO_ROUTE", "", "nowhere")
    assert returned.body == b""
